"""What a bridge sends up: batches under its lease, in order, each item once; heartbeats while there is nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from ..domain.jsontext import compact
from ..domain.rooms.events import AckKind
from .api_client import Api, Refused
from .bridge_causes import Causes
from .harness_log import HarnessItem, stand_in

HEARTBEAT_S = 30.0
"""An empty batch renews the lease this often (rooms.md, Runs)."""

BATCH_ITEMS = 200
BATCH_BYTES = 1024 * 1024
"""Bounds of one push, though a single item may be larger; the server takes 500 items and 2 MiB (rooms.md, Limits)."""

BUFFER_BYTES = 8 * 1024 * 1024
"""What waits to be pushed. While it is full, nothing more is read."""

MAX_REASON_CHARS = 300

REFUSED = frozenset({400, 413, 422})
"""What is wrong with the batch itself, so that the same one is never taken."""

Told = Callable[[int], None]
"""Told how many items the room has."""

Stream = Literal["events", "status"]


class Cursors(msgspec.Struct, frozen=True, rename="camel"):
    """How far the room has the two streams: the harness's items, and the bridge's own words on deliveries."""

    after_harness_seq: int
    after_status_seq: int


class _Waiting(msgspec.Struct):
    stream: Stream
    item: HarnessItem
    is_stand_in: bool = False


class Pusher:
    """Pushes what is put in. cursors: those of hello. most: items in one batch.

    A batch that the server refuses is halved until one item is left; a stand-in takes that one's number, and what is
    behind it goes on. Raises, out of `run`, what no waiting helps: Refused (`lease_lost`, `run_not_live`, `sealed`).
    """

    def __init__(
        self,
        api: Api,
        lease: str,
        cursors: Cursors,
        causes: Causes,
        *,
        most: int = BATCH_ITEMS,
        told: Told | None = None,
    ) -> None:
        self.cursors = cursors
        self._api = api
        self._lease = lease
        self._causes = causes
        self._most = self._longest = most
        self._told = told
        self._items: deque[_Waiting] = deque()
        self._words: deque[_Waiting] = deque()
        self._next_word = cursors.after_status_seq + 1
        self._bytes = 0
        self._is_closed = False
        self._moved = asyncio.Event()
        self._drained = asyncio.Event()

    @property
    def buffered(self) -> int:
        """Bytes that wait."""
        return self._bytes

    async def put(self, item: HarnessItem) -> None:
        """Add an item; waits while the buffer is full."""
        while self._bytes and self._bytes + item.size > BUFFER_BYTES:
            self._drained.clear()
            await self._drained.wait()
        self._items.append(_Waiting("events", item))
        self._bytes += item.size
        self._moved.set()

    def acknowledge(self, kind: AckKind, ref: int, reason: str | None = None) -> None:
        """Say what became of a delivery, before anything else that waits; as bounded as deliveries are."""
        why = {} if reason is None else {"reason": reason[:MAX_REASON_CHARS]}
        item = HarnessItem(self._next_word, "state_changed", compact({"kind": kind, "ref": ref, **why}))
        self._next_word += 1
        self._words.append(_Waiting("status", item))
        self._moved.set()

    def close(self) -> None:
        """Let `run` return once everything is pushed."""
        self._is_closed = True
        self._moved.set()

    async def run(self) -> None:
        """Push until closed and drained."""
        while True:
            self._moved.clear()
            batch = self._batch()
            if not batch:
                if self._is_closed:
                    return
                await self._rest()
                continue
            try:
                cursors = await self._send(batch)
            except Refused as refused:
                if refused.status not in REFUSED:
                    raise
                self._lessen(batch, refused)
            else:
                self._take_off(batch, cursors)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await self._moved.wait()
        except TimeoutError:
            await self._send([])

    def _batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        for each in (*self._words, *_first(self._items, self._most)):
            size += each.item.size
            if len(batch) == self._most or (batch and size > BATCH_BYTES):
                break
            batch.append(each)
        return batch

    async def _send(self, batch: Sequence[_Waiting]) -> Cursors:
        items = [await self._wire(each) for each in batch]
        body = {"items": items, "lease": self._lease}
        return msgspec.convert(await self._api.call("POST", "/v1/bridge/events", body), Cursors)

    async def _wire(self, waiting: _Waiting) -> dict[str, Any]:
        item = waiting.item
        wire = {"stream": waiting.stream, "seq": item.seq, "type": item.type, "payload": msgspec.Raw(item.payload)}
        if item.cause is not None:
            cause = await self._causes.seq_of(item.cause, self.cursors.after_harness_seq)
            wire |= {} if cause is None else {"causedBy": cause}
        return wire

    def _lessen(self, batch: list[_Waiting], refused: Refused) -> None:
        """Raises the refusal where even the stand-in of an item is refused."""
        if len(batch) > 1:
            self._most = len(batch) // 2
            return
        (waiting,) = batch
        if waiting.is_stand_in:
            raise refused
        before = waiting.item
        fields = {"type": before.type[:64], "code": refused.code, "reason": refused.detail[:MAX_REASON_CHARS]}
        waiting.item = stand_in(before.seq, "refused", **fields)
        waiting.is_stand_in = True
        if waiting.stream == "events":
            self._bytes += waiting.item.size - before.size

    def _take_off(self, batch: Sequence[_Waiting], cursors: Cursors) -> None:
        """Raises Refused where the room does not have what it was sent."""
        for each in batch:
            stored = cursors.after_harness_seq if each.stream == "events" else cursors.after_status_seq
            if stored < each.item.seq:
                raise Refused(200, "", f"The room stands at item {stored}, though {each.item.seq} was sent.")
            if each.stream == "events":
                self._items.popleft()
                self._bytes -= each.item.size
            else:
                self._words.popleft()
        self.cursors = cursors
        self._most = min(self._longest, self._most * 2)
        self._drained.set()
        if self._told is not None:
            self._told(cursors.after_harness_seq)


def _first(items: deque[_Waiting], count: int) -> list[_Waiting]:
    return [items[place] for place in range(min(count, len(items)))]
