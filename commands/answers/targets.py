"""Where an answer goes, as its asker may know it: by channel and state, never an address."""

from __future__ import annotations

from msgspec import Struct

from ...domain.answers.events import SkippedTarget
from ...domain.deliveries.state import Status
from ..deliveries.ports import Hashes
from ..ports import EventStore
from .kind import answer_id_of, load
from .ports import Recipients


class Delivered(Struct, frozen=True, rename="camel"):
    """One destination. state: of its delivery; `planned` until that is there."""

    delivery_id: str
    channel: str
    state: Status


class Shown(Struct, frozen=True):
    """Both empty until the turn has ended, and where its answer goes nowhere else."""

    intended: tuple[Delivered, ...] = ()
    skipped: tuple[SkippedTarget, ...] = ()


class Targets:
    """One per process."""

    def __init__(self, store: EventStore, recipients: Recipients, hashes: Hashes) -> None:
        self._store = store
        self._recipients = recipients
        self._hashes = hashes

    async def of(self, tenant: str, conversation_id: str, envelope_id: str) -> Shown:
        """Those of the answer to a message, which is the caller's own. Raises Unavailable."""
        state, _ = await load(self._store, answer_id_of(self._hashes, tenant, conversation_id, envelope_id))
        if state.resolved is None:
            return Shown()
        states = await self._recipients.states([each.delivery_id for each in state.resolved.intended])
        return Shown(
            tuple(
                Delivered(each.delivery_id, each.channel, states.get(each.delivery_id, "planned"))
                for each in state.resolved.intended
            ),
            state.resolved.skipped,
        )
