"""Deliveries without proof of what became of them: asked for where a channel can look up by key, mended where not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ...domain.deliveries.decide import Sent, settle
from ...domain.deliveries.state import Delivery
from ...domain.errors import Unavailable
from ...domain.principals import Caller
from ..beside import Admit
from ..channels.ports import Channel
from ..ports import StoredEvent
from .kind import folded
from .operators import check_operator, place_of
from .ports import Board, Due, Payloads, Rows, Unreadable
from .sending import At, Means, Sender

PAGE = 200

MAX_EXAMINED = 1000
"""Deliveries of one run; a cursor says where the next one goes on."""

RUN_S = 8.0
"""After so long a run looks at no further one."""

RETRY_AFTER_MS = 2000

NOT_ARRIVED = "not_arrived"
LOOKED_UP = "looked_up"


class ReconcileDeliveries(Struct, frozen=True, forbid_unknown_fields=True):
    """Looks at what is in doubt, of one channel or of all. repair: writes down what it finds. cursor: of the answer
    before."""

    channel: str | UnsetType = UNSET
    repair: bool = False
    cursor: str | UnsetType = UNSET


class Report(Struct, frozen=True, rename="camel", omit_defaults=True):
    """examined: entries without proof. proven: the platform has them. absent: it has not, and they may go again.

    lapsed: attempts whose sender is gone, which now count as unknown. left: nobody can tell; those that are dead
    letters are an operator's to replay, the others go on by the rule of the crash window. next_cursor: where the next
    run goes on, UNSET at the end.
    """

    examined: int
    proven: int
    absent: int
    lapsed: int
    left: int
    next_cursor: str | UnsetType = UNSET


class Reconciler:
    """Runs by hand, beside the lanes: what both do to one delivery is kept apart by its stream."""

    def __init__(self, board: Board, rows: Rows, payloads: Payloads, means: Means) -> None:
        self._board = board
        self._rows = rows
        self._payloads = payloads
        self._means = means
        self._sender = Sender(means, lambda: datetime.now(UTC))

    async def run(self, tenant: str, channel: str | None = None, after: int = 0, *, repair: bool = False) -> Report:
        """Look at deliveries in doubt from behind a place. Without `repair` nothing is written."""
        counts: dict[str, int] = dict.fromkeys(("examined", "proven", "absent", "lapsed", "left"), 0)
        until = time.monotonic() + RUN_S
        while counts["examined"] < MAX_EXAMINED:
            page = await self._board.in_doubt(tenant, channel, after, PAGE)
            if not page:
                return _report(counts)
            streams = await self._rows.events_of([due.stream_id for due, _ in page])
            for due, state in page:
                if time.monotonic() > until:
                    return _report(counts, after)
                counts["examined"] += 1
                counts[await self._one(due, state, streams.get(due.stream_id, []), repair=repair)] += 1
                after = due.stream_id
        return _report(counts, after)

    async def _one(self, due: Due, state: str, events: list[StoredEvent], *, repair: bool) -> str:
        if not events:
            return "left"
        delivery = folded(events)
        if state == "attempting":
            if repair:
                await self._sender.expire(due, events)
            return "lapsed"
        found = await self._looked_up(due, delivery)
        if found is None:
            return "left"
        if repair and delivery.attempt is not None:
            sent = Sent("accepted", LOOKED_UP) if found else Sent("retry", NOT_ARRIVED)
            policy = self._means.terms(due.channel).policy
            decision = settle(delivery, delivery.attempt.n, sent, datetime.now(UTC), policy, self._means.draw())
            await self._sender.append(At(due, delivery, events[-1].seq), decision)
        return "proven" if found else "absent"

    async def _looked_up(self, due: Due, delivery: Delivery) -> bool | None:
        channel = self._means.channels.get(due.channel)
        if channel is None or not channel.can.look_up or delivery.attempt is None or delivery.plan is None:
            return None
        held = (await self._payloads.get([due.delivery_id])).get(due.delivery_id)
        if held is None:
            return None
        try:
            payload = self._means.codec.decode(*held)
        except Unreadable:
            return None
        return await channel.look_up(payload.address, f"{due.delivery_id}.{delivery.attempt.part}")


def _report(counts: Mapping[str, int], after: int | None = None) -> Report:
    return msgspec.convert({**counts, **({} if after is None else {"nextCursor": str(after)})}, Report)


class Reconciling:
    """Handler: one run at a time in a process, with channels that are open only meanwhile."""

    def __init__(
        self,
        board: Board,
        rows: Rows,
        payloads: Payloads,
        means: Means,
        opened: Callable[[], AbstractAsyncContextManager[Mapping[str, Channel]]],
        admit: Admit,
    ) -> None:
        self._board = board
        self._rows = rows
        self._payloads = payloads
        self._means = means
        self._opened = opened
        self._admit = admit
        self._is_running = False

    async def run(self, caller: Caller, command: ReconcileDeliveries) -> Report:
        """Of the caller's tenant. Raises Forbidden, InvalidCursor, RateLimited, and Unavailable while another runs."""
        check_operator(caller)
        self._admit(caller)()
        after = 0 if command.cursor is UNSET else place_of(command.cursor)
        if self._is_running:
            raise Unavailable("Another reconciliation is under way; try again.", retryAfterMs=RETRY_AFTER_MS)
        self._is_running = True
        try:
            async with self._opened() as channels:
                means = msgspec.structs.replace(self._means, channels=channels)
                reconciler = Reconciler(self._board, self._rows, self._payloads, means)
                channel = None if command.channel is UNSET else command.channel
                return await reconciler.run(caller.tenant, channel, after, repair=command.repair)
        finally:
            self._is_running = False
