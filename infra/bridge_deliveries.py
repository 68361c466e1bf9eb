"""Deliveries from the stream to who takes them: one after another, each acknowledged once it is taken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from .api_client import backoff_s
from .bridge_approvals import Approvals
from .bridge_commands import Handler, NotTaken, RefusedForGood
from .bridge_feed import Delivery, Feed
from .bridge_pusher import Pusher

MAX_TRIES = 5
"""Times that a command is given the same delivery; then it is undeliverable, and holds up those behind it no more."""

MAX_QUEUED = 256
"""Deliveries taken off the stream and not handed over yet; the room lets fewer wait."""

MAX_REMEMBERED = 1024
"""Refs that were handed over, so that a stream that begins again hands none over twice."""

ASKING_S = 0.05
"""Between two looks whether a request for approval has its answer, which says whose a decision is."""

_TAKEN = {"deliver": "delivered", "interrupt": "interrupted", "decision": "decision_applied"}


class Deliveries:
    """See the module. A decision goes to the request that waits for it, else to the handler; where `parks`, it is kept
    for a request that may be made yet."""

    def __init__(
        self,
        feed: Feed,
        pusher: Pusher,
        approvals: Approvals,
        handler: Handler,
        *,
        parks: bool,
        notice: Callable[[str], None],
    ) -> None:
        self._feed = feed
        self._pusher = pusher
        self._approvals = approvals
        self._handler = handler
        self._parks = parks
        self._notice = notice
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue(MAX_QUEUED)
        self._known: dict[tuple[str, int], None] = {}

    async def listen(self) -> None:
        """Take deliveries off the stream. Raises as Feed.deliveries."""
        async for delivery in self._feed.deliveries():
            place = (delivery.kind, delivery.ref)
            if place in self._known:
                continue
            self._known[place] = None
            while len(self._known) > MAX_REMEMBERED:
                del self._known[next(iter(self._known))]
            if delivery.kind == "decision" and self._approvals.take(delivery):
                continue  # whoever waits for it must not wait for a command that takes its time
            await self._queue.put(delivery)

    async def hand_over(self) -> None:
        """Give them to the handler, for ever."""
        while True:
            delivery = await self._queue.get()
            try:
                if delivery.kind != "decision" or not await self._is_awaited(delivery):
                    await self._give(delivery)
            finally:
                self._queue.task_done()

    async def settle(self, within_s: float) -> None:
        """Wait until what came is handed over, though not for long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._queue.join()

    async def _is_awaited(self, decision: Delivery) -> bool:
        while self._approvals.is_asking:  # noqa: ASYNC110 - the answer is on its way
            await asyncio.sleep(ASKING_S)
        if self._approvals.take(decision):
            return True
        if self._parks:
            self._approvals.park(decision)
        return self._parks

    async def _give(self, delivery: Delivery) -> None:
        for tries in range(1, MAX_TRIES + 1):
            try:
                await self._handler.take(delivery)
            except RefusedForGood as refused:
                self._pusher.acknowledge("undeliverable", delivery.ref, str(refused))
                return
            except NotTaken as failed:
                self._notice(f"{delivery.kind} {delivery.ref}: {failed} (try {tries} of {MAX_TRIES})")
                if tries < MAX_TRIES:
                    await asyncio.sleep(backoff_s(tries))
                    continue
                self._pusher.acknowledge("undeliverable", delivery.ref, str(failed))
            else:
                self._pusher.acknowledge(_TAKEN[delivery.kind], delivery.ref)  # pyright: ignore[reportArgumentType]
            return
