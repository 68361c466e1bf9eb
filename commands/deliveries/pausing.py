"""Channels stopped and let go again by operators of their tenant, as events of the channel's own stream."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from ...domain.channels.pausing import CHANNEL_EVENTS, INITIAL, SCHEMA, ChannelState, evolve, pause, resume
from ...domain.decisions import Decision
from ...domain.errors import NotVisible
from ...domain.principals import Caller
from ..beside import Admit
from ..dispatcher import Dispatcher
from ..mailbox import Answer, Decided
from ..ports import Append, Creation, EventStore, Head
from ..streams import Kind, left_as_it_is
from .kind import NewId, rows_of
from .operators import check_operator, check_reason
from .ports import LaneQueue, Rows
from .watching import ChannelWatch

CHANNEL = "channel"
STREAM = "channel:"

RETENTION_DAYS = 90
"""From its seal on: a channel's stream is never sealed."""

MAX_WOKEN = 1000
"""Lanes woken when a channel goes on; the sweep wakes the rest."""


class PauseChannel(Struct, frozen=True, forbid_unknown_fields=True):
    """Sends nothing over it. until: RFC 3339 with an offset; UNSET: for as long as nobody resumes it."""

    reason: str
    until: Annotated[datetime, Meta(tz=True)] | UnsetType = UNSET


class ResumeChannel(Struct, frozen=True, forbid_unknown_fields=True):
    """Sends over it again."""

    reason: str


CHANNEL_KIND: Kind[ChannelState] = Kind(CHANNEL, SCHEMA, INITIAL, ChannelState, CHANNEL_EVENTS, evolve, left_as_it_is)


class Pausing:
    """Handlers. Who is not in the group gets Forbidden; a channel of another tenant is not there."""

    def __init__(
        self,
        watch: ChannelWatch,
        store: EventStore,
        dispatcher: Dispatcher,
        rows: Rows,
        queue: LaneQueue,
        now: Callable[[], datetime],
        new_id: NewId,
        admit: Admit,
    ) -> None:
        self._watch = watch
        self._store = store
        self._dispatcher = dispatcher
        self._rows = rows
        self._queue = queue
        self._now = now
        self._new_id = new_id
        self._admit = admit

    async def pause(self, caller: Caller, channel: str, command: PauseChannel, key: str | None) -> Answer:
        """200 `{"seq"}`: from then on no send begins but those that were let go within the last second.

        Raises Forbidden, NotVisible, Invalid, KeyReused.
        """
        until = None if command.until is UNSET else command.until.astimezone(UTC)

        def decide(state: ChannelState) -> Decision:
            return pause(state, channel, command.reason, until, self._now(), caller.principal)

        return await self._run(caller, channel, "pause_channel", command, key, decide)

    async def resume(self, caller: Caller, channel: str, command: ResumeChannel, key: str | None) -> Answer:
        """200 `{"seq"}`: what waited is on its way. Raises Forbidden, NotVisible, Invalid, KeyReused."""

        def decide(state: ChannelState) -> Decision:
            return resume(state, channel, command.reason, self._now(), caller.principal)

        answer = await self._run(caller, channel, "resume_channel", command, key, decide)
        lanes = await self._rows.lanes_due(MAX_WOKEN)
        if lanes:
            await self._queue.wake(lanes)
        return answer

    async def _run(
        self,
        caller: Caller,
        channel: str,
        operation: str,
        command: PauseChannel | ResumeChannel,
        key: str | None,
        decide: Callable[[ChannelState], Decision],
    ) -> Answer:
        if not any(each.name == channel for each in await self._watch.channels(caller)):
            raise NotVisible
        check_reason(command.reason)
        stream, admit = f"{STREAM}{caller.tenant}:{channel}", self._admit(caller)
        if await self._store.head(stream) is None:
            # Whoever comes second finds it there; a stream without an event says nothing.
            await self._store.append([Append(stream, 0, create=Creation(CHANNEL, caller.tenant, RETENTION_DAYS))])

        def authorize(_state: ChannelState, _head: Head) -> None:
            check_operator(caller)
            admit()

        def decided(state: ChannelState, _head: Head) -> Decided:
            return rows_of(decide(state), self._new_id)

        idempotency = self._dispatcher.key(caller, operation, stream, key, command, 200)
        return await self._dispatcher.run(CHANNEL_KIND, stream, authorize, decided, key=idempotency)
