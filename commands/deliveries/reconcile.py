"""Deliveries without proof of what became of them: asked for where a channel can look up by key, mended where not."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from ...domain.deliveries.decide import Sent, settle
from ...domain.deliveries.state import Delivery
from ..ports import StoredEvent
from .kind import folded
from .ports import Board, Due, Payloads, Rows, Unreadable
from .sending import At, Means, Sender

PAGE = 200

NOT_ARRIVED = "not_arrived"
LOOKED_UP = "looked_up"


class Report(Struct, frozen=True, rename="camel"):
    """examined: entries without proof. proven: the platform has them. absent: it has not, and they may go again.

    lapsed: attempts whose sender is gone, which now count as unknown. left: nobody can tell; those that are dead
    letters are an operator's to replay, the others go on by the rule of the crash window.
    """

    examined: int = 0
    proven: int = 0
    absent: int = 0
    lapsed: int = 0
    left: int = 0


class Reconciler:
    """Runs by hand, beside the lanes: what both do to one delivery is kept apart by its stream."""

    def __init__(self, board: Board, rows: Rows, payloads: Payloads, means: Means) -> None:
        self._board = board
        self._rows = rows
        self._payloads = payloads
        self._means = means
        self._sender = Sender(means, lambda: datetime.now(UTC))

    async def run(self, channel: str | None = None, *, repair: bool = False) -> Report:
        """Look at every delivery in doubt, of one channel or of all. Without `repair` nothing is written."""
        counts = {"examined": 0, "proven": 0, "absent": 0, "lapsed": 0, "left": 0}
        after = 0
        while True:
            page = await self._board.in_doubt(channel, after, PAGE)
            if not page:
                return Report(**counts)
            streams = await self._rows.events_of([due.stream_id for due, _ in page])
            for due, state in page:
                counts["examined"] += 1
                counts[await self._one(due, state, streams.get(due.stream_id, []), repair=repair)] += 1
            after = page[-1][0].stream_id

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
