"""What the processes of rooms look up, as ports: rooms where a time has passed, and verdicts with their outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from ...domain.rooms.context import Timeouts

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


class Due(Protocol):
    """Candidates of the sweeps: at most PAGE of them with a stream above `after`, in that order.

    They are cheap hints, some of them a projection's: the decision looks at the room itself. Raises Unavailable.
    """

    async def drivers(self, now: datetime, timeouts: Timeouts, after: int) -> Sequence[DueDriver]:
        """Persons with a token that a system held before, who are away or idle."""
        ...

    async def approvals(self, now: datetime, after: int) -> Sequence[DueRoom]:
        """Rooms whose running run waits for an approval that has expired."""
        ...

    async def runs(self, now: datetime, timeouts: Timeouts, after: int) -> Sequence[DueRun]:
        """Running runs with a lapsed lease, requested ones without a hello. Those of one room are never cut apart."""
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
