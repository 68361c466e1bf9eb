"""One delivery's turn in its lane: claim, look again, send, record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

import structlog
from msgspec import UNSET, Struct

from ...domain.decisions import Decision
from ...domain.deliveries.decide import CHANNEL_GONE, Sent, claim, end_gone, settle
from ...domain.deliveries.events import AttemptStarted
from ...domain.deliveries.operate import cancel
from ...domain.deliveries.state import Delivery, evolve
from ...domain.errors import Damaged
from ...domain.events import Event, Recorded
from ...domain.principals import SERVER
from ..channels.ports import Channel, Pushed
from ..ports import Append, EventStore, StoredEvent
from ..signals import SILENCE, Signals
from .kind import NewId, folded, rows_of, stream_of
from .planning import ChannelTerms, Terms
from .ports import Bound, Codec, Due, Encoded, Payload, Payloads, Permit, Rows, Unreadable

MAX_TRIES = 8
"""Times that an end is decided again because somebody appended first."""

GONE = "payload_gone"
HANG_S = 2.0
"""So long after its timeout a channel that has not come back is cut off."""

log = structlog.get_logger(__name__)

Draw = Callable[[], float]
"""Uniform in [0, 1)."""


class Sealed(Protocol):
    """Payloads at rest, one at a time."""

    async def of(self, key: str) -> tuple[Bound, Encoded] | None:
        """Of a delivery, by its id; None where there is none."""
        ...


class Heads(Protocol):
    """The newest version of a stream."""

    async def of(self, key: int) -> int | None:
        """Of a stream, by its id; None where it is gone."""
        ...


class Means(Struct, frozen=True):
    """What sending needs. new_id: ULIDs."""

    store: EventStore
    rows: Rows
    heads: Heads
    payloads: Payloads
    sealed: Sealed
    codec: Codec
    channels: Mapping[str, Channel]
    terms: Terms
    permit: Permit
    draw: Draw
    new_id: NewId
    signals: Signals = SILENCE


class At(Struct):
    """A delivery as it was read or written last."""

    due: Due
    state: Delivery
    version: int

    def add(self, events: list[Event]) -> None:
        """What was appended behind it."""
        for event in events:
            self.version += 1
            self.state = evolve(self.state, Recorded(self.version, SERVER, None, None, event))  # pyright: ignore[reportArgumentType]


class Sender:
    """Sends parts of one delivery until it has ended, waits, or somebody else has it.

    Every append is behind the version that it was decided on: of two workers with one delivery, one begins the attempt,
    and only the attempt that is open gets an end.
    """

    def __init__(self, means: Means, now: Callable[[], datetime]) -> None:
        """now: the database's clock, as far as this process knows it."""
        self._means = means
        self._now = now
        self.appended = 0
        """Appends that were stored."""
        self._is_sent = False

    async def deliver(self, due: Due, events: list[StoredEvent]) -> Pushed | None:
        """All that is due of a delivery. Answers how the last send went, None where nothing was sent."""
        try:
            at = At(due, folded(events), events[-1].seq)
        except (Damaged, IndexError):
            log.warning("a delivery cannot be read", delivery=due.delivery_id)
            return None
        terms, last = self._means.terms(due.channel), None
        while True:
            started = await self._claim(at, terms)
            if started is None:
                return last
            self._is_sent, began = False, time.monotonic()
            pushed = await self._send(at, started, terms)
            seconds = time.monotonic() - began
            await self._record(at, started.n, pushed, terms, seconds)
            if self._is_sent:
                last = pushed  # what never came to a socket says nothing of the destination
            if at.state.status != "planned" or pushed.outcome == "retry":
                return last

    async def expire(self, due: Due, events: list[StoredEvent]) -> None:
        """Say what time has made of a delivery, and send nothing."""
        state = folded(events)
        decision = claim(state, self._now(), self._means.terms(due.channel).policy, self._means.draw())
        if not any(isinstance(new.event, AttemptStarted) for new in decision.events):
            await self.append(At(due, state, events[-1].seq), decision)

    async def end_gone(self, due: Due, events: list[StoredEvent]) -> None:
        """End a delivery whose channel there is no more."""
        state = folded(events)
        decision = end_gone(state, self._now(), self._means.terms(due.channel).policy, self._means.draw())
        await self.append(At(due, state, events[-1].seq), decision)

    async def _claim(self, at: At, terms: ChannelTerms) -> AttemptStarted | None:
        """The attempt that was begun here; None where there is none to begin, or somebody was quicker."""
        state = at.state
        if state.plan is not None and not state.is_ended and state.status != "attempting":
            refused = await self._means.permit(state.plan)
            if refused is not None:
                await self.append(at, cancel(state, refused, self._now(), SERVER))
                return None
        decision = claim(state, self._now(), terms.policy, self._means.draw(), at.due.behind)
        if not await self.append(at, decision):
            return None
        last = decision.events[-1].event if decision.events else None
        return last if isinstance(last, AttemptStarted) else None

    async def _send(self, at: At, started: AttemptStarted, terms: ChannelTerms) -> Pushed:
        channel = self._means.channels.get(at.due.channel)
        if channel is None or not channel.can.push:
            return Pushed("permanent", CHANNEL_GONE)
        try:
            payload, version = await self._payload(at, started.part)
        except Unreadable as error:
            return Pushed("permanent", error.reason)
        # Whatever was appended meanwhile (a cancellation) comes first: from here to the socket nothing waits.
        if not await self._is_ours(at, started.n):
            return Pushed("unknown", "withdrawn")
        timeout_s = terms.policy.timeout_s
        try:
            async with asyncio.timeout(timeout_s + HANG_S):
                part = payload.parts[started.part - 1]
                self._is_sent = True
                return await channel.push(payload.address, part, version, started.key, timeout_s)
        except TimeoutError:
            return Pushed("unknown", "timeout")
        except Exception as error:  # noqa: BLE001 - a channel that breaks its promise may have sent
            log.warning("a channel raised", channel=at.due.channel, error=type(error).__name__)
            return Pushed("unknown", "failed")

    async def _is_ours(self, at: At, n: int) -> bool:
        """Whether attempt n is to be sent still; what was appended meanwhile and says nothing else (a receipt of an
        earlier attempt) is read. The last thing that is waited for is the head of its stream."""
        for _ in range(MAX_TRIES):
            if await self._means.heads.of(at.due.stream_id) == at.version:
                return True
            if not await self._read_on(at):
                return False
            attempt = at.state.attempt
            if at.state.is_withdrawn or attempt is None or attempt.n != n or not attempt.is_open:
                return False
        return False

    async def _read_on(self, at: At) -> bool:
        """Whether something was appended meanwhile."""
        events = (await self._means.rows.events_of([at.due.stream_id])).get(at.due.stream_id, [])
        if not events or events[-1].seq == at.version:
            return False
        at.state, at.version = folded(events), events[-1].seq
        return True

    async def _payload(self, at: At, part: int) -> tuple[Payload, int]:
        """The payload and the version of its form. Raises Unreadable."""
        found = await self._means.sealed.of(at.due.delivery_id)
        if found is None:
            raise Unreadable(GONE)
        bound, encoded = found
        payload = self._means.codec.decode(bound, encoded)
        if len(payload.parts) < part:
            raise Unreadable("payload_damaged")
        return payload, bound.version

    async def _record(self, at: At, n: int, pushed: Pushed, terms: ChannelTerms, seconds: float) -> None:
        """Record the end of attempt n, whatever was appended meanwhile; nothing where somebody else has done so."""
        sent = Sent(
            "withdrawn" if pushed.reason == "withdrawn" else pushed.outcome,
            pushed.reason,
            None if pushed.retry_after_s is UNSET else pushed.retry_after_s,
        )
        for _ in range(MAX_TRIES):
            decision = settle(at.state, n, sent, self._now(), terms.policy, self._means.draw())
            if sent.outcome == "withdrawn" and not at.state.is_withdrawn:
                decision = Decision()  # read again below: what was appended meanwhile says what to do
            if decision.events and await self.append(at, decision):
                self._tell(at, sent, seconds)
                return
            if not await self._read_on(at):
                return

    async def append(self, at: At, decision: Decision) -> bool:
        """Whether it is stored; at an empty one there is nothing to store. Raises Unavailable."""
        if not decision.events:
            return False
        decided = rows_of(decision, self._means.new_id)
        item = Append(stream_of(at.due.delivery_id), at.version, decided.rows)
        (outcome,) = await self._means.store.append([item])
        if outcome.kind != "appended":
            return False
        self.appended += 1
        at.add([new.event for new in decision.events if isinstance(new.event, Event)])
        return True

    def _tell(self, at: At, sent: Sent, seconds: float) -> None:
        channel, tell = at.due.channel, self._means.signals.tell
        correlation_id = "" if at.state.plan is None else at.state.plan.correlation_id
        tell("delivery_attempt", channel, sent.outcome, sent.reason, correlation_id=correlation_id, seconds=seconds)
        if at.state.status == "waiting":
            tell("retry", channel, sent.outcome, sent.reason, correlation_id=correlation_id)
        if at.state.status == "dead":
            tell("dead_letter", channel, "dead", at.state.reason, correlation_id=correlation_id)
