"""Usage where a service tells none, so that a budget counts on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...commands.conversations.ports import CallDelta, ModelRequest, Usage
from ...domain.conversations.counting import HeuristicCounter


def estimated(request: ModelRequest, chars: int, calls: Sequence[CallDelta]) -> Usage:
    """Tokens of a call by the heuristic counter. chars: code points of the answer's text, each counted as one token."""
    counter = HeuristicCounter()
    texts = [request.system, *(each.text for each in request.messages)]
    texts += [msgspec.json.encode(each).decode() for each in (request.tools, [m.calls for m in request.messages])]
    spent = sum(counter.count(text) + counter.per_message for text in texts)
    return Usage(spent, chars + counter.count(msgspec.json.encode([each.call for each in calls]).decode()))
