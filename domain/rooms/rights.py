"""Who may do what in a room: the one table, used by every command and query (rooms.md, Roles and rights)."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from ..errors import ClientNotAllowed, Forbidden, NotVisible, RunNotLive
from ..principals import Caller
from .events import Role
from .state import Room

Action = Literal["read", "chat", "invite", "close", "export", "record"]
"""read: see and follow. chat: post to people. invite: add, change and remove members. close: seal the room.
export: take the log with its hash fields. record: push a run's items."""

Standing = Literal["stranger", "watcher", "collaborator", "owner", "run", "ended_run", "system"]
"""What a caller is to a room, after groups, membership and tokens are looked at."""

RIGHTS: dict[Action, frozenset[Standing]] = {
    "read": frozenset({"watcher", "collaborator", "owner", "run", "system"}),
    "chat": frozenset({"collaborator", "owner", "run", "system"}),
    "invite": frozenset({"owner", "system"}),
    "close": frozenset({"owner", "system"}),
    "export": frozenset({"owner"}),
    "record": frozenset({"run"}),
}

CLI_CLIENT_ACTIONS: frozenset[Action] = frozenset({"read", "chat"})
"""What a token of a command-line client may do, whoever holds it: a local agent could hold it too."""

OPEN_ROOM_ACTIONS: frozenset[Action] = frozenset({"chat", "invite", "close", "record"})
"""What nobody may do once the room is closed: its stream is sealed."""

_RANK: dict[Role, int] = {"watcher": 0, "collaborator": 1, "owner": 2}


class Verdict(NamedTuple):
    """Whether an action is allowed, and a sentence on why."""

    allowed: bool
    reason: str


def standing(room: Room, room_id: str, tenant: str, caller: Caller) -> Standing:
    """What `caller` is to the room `room_id` of `tenant`. Another tenant's caller is always a stranger."""
    if caller.tenant != tenant or not (room.is_open or room.is_closed):
        return "stranger"
    match caller.principal.kind:
        case "system":
            return "system"
        case "agent":
            if caller.room_id != room_id:
                return "stranger"
            live = room.run is not None and room.run.run_id == caller.principal.id
            return "run" if live else "ended_run"
        case "human":
            return _human_standing(room, caller)


def _human_standing(room: Room, caller: Caller) -> Standing:
    if caller.is_admin:
        return "owner"
    member = room.members.get(str(caller.principal))
    roles: list[Role] = [] if member is None else [member.role]
    if caller.is_member:
        roles.append("watcher")
    return max(roles, key=lambda role: _RANK[role]) if roles else "stranger"


def decide_right(room: Room, room_id: str, tenant: str, caller: Caller, action: Action) -> Verdict:
    """The answer for `explain` and `you.can`: the table's, and that nothing is appended to a closed room.

    `require` leaves the second to the decision, whose refusal says that the room is closed, not that the caller may
    not.
    """
    verdict = _of_table(room, room_id, tenant, caller, action)
    if verdict.allowed and room.is_closed and action in OPEN_ROOM_ACTIONS:
        return Verdict(False, "the room is closed")
    return verdict


def _of_table(room: Room, room_id: str, tenant: str, caller: Caller, action: Action) -> Verdict:
    have = standing(room, room_id, tenant, caller)
    is_audit = caller.is_auditor and caller.tenant == tenant and action in ("read", "export") and have != "ended_run"
    if not is_audit and have not in RIGHTS[action]:
        return Verdict(False, f"a {have.replace('_', ' ')} may not {action}")
    if caller.is_cli_client and action not in CLI_CLIENT_ACTIONS:
        return Verdict(False, "a token of a command-line client may read and post only")
    if have in RIGHTS[action]:
        return Verdict(True, f"a {have} may {action}")
    return Verdict(True, "auditors read and export every room of their tenant")


def require(room: Room, room_id: str, tenant: str, caller: Caller, action: Action) -> None:
    """Refuse what the table does not allow.

    Raises NotVisible where the caller may not even see the room, RunNotLive for the token of a run that is not the
    running one, ClientNotAllowed and Forbidden where they may see it but not do this.
    """
    if _of_table(room, room_id, tenant, caller, action).allowed:
        return
    have = standing(room, room_id, tenant, caller)
    if have == "ended_run":
        raise RunNotLive("The run of this token is not running; say hello first, or start a new run.")
    if not _of_table(room, room_id, tenant, caller, "read").allowed:
        raise NotVisible
    if caller.is_cli_client and action not in CLI_CLIENT_ACTIONS:
        raise ClientNotAllowed("A token of a command-line client may read and post only; use a token of the console.")
    raise Forbidden(f"You may see this room but not {action} in it; ask an owner for a higher role.")


def allowed_actions(room: Room, room_id: str, tenant: str, caller: Caller) -> list[Action]:
    """Every action that `caller` may take now, in the table's order."""
    actions: tuple[Action, ...] = get_args(Action)
    return [action for action in actions if decide_right(room, room_id, tenant, caller, action).allowed]
