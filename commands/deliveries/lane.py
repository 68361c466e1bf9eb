"""A lane's worker: sends what is due, one after another, until the lane is empty or its time is over."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from ...domain.deliveries.lanes import destination_of
from ...domain.errors import MinutebookError
from ..channels.ports import Pushed
from ..ports import StoredEvent
from .ports import Due, Gate, Gates, LaneQueue, Look
from .sending import Means, Sender

BATCH = 32
"""Deliveries read at a time."""

DRAIN_S = 10.0
"""After so much time a lane begins no send any more, and asks to be woken again: others wait for its worker."""

GATE_S = 1.0
"""So long what the gate said holds for deliveries that were read with it."""

SOON_S = 15.0
"""What is due within this time the lane wakes itself for; the sweep finds the rest."""

_NEVER = datetime.min.replace(tzinfo=UTC)

log = structlog.get_logger(__name__)


class LaneWorker:
    """Drains lanes. is_stopping: no send begins from then on, and the one under way comes to its end."""

    def __init__(self, means: Means, gates: Gates, queue: LaneQueue, is_stopping: Callable[[], bool]) -> None:
        self._means = means
        self._gates = gates
        self._queue = queue
        self._is_stopping = is_stopping

    async def drain(self, lane: str) -> None:
        """Send what is due. Raises nothing: what is left is found by the sweep."""
        try:
            drain = _Drain(self._means, self._gates, lane, self._is_stopping)
            next_s = await drain.run()
            if drain.siblings:
                await self._queue.wake(drain.siblings)
            if next_s is not None:
                await self._queue.wake([lane], next_s)
        except MinutebookError as error:
            log.warning("a lane stopped; the sweep goes on with it", lane=lane, error=error.code)
        except Exception as error:  # noqa: BLE001 - the engine must not try a lane again: it has no jitter
            log.warning("a lane failed; the sweep goes on with it", lane=lane, error=type(error).__name__)


class _Drain:
    """One drain of one lane."""

    def __init__(self, means: Means, gates: Gates, lane: str, is_stopping: Callable[[], bool]) -> None:
        self._means = means
        self._gates = gates
        self._lane = lane
        self._destination = destination_of(lane)
        self._is_stopping = is_stopping
        self._time = asyncio.get_running_loop().time
        self._until = self._time() + DRAIN_S
        self._told_at = (_NEVER, 0.0)
        self._gate_until = self._until
        self._waiting: deque[tuple[Due, list[StoredEvent]]] = deque()
        self._sender = Sender(means, self._now)
        self._moved = -1
        self._is_shut = False
        self._was_failing = False
        self._wait_s: float | None = None
        self.siblings: list[str] = []
        """The other lanes of a destination that is there again."""

    async def run(self) -> float | None:
        """In how many seconds to wake the lane again; None where somebody else does."""
        while True:
            if self._is_stopping() or self._is_shut:
                return None
            if self._time() >= self._until:
                return 0
            self._ask_again()
            if not self._waiting:
                if self._wait_s is not None:
                    return self._wait_s
                if self._moved == self._sender.appended:
                    return None  # rows that are due, and streams of which nothing is: the doctor's to see
                self._moved = self._sender.appended
                look = await self._fetch()
                if not look.due:
                    return self._next_s(look)
                if not self._waiting:
                    continue
            due, events = self._waiting.popleft()
            pushed = await self._sender.deliver(due, events)
            if pushed is not None:
                await self._tell(due, pushed)

    def _ask_again(self) -> None:
        """After slow sends, what waits behind them is asked for again, with the gate."""
        if self._waiting and self._time() >= self._gate_until:
            self._waiting.clear()
            self._wait_s, self._moved = None, -1

    async def _fetch(self) -> Look:
        """Read the next deliveries, as many as the destination's breaker and the channel's pace let go."""
        look = await self._means.rows.look(self._lane, BATCH)
        self._told_at = (look.now, self._time())
        due = list(look.due)
        if not due:
            return look
        terms = self._means.terms(due[0].channel)
        gate = await self._gates.pass_(due[0].tenant, due[0].channel, self._destination, terms.policy.lease_s)
        self._gate_until = self._time() + GATE_S
        due = await self._let_go(gate, due, terms.rate)
        streams = await self._means.rows.events_of([each.stream_id for each in due])
        self._waiting.extend((each, streams[each.stream_id]) for each in due if each.stream_id in streams)
        self._is_shut = self._is_shut or (not self._waiting and self._wait_s is None)
        return look

    async def _let_go(self, gate: Gate, due: list[Due], rate: float | None) -> list[Due]:
        self._was_failing = gate.failures > 0
        match gate.state:
            case "shut" | "paused":
                return []
            case "probe":
                # Nothing else goes before its answer is known.
                self._until = self._time() + DRAIN_S
                return due[:1]
            case "open" if rate is not None:
                granted, wait_s = await self._gates.take(due[0].channel, rate, len(due))
                self._wait_s = wait_s if granted < len(due) else None
                return due[:granted]
            case "open":
                return due

    async def _tell(self, due: Due, pushed: Pushed) -> None:
        """The destination's breaker hears of every failure, and of the first success after one."""
        is_alive = pushed.outcome in ("accepted", "permanent")
        if is_alive and not self._was_failing:
            return
        asked_s = float(pushed.retry_after_s) if isinstance(pushed.retry_after_s, float | int) else None
        may_go = await self._gates.told(due.channel, self._destination, is_alive=is_alive, wait_s=asked_s)
        self._is_shut = self._is_shut or not may_go
        if is_alive:
            lanes = self._means.terms(due.channel).lanes
            self.siblings = [lane for n in range(lanes) if (lane := f"{self._destination}/{n}") != self._lane]
        self._was_failing = not is_alive

    def _next_s(self, look: Look) -> float | None:
        if look.next_at is None:
            return None
        next_s = (look.next_at - look.now).total_seconds()
        return max(0.0, next_s) if next_s <= SOON_S else None

    def _now(self) -> datetime:
        """The database's clock, as far as this process knows it."""
        told, at = self._told_at
        return told + timedelta(seconds=self._time() - at)
