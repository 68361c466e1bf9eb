"""The directory of rooms: one row a room, with its folded state for snapshots and lists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Literal

import msgspec

from ..domain.events import Opaque, Recorded
from ..domain.principals import Principal
from ..domain.rooms.events import ROOM_EVENTS
from ..domain.rooms.state import INITIAL, Room, evolve
from ..domain.times import stamp
from ..domain.visibility import cleared
from .ports import Folded, LogEvent, StreamRef

Phase = Literal["Open", "Active", "Idle", "AwaitingHuman", "Closed"]


class RoomList:
    """See projections.ports.Projection."""

    name: ClassVar[str] = "room_list"
    kinds: ClassVar[tuple[str, ...]] = ("room",)
    columns: ClassVar[tuple[str, ...]] = (
        "stream_id",
        "room_id",
        "tenant",
        "last_seq",
        "last_ts",
        "sealed",
        "people",
        "state",
    )
    key: ClassVar[tuple[str, ...]] = ("stream_id",)
    state_column: ClassVar[str | None] = "state"
    blank_assignments: ClassVar[dict[str, str]] = {}

    def fold(self, stream: StreamRef, state: str | None, events: Sequence[LogEvent]) -> Folded:
        """The room's one row after `events`."""
        room = INITIAL if state is None else msgspec.json.decode(state, type=Room)
        for event in events:
            room = apply(room, event)
        last = events[-1]
        text = msgspec.json.encode(room).decode()
        row = (stream.id, stream.local_id, stream.tenant, last.seq, last.ts, room.is_closed, list(room.members), text)
        return Folded([row])


def apply(room: Room, event: LogEvent) -> Room:
    """One stored event further. Raises Damaged where it cannot be read."""
    decoded = (
        Opaque(event.type, event.version)
        if event.payload is None
        else ROOM_EVENTS.decode(event.type, event.version, event.payload)
    )
    actor = Principal(event.actor_kind, event.actor_id)  # pyright: ignore[reportArgumentType]
    recorded = Recorded(event.seq, actor, event.run_id, event.origin_key, decoded, tuple(event.classes))
    return evolve(room, recorded)


def phase(room: Room, last_ts: datetime, now: datetime, labels: frozenset[str], waiting_s: float) -> Phase:
    """The phase as it is derived when read: from the run, what pends, and how long the room has been silent.

    labels: the viewer's clearance. What pends on a request that they may not see waits for somebody else (law 13).
    waiting_s: the silence of a running run after which the room waits for a human.
    """
    if room.is_closed:
        return "Closed"
    if room.run is not None:
        is_silent = now - last_ts >= timedelta(seconds=waiting_s)
        return "AwaitingHuman" if is_silent or _pends(room, now, labels) else "Active"
    return "Idle" if any(record.phase == "ended" for record in room.runs.values()) else "Open"


def _pends(room: Room, now: datetime, labels: frozenset[str]) -> bool:
    """Whether a request waits; one whose time is over waits for nobody, be it that no sweep came to it yet."""
    waiting = room.approvals.pending.values()
    return any(stamp(now) < asked.expires_at and cleared(asked.classes, labels) for asked in waiting)
