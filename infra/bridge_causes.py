"""Which seq in the room an item got, so that a later one can name it as its cause."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from ..domain.rooms.events import AckKind
from .api_client import Api

PAGE = 500
"""Entries read at a time."""

MAX_KNOWN = 200_000
"""Items whose seqs are kept; a room seals long before (rooms.md, Phases)."""

_ACKNOWLEDGEMENTS = frozenset(get_args(AckKind))


class _Payload(msgspec.Struct, frozen=True):
    kind: Any = None


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    seq: int
    type: str
    origin: str = ""
    run_id: str = ""
    payload: _Payload = _Payload()


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    events: list[_Entry]
    last_seq: int


class Causes:
    """Reads the run's own entries back from the room, as far as somebody asks: the n-th one is the n-th item.

    An entry that this run is not cleared for cannot be told apart, and ends the looking: `causedBy` is a courtesy.
    after: the seq behind which the run's first item must be.
    """

    def __init__(self, api: Api, room_id: str, run_id: str, after: int = 0) -> None:
        self._api = api
        self._path = f"/v1/rooms/{room_id}/events"
        self._run_id = run_id
        self._after = after
        self._seqs: list[int] = []
        self._is_over = False

    async def seq_of(self, number: int, stored: int) -> int | None:
        """The seq of item `number` in the room, where that is known. stored: how many items the room has."""
        while not self._is_over and len(self._seqs) < number <= stored:
            await self._read()
        return self._seqs[number - 1] if 0 < number <= len(self._seqs) else None

    async def _read(self) -> None:
        params: dict[str, str | int] = {"afterSeq": self._after, "limit": PAGE}
        page = msgspec.convert(await self._api.call("GET", self._path, params=params), _Page)
        if not page.events or len(self._seqs) > MAX_KNOWN or any(entry.type == "restricted" for entry in page.events):
            self._is_over = True
            return
        self._seqs += [entry.seq for entry in page.events if self._is_item(entry)]
        self._after = page.events[-1].seq

    def _is_item(self, entry: _Entry) -> bool:
        """Whether the harness did it; what became of deliveries is the bridge's own word."""
        is_own = (entry.origin, entry.run_id) == ("harness", self._run_id)
        return is_own and not (entry.type == "state_changed" and entry.payload.kind in _ACKNOWLEDGEMENTS)
