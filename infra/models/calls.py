"""Tool calls of an answer, put together from the pieces in which services send them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from ...commands.conversations.ports import ModelRequest
from ...domain.conversations.turn_events import WantedCall
from .wellformed import arguments_of, repaired

MAX_CALLS = 64
"""Of one answer."""

MAX_ARGUMENT_CHARS = 131_072
"""Of all calls of one answer together."""

UNNAMED = "unnamed"

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


class TooManyCalls(Exception):
    """An answer wants more than anybody would run."""


class _Draft(Struct):
    id: str = ""
    name: str = ""
    arguments: str = ""


class Calls:
    """The calls of one answer. Each gets an id that no other call of its turn has: the service's, or one of ours."""

    def __init__(self, request: ModelRequest) -> None:
        self._used = {call.call_id for message in request.messages for call in message.calls}
        self._drafts: dict[int, _Draft] = {}
        self._at: dict[int, int] = {}
        self._chars = 0

    def add(self, index: int | None, id_: str | None, name: str | None, arguments: str | None) -> None:
        """One more piece. index: of the call as the service counts, None where it does not. Raises TooManyCalls."""
        draft = self._drafts[self._place(index, id_)]
        draft.id = draft.id or (id_ or "")
        if name and name != draft.name:
            draft.name += name
        draft.arguments += arguments or ""
        self._chars += len(arguments or "")
        if self._chars > MAX_ARGUMENT_CHARS:
            raise TooManyCalls

    def _place(self, index: int | None, id_: str | None) -> int:
        """Where the draft of a piece is; some services begin another call under the index of the one before."""
        key = (max(self._at) if self._at else 0) if index is None else index
        place = self._at.get(key)
        if place is None or (id_ and self._drafts[place].id and self._drafts[place].id != id_):
            place = self._at[key] = len(self._drafts)
            self._drafts[place] = _Draft()
            if len(self._drafts) > MAX_CALLS:
                raise TooManyCalls
        return place

    def whole(self) -> Iterable[WantedCall]:
        """The calls, once, in the order in which they began."""
        drafts, self._drafts, self._at = list(self._drafts.values()), {}, {}
        for draft in drafts:
            yield WantedCall(self._own_id(draft.id), _tool_name(draft.name), arguments_of(draft.arguments))

    def _own_id(self, given: str) -> str:
        number = len(self._used) + 1
        while not _ID.fullmatch(given) or given in self._used:
            given, number = f"call-{number}", number + 1
        self._used.add(given)
        return given


def _tool_name(name: str) -> str:
    """A name that every service takes back."""
    return _FOREIGN.sub("_", repaired(name))[:64] or UNNAMED
