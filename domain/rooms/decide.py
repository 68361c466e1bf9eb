"""Opening and closing a room, and the legal hold: state, command and context in; events out, or one refusal."""

from __future__ import annotations

from msgspec import UNSET

from ..errors import ClientNotAllowed, Forbidden, Full, Invalid
from ..principals import Caller
from .acting import allow, by_caller, check_reason, person, refuse_sealed
from .approval_policy import checked_policy
from .commands import CloseRoom, NewMember, OpenRoom, ReleaseHold, SetHold
from .context import Context, Decision, NewEvent
from .events import HoldReleased, HoldSet, MemberSpec, RoomClosed, RoomOpened
from .sealing import settled
from .state import Room


def open_room(command: OpenRoom, context: Context) -> Decision:
    """A new room; the caller owns and drives it. Creation needs a group or the system kind (rooms.md, Groups)."""
    _may_create(context.caller)
    owner = str(context.caller.principal)
    members = _specs(command.members, owner)
    if len(members) >= context.limits.members:
        raise Full(f"A room has at most {context.limits.members} members.")
    opened = RoomOpened(
        owner=owner,
        driver=owner,
        data_class=command.data_class,
        retention=command.retention,
        members=tuple(members),
        approvals={} if command.approvals is UNSET else checked_policy(command.approvals, context.timeouts),
        title=command.title,
        repository=command.repository,
    )
    return Decision((NewEvent(opened, context.caller.principal, "owner"),))


def _may_create(caller: Caller) -> None:
    if caller.is_cli_client:
        raise ClientNotAllowed("A token of a command-line client may not open rooms; use a token of the console.")
    is_known = caller.principal.kind == "human" and (caller.is_member or caller.is_admin)
    if not is_known and caller.principal.kind != "system":
        raise Forbidden("Creating rooms needs the members' group; ask your administrator for it.")


def _specs(members: tuple[NewMember, ...], owner: str) -> list[MemberSpec]:
    specs: list[MemberSpec] = []
    seen = {owner}
    for place, member in enumerate(members):
        path = f"$.members[{place}].principal"
        name = str(person(member.principal, path))
        if name in seen:
            raise Invalid.at(path, "is listed twice, or is you, the owner")
        seen.add(name)
        specs.append(MemberSpec(name, member.role, member.approver))
    return specs


def close_room(room: Room, command: CloseRoom, context: Context) -> Decision:
    """Seal the room. What is still open in it is settled first, in the same append."""
    allow(room, context, "close")
    refuse_sealed(room)
    check_reason(command.reason)
    closed = RoomClosed() if command.reason is None else RoomClosed(command.reason)
    return Decision((*settled(room, context), by_caller(room, closed, context)), seal=True)


def set_hold(room: Room, command: SetHold, context: Context) -> Decision:
    """Stop the retention of the room, be it closed or not. A room that is held already is held for one more reason."""
    allow(room, context, "hold")
    check_reason(command.reason)
    return Decision((by_caller(room, HoldSet(command.reason), context),))


def release_hold(room: Room, command: ReleaseHold, context: Context) -> Decision:
    """Let retention go on, whatever the hold was for. Without a hold there is nothing to release."""
    allow(room, context, "hold")
    check_reason(command.reason)
    return Decision((by_caller(room, HoldReleased(command.reason), context),) if room.is_held else ())
