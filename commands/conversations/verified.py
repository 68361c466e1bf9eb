"""Events that were verified already: a turn reads its whole window again, and each look at a signature costs.

The log is read every time all the same, so that what was erased is gone: only the very same event is known.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ..ports import StoredEvent
from .kind import Verifier

MAX_CHARS = 16 * 1024 * 1024
"""Payloads that are remembered, of all conversations of the process."""


class Verified:
    """One per process."""

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self._max_chars = max_chars
        self._known: OrderedDict[tuple[str, int], tuple[StoredEvent, Any]] = OrderedDict()
        self._chars = 0

    def decode(self, verifier: Verifier, event: StoredEvent) -> Any:
        """As Verifier.decode."""
        place = (verifier.stream, event.seq)
        known = self._known.get(place)
        if known is not None and known[0] == event:
            self._known.move_to_end(place)
            return known[1]
        decoded = verifier.decode(event)
        if known is not None:
            self._chars -= len(known[0].payload)
        self._known[place] = (event, decoded)
        self._known.move_to_end(place)
        self._chars += len(event.payload)
        while self._chars > self._max_chars:
            _, (oldest, _) = self._known.popitem(last=False)
            self._chars -= len(oldest.payload)
        return decoded
