"""Inviting people, changing their roles, removing them."""

from __future__ import annotations

from ..errors import ClientNotAllowed, Conflict, Full, HoldsDriver
from .acting import allow, by_caller, person, refuse_sealed
from .commands import AddMember, RemoveMember
from .context import Context, Decision
from .events import ParticipantJoined, ParticipantLeft, ParticipantRoleChanged
from .state import Member, Room


def add_member(room: Room, command: AddMember, context: Context) -> Decision:
    """Invite a person, or change their role and flag. An invite never demotes the driver below collaborator."""
    allow(room, context, "invite")
    refuse_sealed(room)
    name = str(person(command.principal, "principal"))
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
    return Decision((by_caller(room, event, context),))


def remove_member(room: Room, command: RemoveMember, context: Context) -> Decision:
    """Remove a member, or leave: everybody may remove themselves."""
    name = str(person(command.principal, "principal"))
    myself = name == str(context.caller.principal)
    allow(room, context, "read" if myself else "invite")
    if context.caller.is_cli_client:
        raise ClientNotAllowed("A token of a command-line client may not leave a room; use a token of the console.")
    refuse_sealed(room)
    if name not in room.members:
        return Decision()
    if room.driver == name:
        raise HoldsDriver("This member holds the driver token; it must go to somebody else first.")
    if _owners(room) == [name]:
        raise Conflict("A room keeps at least one owner; make somebody else an owner first.")
    return Decision((by_caller(room, ParticipantLeft(name), context),))


def _owners(room: Room) -> list[str]:
    return [name for name, member in room.members.items() if member.role == "owner"]
