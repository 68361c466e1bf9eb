"""A run's bridge: pushes what its harness did into the room, and brings back what the room has for the run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

import msgspec

from ..domain.rooms.commands import ClaimedReason
from .api_client import Api, Refused
from .bridge_approvals import Approvals, Request, Verdict
from .bridge_causes import Causes
from .bridge_commands import Handler, Nobody
from .bridge_deliveries import Deliveries
from .bridge_feed import Feed
from .bridge_pusher import BATCH_ITEMS, Cursors, Pusher, Told
from .harness_log import Source

LAST_WORDS_S = 5.0
"""How long the end of the run waits for a delivery that is being handed over."""


class Hello(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to hello, as far as a bridge needs it."""

    room_id: str
    lease: str
    after_harness_seq: int
    after_status_seq: int


class Bridge:
    """One run's bridge in one process: `hello`, then `run` to the end of its source, then `bye`; `ask` meanwhile.

    api: its calls are retried for ever, so give it no end (`give_up_s=math.inf`). handler: takes deliveries; where it
    is None, the bridge looks for none unless `asks`, and what waits for the run goes on waiting. asks: local callers
    may ask for approvals. most: items in a batch. told: hears how many items the room has. notice: hears in a few words
    of what happens beside. After any end, also by kill, a new Bridge of the same source goes on where the room stands.
    """

    def __init__(
        self,
        api: Api,
        run_id: str,
        source: Source,
        *,
        handler: Handler | None = None,
        asks: bool = False,
        most: int = BATCH_ITEMS,
        told: Told | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self._api = api
        self._run_id = run_id
        self._source = source
        self._handler = handler
        self._asks = asks
        self._most = most
        self._told = told
        self._notice = notice or _silent
        self._hello: Hello | None = None
        self._pusher: Pusher | None = None
        self._approvals: Approvals | None = None

    @property
    def pusher(self) -> Pusher:
        """What it sends with, once it said hello."""
        if self._pusher is None:
            raise RuntimeError("say hello first")
        return self._pusher

    async def hello(self) -> Hello:
        """Claim the room. Raises Refused (`room_busy`, `run_not_live`, `sealed`, ...) and Unreachable."""
        self._hello = hello = msgspec.convert(await self._api.call("POST", "/v1/bridge/hello"), Hello)
        cursors = Cursors(hello.after_harness_seq, hello.after_status_seq)
        after = 0
        if not hello.after_harness_seq and not hello.after_status_seq:
            room = await self._api.call("GET", f"/v1/rooms/{hello.room_id}")
            after = int(room["throughSeq"])
        causes = Causes(self._api, hello.room_id, self._run_id, after)
        self._pusher = Pusher(self._api, hello.lease, cursors, causes, most=self._most, told=self._told)
        self._approvals = Approvals(self._api, hello.lease, self._pusher.acknowledge)
        return hello

    async def run(self) -> None:
        """Push the source to its end, and hand over what comes.

        Raises RunOver where the server ends it, Refused (`lease_lost`, `run_not_live`, `sealed`), and what the source
        raises.
        """
        hello, pusher, approvals = self._hello, self.pusher, self._approvals
        if hello is None or approvals is None:
            raise RuntimeError("say hello first")
        if self._told is not None:
            self._told(hello.after_harness_seq)
        pushing = asyncio.create_task(pusher.run(), name="push")
        reading = asyncio.create_task(self._read(hello.after_harness_seq), name="read")
        tasks = [pushing, reading]
        deliveries = self._deliveries(hello, pusher, approvals)
        if deliveries is not None:
            tasks += [asyncio.create_task(deliveries.listen()), asyncio.create_task(deliveries.hand_over())]
        try:
            await _first_end(tasks, reading)
            if deliveries is not None:
                await deliveries.settle(LAST_WORDS_S)
            pusher.close()
            await _first_end([task for task in tasks if task is not reading], pushing)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._handler is not None:
                await self._handler.close()

    async def ask(self, request: Request) -> Verdict:
        """Ask the room for leave, and wait for its decision. Raises Refused and Unreachable."""
        if self._approvals is None:
            raise RuntimeError("say hello first")
        return await self._approvals.ask(request)

    async def bye(self, reason: ClaimedReason | None = None) -> int:
        """End the run, with the source's reason where none is given. The room's last seq; 0 where it had ended before:
        then the answer to a bye that was stored got lost, and this was the repeated one."""
        hello = self._hello
        if hello is None:
            raise RuntimeError("say hello first")
        body = {"reason": reason or self._source.reason}
        try:
            answer = await self._api.call("POST", "/v1/bridge/bye", body, params={"lease": hello.lease})
        except Refused as refused:
            if refused.code != "already_ended":
                raise
            return 0
        return int(answer["seq"])

    async def _read(self, after: int) -> None:
        async with contextlib.aclosing(self._source.items(after)) as items:
            async for item in items:
                await self.pusher.put(item)

    def _deliveries(self, hello: Hello, pusher: Pusher, approvals: Approvals) -> Deliveries | None:
        if self._handler is None and not self._asks:
            return None
        feed = Feed(self._api.client, self._api.token, hello.lease, self._notice)
        handler = self._handler or Nobody()
        return Deliveries(feed, pusher, approvals, handler, parks=self._asks, notice=self._notice)


async def _first_end(tasks: Iterable[asyncio.Task[None]], wanted: asyncio.Task[None]) -> None:
    """Return when `wanted` is done. Raises what the first of the tasks raises that fails before."""
    pending = set(tasks)
    while not wanted.done():
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    wanted.result()


def _silent(_words: str) -> None:
    pass
