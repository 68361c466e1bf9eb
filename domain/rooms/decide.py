"""One decision per room command: state, command and context in; events out, or one refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..errors import (
    AlreadyEnded,
    ClientNotAllowed,
    Conflict,
    Forbidden,
    Full,
    HoldsDriver,
    Invalid,
    NotVisible,
    RunNotLive,
    Sealed,
    TooLarge,
)
from ..events import Event, Origin, Recorded, Unstorable
from ..ids import is_room_id
from ..principals import SERVER, Caller, Principal
from .commands import AddMember, CloseRoom, EndRun, OpenRoom, PostMessage, RemoveMember, StartRun
from .events import (
    LimitReached,
    MemberSpec,
    MessagePosted,
    ParticipantJoined,
    ParticipantLeft,
    ParticipantRoleChanged,
    RoomClosed,
    RoomOpened,
    RunEnded,
    RunStarted,
    TurnReported,
)
from .rights import require, standing
from .state import Member, Room, evolve


class Limits(msgspec.Struct, frozen=True):
    """The limits of a room (rooms.md); settings may move them. Sizes in bytes of UTF-8."""

    text_bytes: int = 16 * 1024
    payload_bytes: int = 64 * 1024
    members: int = 20
    events: int = 100_000
    bytes: int = 256 * 1024 * 1024


class Context(msgspec.Struct, frozen=True):
    """What a decision is told of the world: who asks, about which room, where its log stands, the limits.

    version is the last seq; stored_bytes the payload bytes up to it.
    """

    caller: Caller
    room_id: str
    tenant: str
    version: int = 0
    stored_bytes: int = 0
    limits: Limits = Limits()


class NewEvent(msgspec.Struct, frozen=True):
    """An event to append, with what the envelope says beside the payload. `body` wins over the event's own payload."""

    event: Event | Unstorable
    actor: Principal
    actor_role: str | None = None
    run_id: str | None = None
    caused_by: int | None = None
    origin: Origin = "client"
    classes: tuple[str, ...] = ()
    origin_client: str | None = None
    origin_key: str | None = None
    body: Any = None

    def payload(self) -> Any:
        """The JSON-ready payload, before redaction."""
        return self.event.payload() if self.body is None else self.body


class Decision(msgspec.Struct, frozen=True):
    """What to append, whether the stream is sealed with it, and fields for the command's answer."""

    events: tuple[NewEvent, ...] = ()
    seal: bool = False
    answer: dict[str, Any] = {}


def open_room(command: OpenRoom, context: Context) -> Decision:
    """A new room; the caller owns and drives it. Creation needs a group or the system kind (rooms.md, Groups)."""
    caller = context.caller
    may_create = caller.principal.kind == "system" or (
        caller.principal.kind == "human" and (caller.is_member or caller.is_admin)
    )
    if caller.is_cli_client:
        raise ClientNotAllowed("A token of a command-line client may not open rooms; use a token of the console.")
    if not may_create:
        raise Forbidden("Creating rooms needs the members' group; ask your administrator for it.")
    owner = str(caller.principal)
    seen: set[str] = {owner}
    members: list[MemberSpec] = []
    for place, member in enumerate(command.members):
        path = f"$.members[{place}].principal"
        principal = _person(member.principal, path)
        if str(principal) in seen:
            raise Invalid.at(path, "is listed twice, or is you, the owner")
        seen.add(str(principal))
        members.append(MemberSpec(str(principal), member.role, member.approver))
    if len(seen) > context.limits.members:
        raise Full(f"A room has at most {context.limits.members} members.")
    opened = RoomOpened(
        owner=owner,
        driver=owner,
        data_class=command.data_class,
        retention=command.retention,
        members=tuple(members),
        approvals=command.approvals,
        title=command.title,
        repository=command.repository,
    )
    return Decision((_by_caller(opened, context, "owner"),))


def post_message(room: Room, command: PostMessage, context: Context) -> Decision:
    """A chat message, delivered to nobody but those who read."""
    require(room, context.room_id, context.tenant, context.caller, "chat")
    _refuse_sealed(room)
    size = len(command.text.encode())
    if size > context.limits.text_bytes:
        raise TooLarge(f"The text has {size} bytes; at most {context.limits.text_bytes} are taken.")
    if command.caused_by is not None and command.caused_by > context.version:
        raise Invalid.at("$.causedBy", "must be the seq of an event of this room")
    to = tuple(str(Principal.parse(name, f"$.to[{place}]")) for place, name in enumerate(command.to))
    return Decision(
        (_by_caller(MessagePosted(command.text, to), context, _role(room, context), caused_by=command.caused_by),)
    )


def add_member(room: Room, command: AddMember, context: Context) -> Decision:
    """Invite a person, or change their role and flag. An invite never demotes the driver below collaborator."""
    require(room, context.room_id, context.tenant, context.caller, "invite")
    _refuse_sealed(room)
    name = str(_person(command.principal, "principal"))
    have = room.members.get(name)
    role = command.role
    if role == "watcher" and room.driver == name:
        role = "collaborator"
    if have == Member(role, command.approver):
        return Decision()
    if have is not None and have.role == "owner" and role != "owner" and _owners(room) == [name]:
        raise Conflict("A room keeps at least one owner; make somebody else an owner first.")
    if have is None and len(room.members) >= context.limits.members:
        raise Full(f"A room has at most {context.limits.members} members.")
    event = (
        ParticipantJoined(name, role, command.approver)
        if have is None
        else ParticipantRoleChanged(name, role, command.approver)
    )
    return Decision((_by_caller(event, context, _role(room, context)),))


def remove_member(room: Room, command: RemoveMember, context: Context) -> Decision:
    """Remove a member, or leave: everybody may remove themselves."""
    name = str(_person(command.principal, "principal"))
    myself = name == str(context.caller.principal)
    require(room, context.room_id, context.tenant, context.caller, "read" if myself else "invite")
    if context.caller.is_cli_client:
        raise ClientNotAllowed("A token of a command-line client may not leave a room; use a token of the console.")
    _refuse_sealed(room)
    if name not in room.members:
        return Decision()
    if room.driver == name:
        raise HoldsDriver("This member holds the driver token; it must go to somebody else first.")
    if _owners(room) == [name]:
        raise Conflict("A room keeps at least one owner; make somebody else an owner first.")
    return Decision((_by_caller(ParticipantLeft(name), context, _role(room, context)),))


def close_room(room: Room, command: CloseRoom, context: Context) -> Decision:
    """Seal the room. What is still open in it ends first, in the same append."""
    require(room, context.room_id, context.tenant, context.caller, "close")
    _refuse_sealed(room)
    closed = RoomClosed() if command.reason is None else RoomClosed(command.reason)
    return Decision((*_end_run(room, "room_closed"), _by_caller(closed, context, _role(room, context))), seal=True)


def check_start(room: Room, command: None, context: Context) -> Decision:  # noqa: ARG001
    """Refuse a hello before it takes a lease: of another room, of a run that has ended, in a closed room."""
    run_id = _run_of(room, context)
    _refuse_sealed(room)
    if run_id in room.ended_runs:
        raise RunNotLive(f"This run has ended ({room.ended_runs[run_id]}); start a new run.")
    return Decision()


def start_run(room: Room, command: StartRun, context: Context) -> Decision:
    """A bridge's hello, fenced on the lease that it took. The first one registers the run; later ones add nothing.

    Whoever holds the lease found the one before lapsed: a run that is still down as running is lost.
    The answer carries the cursors `afterHarnessSeq` and `afterStatusSeq`.
    """
    check_start(room, None, context)
    run_id = context.caller.principal.id
    if room.run is not None and room.run.run_id == run_id:
        return Decision(answer={"afterHarnessSeq": room.run.events_seq, "afterStatusSeq": room.run.status_seq})
    joined = ParticipantJoined(str(context.caller.principal), command.role)
    started = (_by_server(joined, run_id), _by_server(RunStarted(run_id, command.role), run_id))
    return Decision((*_end_run(room, "lost"), *started), answer={"afterHarnessSeq": 0, "afterStatusSeq": 0})


def end_run(room: Room, command: EndRun, context: Context) -> Decision:
    """A bridge's bye: the sandbox's own claim of why it ended."""
    run_id = _run_of(room, context)
    if run_id in room.ended_runs:
        raise AlreadyEnded(f"This run has ended already ({room.ended_runs[run_id]}).")
    require(room, context.room_id, context.tenant, context.caller, "record")
    return Decision(_end_run(room, command.reason))


def sealing(room: Room, decision: Decision, context: Context, size: Callable[[NewEvent], int]) -> Decision:
    """The decision, and where it crosses a limit of the room, the events that close it (rooms.md, Phases).

    What crosses the limit is stored whole; then the run that it leaves running ends and the room is sealed, all in one
    append.
    """
    if decision.seal or not decision.events:
        return decision
    count = context.version + len(decision.events)
    stored = context.stored_bytes + len(decision.events) * context.limits.payload_bytes
    if stored >= context.limits.bytes:
        stored = context.stored_bytes + sum(size(event) for event in decision.events)
    if count < context.limits.events and stored < context.limits.bytes:
        return decision
    reached = LimitReached("events" if count >= context.limits.events else "bytes")
    left = _after(room, decision.events, context.version)
    closing = (*_end_run(left, "room_closed"), _by_server(reached), _by_server(RoomClosed("limit")))
    return Decision((*decision.events, *closing), seal=True, answer=decision.answer)


def _after(room: Room, events: tuple[NewEvent, ...], version: int) -> Room:
    """The room once these events are stored."""
    for seq, new in enumerate(events, version + 1):
        room = evolve(room, Recorded(seq, new.actor, new.run_id, new.origin_key, new.event))  # pyright: ignore[reportArgumentType]
    return room


def _end_run(room: Room, reason: Any) -> tuple[NewEvent, ...]:
    run = room.run
    if run is None:
        return ()
    events: list[Event] = []
    if run.open_turn is not None:
        events.append(TurnReported(run.run_id, run.open_turn, "failed"))
    events += [RunEnded(run.run_id, reason), ParticipantLeft(f"agent:{run.run_id}")]
    return tuple(_by_server(event, run.run_id) for event in events)


def _run_of(room: Room, context: Context) -> str:
    caller = context.caller
    if standing(room, context.room_id, context.tenant, caller) not in ("run", "ended_run"):
        raise NotVisible
    return caller.principal.id


def _person(text: str, path: str) -> Principal:
    principal = Principal.parse(text, path)
    if principal.kind == "agent" and not is_room_id(principal.id):
        raise Invalid.at(path, "is not a run id")
    if principal.kind != "human":
        raise Invalid.at(path, "only people are members; runs join by their bridge, systems by their token")
    return principal


def _owners(room: Room) -> list[str]:
    return [name for name, member in room.members.items() if member.role == "owner"]


def _role(room: Room, context: Context) -> str | None:
    have = standing(room, context.room_id, context.tenant, context.caller)
    if have == "run":
        return room.run.role if room.run is not None else None
    return have if have in ("watcher", "collaborator", "owner") else None


def _refuse_sealed(room: Room) -> None:
    if room.is_closed:
        raise Sealed("This room is closed; open a new one to go on.")


def _by_caller(event: Event, context: Context, role: str | None, *, caused_by: int | None = None) -> NewEvent:
    principal = context.caller.principal
    run_id = principal.id if principal.kind == "agent" else None
    return NewEvent(event, principal, role, run_id, caused_by)


def _by_server(event: Event, run_id: str | None = None) -> NewEvent:
    return NewEvent(event, SERVER, run_id=run_id, origin="broker")
