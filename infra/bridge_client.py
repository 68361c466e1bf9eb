"""A run's bridge, played from a recording: hello, batches under the lease, heartbeats, bye (http.md, the bridge)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..domain.jsontext import compact
from .api_client import Api, Refused
from .swe_agent import Item

HEARTBEAT_S = 30.0
"""An empty batch renews the lease this often (rooms.md, Runs)."""

BATCH_ITEMS = 100
BATCH_BYTES = 1024 * 1024
"""Bounds of one push; the server takes 500 items and 2 MiB (rooms.md, Limits)."""

PAGE = 500
"""Entries read at a time when the seqs of pushed items are looked up."""

Told = Callable[[int, int], None]
"""Told how many items the room has, and how many there are in all."""


class Hello(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to hello, as far as a player needs it."""

    room_id: str
    lease: str
    after_harness_seq: int
    after_status_seq: int


class _Cursors(msgspec.Struct, frozen=True, rename="camel"):
    after_harness_seq: int
    after_status_seq: int


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    seq: int
    type: str
    origin: str = ""
    run_id: str = ""


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    events: list[_Entry]
    last_seq: int


class Played(msgspec.Struct, frozen=True, rename="camel"):
    """What came of it. already: items that the room had from an earlier try. seq: the room's last one."""

    room: str
    run_id: str
    items: int
    already: int
    reason: str
    seq: int


class Player:
    """Pushes the items of one run, in order, each exactly once whatever the connection does.

    wait_s: how long to wait before an item. `together`: push as many items as one batch takes and wait for nothing;
    else each item is a batch of its own, so that an item can name what caused it by its seq in the room.
    """

    def __init__(
        self,
        api: Api,
        run_id: str,
        items: Sequence[Item],
        *,
        wait_s: Callable[[Item], float],
        together: bool = False,
        told: Told | None = None,
    ) -> None:
        self._api = api
        self._run_id = run_id
        self._items = items
        self._wait_s = wait_s
        self._together = together
        self._told = told or _silent
        self._room = ""
        self._lease = ""
        self._seen_seq = 0
        self._seqs: list[int] | None = []

    async def hello(self) -> Hello:
        """Claim the room. Raises Refused (`room_busy`, `run_not_live`, `sealed`, ...) and Unreachable."""
        hello = msgspec.convert(await self._api.call("POST", "/v1/bridge/hello"), Hello)
        self._room, self._lease = hello.room_id, hello.lease
        if hello.after_harness_seq == hello.after_status_seq == 0:
            room = await self._api.call("GET", f"/v1/rooms/{self._room}")
            self._seen_seq = int(room["throughSeq"])
        return hello

    async def play(self, hello: Hello, reason: str) -> Played:
        """Push what the room does not have yet, then say bye with `reason`. Raises as hello does."""
        cursors = {"events": hello.after_harness_seq, "status": hello.after_status_seq}
        left = [item for item in self._items if item.seq > cursors[item.stream]]
        already = len(self._items) - len(left)
        self._told(already, len(self._items))
        while left:
            batch = self._batch(left)
            if not self._together:
                await self._wait(self._wait_s(batch[0]))
            await self._push(batch)
            left = left[len(batch) :]
            self._told(len(self._items) - len(left), len(self._items))
        seq = await self._bye(reason)
        return Played(self._room, self._run_id, len(self._items), already, reason, seq)

    def _batch(self, left: Sequence[Item]) -> Sequence[Item]:
        if not self._together:
            return left[:1]
        size, count = 0, 0
        for item in left[:BATCH_ITEMS]:
            size += len(compact(item.payload))
            if count and size > BATCH_BYTES:
                break
            count += 1
        return left[:count]

    async def _wait(self, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while (left_s := until - loop.time()) > 0:
            await asyncio.sleep(min(left_s, HEARTBEAT_S))
            if left_s > HEARTBEAT_S:
                await self._send([])

    async def _push(self, batch: Sequence[Item]) -> None:
        await self._learn(batch)
        cursors = await self._send([self._wire(item) for item in batch])
        stored = {"events": cursors.after_harness_seq, "status": cursors.after_status_seq}
        last = batch[-1]
        if stored[last.stream] < last.seq:
            raise Refused(200, "", f"The room stands at item {stored[last.stream]}, though {last.seq} was sent.")

    async def _send(self, items: list[dict[str, Any]]) -> _Cursors:
        body = {"items": items, "lease": self._lease}
        return msgspec.convert(await self._api.call("POST", "/v1/bridge/events", body), _Cursors)

    def _wire(self, item: Item) -> dict[str, Any]:
        wire = {"stream": item.stream, "seq": item.seq, "type": item.type, "payload": item.payload}
        cause = item.caused_by_harness_seq
        place = -1 if cause is None else self._place(cause)
        if self._seqs is not None and 0 <= place < len(self._seqs):
            wire["causedBy"] = self._seqs[place]
        return wire

    def _place(self, harness_seq: int) -> int:
        """Where among the items the one with that seq of the stream `events` stands."""
        return next((i for i, item in enumerate(self._items) if (item.stream, item.seq) == ("events", harness_seq)), -1)

    async def _learn(self, batch: Sequence[Item]) -> None:
        """Look up the seqs in the room of what was pushed so far: the run's own entries, in the order of the items.

        An entry that this run is not cleared for cannot be told apart, and ends the looking: `causedBy` is a courtesy.
        """
        causes = [self._place(item.caused_by_harness_seq) for item in batch if item.caused_by_harness_seq is not None]
        while self._seqs is not None and causes and max(causes) >= len(self._seqs):
            params: dict[str, str | int] = {"afterSeq": self._seen_seq, "limit": PAGE}
            page = msgspec.convert(await self._api.call("GET", f"/v1/rooms/{self._room}/events", params=params), _Page)
            if any(entry.type == "restricted" for entry in page.events):
                self._seqs = None
                return
            own = [entry.seq for entry in page.events if (entry.origin, entry.run_id) == ("harness", self._run_id)]
            self._seqs += own
            if page.events:
                self._seen_seq = page.events[-1].seq
            if self._seen_seq >= page.last_seq:
                return

    async def _bye(self, reason: str) -> int:
        try:
            answer = await self._api.call("POST", "/v1/bridge/bye", {"reason": reason})
        except Refused as refused:
            if refused.code != "already_ended":
                raise
            # The answer to a bye that was stored got lost, and this is the repeated one.
            answer = await self._api.call("GET", f"/v1/rooms/{self._room}")
            return int(answer["throughSeq"])
        return int(answer["seq"])


def _silent(_done: int, _all: int) -> None:
    pass
