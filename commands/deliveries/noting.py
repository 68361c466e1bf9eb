"""What others say of deliveries: receipts of platforms and recipients, and ends of links that cancel them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from msgspec import UNSET

from ...domain.decisions import Decision
from ...domain.deliveries.decide import note_receipt
from ...domain.deliveries.operate import cancel
from ...domain.deliveries.state import Delivery
from ...domain.errors import AlreadyEnded
from ...domain.ids import is_conversation_id
from ...domain.principals import Principal
from ...domain.times import stamp
from ..channels.ports import Receipt
from ..ports import Append, EventStore
from .kind import MAX_EVENTS, NewId, folded, rows_of, stream_of

MAX_TRIES = 8
"""Times that a note is decided again because somebody appended first."""

Decide = Callable[[Delivery], Decision]


class Notes:
    """Handlers that take many at once. `now` is this server's clock."""

    def __init__(self, store: EventStore, now: Callable[[], datetime], new_id: NewId) -> None:
        self._store = store
        self._now = now
        self._new_id = new_id

    async def receipts(self, channel: str, receipts: Sequence[Receipt]) -> int:
        """How many of a channel's receipts said something new: forward only, on what was accepted over that channel.

        What is of another channel, or of none, counts as nothing. Raises Unavailable.
        """
        return sum(await asyncio.gather(*(self._receipt(channel, each) for each in receipts)))

    async def cancel(self, ids: Sequence[str], reason: str, actor: Principal) -> int:
        """How many deliveries go out no more; of what has ended already, nothing. reason: a code, such as `unlink`.

        One whose send has begun counts, and is recorded as what it becomes. Raises Unavailable.
        """

        def decide(state: Delivery) -> Decision:
            try:
                return Decision() if state.plan is None else cancel(state, reason, self._now(), actor)
            except AlreadyEnded:
                return Decision()

        return sum(await asyncio.gather(*(self._note(each, decide) for each in ids)))

    async def _receipt(self, channel: str, receipt: Receipt) -> bool:
        delivery_id, _, part = receipt.key.partition(".")
        if not is_conversation_id(delivery_id) or not (part.isascii() and part.isdecimal() and len(part) < 4):
            return False
        at = UNSET if receipt.at is UNSET else stamp(receipt.at.astimezone(UTC))

        def decide(state: Delivery) -> Decision:
            if state.plan is None or state.plan.channel != channel:
                return Decision()
            return note_receipt(state, int(part), receipt.state, self._now(), at)

        return await self._note(delivery_id, decide)

    async def _note(self, delivery_id: str, decide: Decide) -> bool:
        """Whether anything was appended. Of a delivery that there is not, nothing."""
        stream = stream_of(delivery_id)
        for _ in range(MAX_TRIES):
            head = await self._store.head(stream)
            if head is None or head.sealed:
                return False
            events = await self._store.read_for_fold(head.id, 0, MAX_EVENTS)
            decision = decide(folded(events))
            if not decision.events:
                return False
            rows = rows_of(decision, self._new_id).rows
            (outcome,) = await self._store.append([Append(stream, events[-1].seq, rows)])
            if outcome.kind == "appended":
                return True
        return False
