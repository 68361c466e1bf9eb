"""What the processes of rooms look up, as ports: rooms where a time has passed, and verdicts with their outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from ...domain.rooms.context import Timeouts
from ..jobs import JobRequest

PAUSE_S = 600.0
"""Longer than this ago a run's last pause was told before its next one is, however often its harness reports one."""

PAGE = 200
"""Rooms or runs that a sweep looks up at once."""


class DueDriver(Struct, frozen=True):
    """A person who may have held a driver token for too long. The times are never before they got the token."""

    stream_id: int
    room_id: str
    epoch: int
    last_seen: datetime
    last_acted: datetime


class DueRoom(Struct, frozen=True):
    """A room with a request for approval whose time is over."""

    stream_id: int
    room_id: str


class DueRun(Struct, frozen=True):
    """A run without a sign of life. since: of its lease's last renewal, or of its request."""

    stream_id: int
    room_id: str
    run_id: str
    since: datetime


class DueWait(Struct, frozen=True):
    """A running run in whose room nothing happened for long. seq, ts: of the room's last event; ts is RFC 3339."""

    stream_id: int
    room_id: str
    run_id: str
    seq: int
    ts: str


class Due(Protocol):
    """Candidates of the sweeps: at most PAGE of them with a stream above `after`, in that order.

    They are cheap hints, some of them a projection's: the decision looks at the room itself. Raises Unavailable.
    """

    async def drivers(self, now: datetime, timeouts: Timeouts, after: int) -> Sequence[DueDriver]:
        """Persons with a token that a system held before, who are away or idle; also in a room whose projection is
        parked."""
        ...

    async def approvals(self, now: datetime, after: int) -> Sequence[DueRoom]:
        """Rooms whose running run waits for an approval that has expired, and those whose projection is behind, which
        may hide one."""
        ...

    async def runs(self, now: datetime, timeouts: Timeouts, after: int) -> Sequence[DueRun]:
        """Running runs with a lapsed lease, requested ones without a hello. Those of one room are never cut apart."""
        ...

    async def waits(self, now: datetime, timeouts: Timeouts, after: int) -> Sequence[DueWait]:
        """Rooms where a run runs in silence, and of whose last event as a wait nobody was told."""
        ...


class Waits(Protocol):
    """Of which waits for a human the outside was told. Any number of servers may ask at once. Raises Unavailable."""

    async def tell_silence(self, wait: DueWait, request: JobRequest, now: datetime) -> None:
        """Note the silence and put its job into the queue, both or neither; nothing where it is noted already."""
        ...

    async def tell_pause(self, room_id: str, run_id: str, seq: int, now: datetime) -> bool:
        """Note the pause that event `seq` reports; whether it is to be told, which a repeated try of the same is.

        Not told: a report of the pause that was told before, with nothing but reports since, and any within PAUSE_S of
        the last wait of the same run that was told.
        """
        ...


class SaidVerdict(Struct, frozen=True):
    """An event that was a verdict when its job was asked for. payload: None where it was erased. ts: RFC 3339.

    is_settled: whether its outcome is recorded.
    """

    actor_kind: str
    type: str
    version: int
    payload: str | None
    ts: str
    is_settled: bool


class Verdicts(Protocol):
    """Verdicts of rooms."""

    async def verdict(self, room_id: str, seq: int) -> SaidVerdict | None:
        """The event with that seq; None where the room is gone. Raises Unavailable."""
        ...
