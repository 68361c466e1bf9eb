"""What people on chats say instead of a message (delivery.md, Authorization)."""

from __future__ import annotations

import re
from typing import NamedTuple, cast

from .messages import Verb

MAX_ARGUMENT_CHARS = 255
"""Of what follows a verb; what is longer is cut."""

_VERB = re.compile(
    r"/(link|confirm|unlink|new|status|cancel|stop|start)(?:@(\w{1,64}))?(?:\s+(.*))?",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)


class Said(NamedTuple):
    """A verb with what follows it. to: whom it names behind an @, in lower case; empty where it names nobody."""

    verb: Verb
    argument: str
    to: str


def verb_in(text: str) -> Said | None:
    """The verb that a text is; None where it is a message. `/Link  ABCD2345` and `/link@bot` are verbs, `/linked` is
    not."""
    match = _VERB.fullmatch(text.strip())
    if match is None:
        return None
    verb, to, argument = match.groups(default="")
    return Said(cast("Verb", verb.lower()), argument.strip()[:MAX_ARGUMENT_CHARS], to.lower())
