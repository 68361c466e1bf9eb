"""The state of a room, and how each event moves it."""

from __future__ import annotations

from typing import Literal, assert_never

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ..events import Opaque, Recorded, Unstorable
from .events import (
    DataClass,
    HarnessReported,
    LimitReached,
    MessagePosted,
    ParticipantJoined,
    ParticipantLeft,
    ParticipantRoleChanged,
    PayloadErased,
    Role,
    RoomClosed,
    RoomOpened,
    RunEnded,
    RunStarted,
    StoredRoomEvent,
    ToolCalled,
    ToolReturned,
    TurnReported,
)

SCHEMA = "room.1"
"""Names the shape of Room in snapshots; a snapshot of another shape is ignored and the log is read instead."""

MAX_OPEN_CALLS = 256
"""Tool calls of a run that are remembered until their result comes; the oldest is forgotten first."""

ItemStream = Literal["events", "status"]
"""The two numbered streams of a bridge (http.md)."""


class Member(Struct, frozen=True):
    """A person with a role of their own in the room."""

    role: Role
    approver: bool = False


class Run(Struct, frozen=True):
    """The running run: how far its two item streams are stored, its open turn, its open calls (callId to tool)."""

    run_id: str
    role: str
    events_seq: int = 0
    status_seq: int = 0
    open_turn: str | None = None
    calls: dict[str, str] = {}


class Room(Struct, frozen=True):
    """A room as its events left it. Collections are never changed in place.

    members: people with a role, the owner among them. present: principals that joined and did not leave.
    ended_runs: every run that is over, with its reason.
    """

    owner: str = ""
    driver: str = ""
    driver_epoch: int = 0
    data_class: DataClass = "internal"
    retention: str = ""
    title: str | None = None
    repository: str | None = None
    approvals: dict[str, object] = {}
    members: dict[str, Member] = {}
    present: tuple[str, ...] = ()
    run: Run | None = None
    ended_runs: dict[str, str] = {}
    is_open: bool = False
    is_closed: bool = False


INITIAL = Room()
"""Before the first event: a room that does not exist."""


def evolve(room: Room, recorded: Recorded[StoredRoomEvent]) -> Room:  # noqa: C901, PLR0911, PLR0912 - one case an event
    """The next state. Total: it validates nothing and raises for no recorded event."""
    event = recorded.event
    match event:
        case RoomOpened():
            return _opened(room, event)
        case RoomClosed():
            return replace(room, is_open=False, is_closed=True)
        case ParticipantJoined():
            return _joined(room, event)
        case ParticipantRoleChanged():
            return replace(room, members={**room.members, event.principal: Member(event.role, event.approver)})
        case ParticipantLeft():
            return replace(
                room,
                members={name: member for name, member in room.members.items() if name != event.principal},
                present=tuple(name for name in room.present if name != event.principal),
            )
        case RunStarted():
            return replace(room, run=Run(event.run_id, event.role))
        case RunEnded():
            gone = room.run is not None and room.run.run_id == event.run_id
            return replace(
                room,
                run=None if gone else room.run,
                ended_runs={**room.ended_runs, event.run_id: event.reason},
            )
        case TurnReported():
            run = _advanced(room, recorded)
            open_turn = event.turn_id if event.phase == "started" else None
            return room if run is None else replace(room, run=replace(run, open_turn=open_turn))
        case ToolCalled():
            run = _advanced(room, recorded)
            return room if run is None else replace(room, run=_with_call(run, event))
        case ToolReturned():
            run = _advanced(room, recorded)
            return room if run is None else replace(room, run=_without_call(run, event))
        case MessagePosted() | HarnessReported() | Unstorable() | Opaque():
            # An item that was erased, or that this version does not know, has its number all the same.
            run = _advanced(room, recorded)
            return room if run is None else replace(room, run=run)
        case LimitReached() | PayloadErased():
            return room
        case _:
            assert_never(event)


def _opened(room: Room, event: RoomOpened) -> Room:
    people = {member.principal: Member(member.role, member.approver) for member in event.members}
    people[event.owner] = Member("owner", people[event.owner].approver if event.owner in people else False)
    return replace(
        room,
        owner=event.owner,
        driver=event.driver,
        driver_epoch=1,
        data_class=event.data_class,
        retention=event.retention,
        title=None if event.title is UNSET else event.title,
        repository=None if event.repository is UNSET else event.repository,
        approvals=event.approvals,
        members=people,
        present=tuple(people),
        is_open=True,
    )


def _joined(room: Room, event: ParticipantJoined) -> Room:
    present = room.present if event.principal in room.present else (*room.present, event.principal)
    if event.principal.startswith("agent:"):
        return replace(room, present=present)
    approver = False if event.approver is UNSET else event.approver
    role: Role = event.role if event.role in ("watcher", "collaborator", "owner") else "watcher"  # pyright: ignore[reportAssignmentType]
    return replace(room, present=present, members={**room.members, event.principal: Member(role, approver)})


def _advanced(room: Room, recorded: Recorded[StoredRoomEvent]) -> Run | None:
    """The running run with its cursor at this item; None where the event is not one of its numbered items."""
    run = room.run
    if run is None or recorded.origin_key is None or recorded.run_id != run.run_id:
        return None
    stream, _, number = recorded.origin_key.partition(":")
    match stream:
        case "events" if number.isdecimal():
            return replace(run, events_seq=int(number))
        case "status" if number.isdecimal():
            return replace(run, status_seq=int(number))
        case _:
            return None


def _with_call(run: Run, event: ToolCalled) -> Run:
    calls = {**run.calls, event.call_id: event.tool}
    if len(calls) > MAX_OPEN_CALLS:
        del calls[next(iter(calls))]
    return replace(run, calls=calls)


def _without_call(run: Run, event: ToolReturned) -> Run:
    if event.call_id not in run.calls:
        return run
    return replace(run, calls={call: tool for call, tool in run.calls.items() if call != event.call_id})
