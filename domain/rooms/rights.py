"""Who may do what in a room: the one table, used by every command and query (rooms.md, Roles and rights)."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from ..errors import ClientNotAllowed, Forbidden, NotVisible, RunNotLive
from ..principals import SERVER, Caller
from .events import Role
from .handoff import TOOL_ROLES, RoomTool
from .state import POLICY, Room

Action = Literal[
    "read",
    "chat",
    "verdict",
    "task_state",
    "queue",
    "unqueue",
    "steer",
    "interrupt",
    "promote",
    "start_run",
    "register_run",
    "end_run",
    "decide",
    "driver_request",
    "driver_give",
    "driver_take",
    "fork",
    "invite",
    "close",
    "hold",
    "export",
    "record",
    "room_read",
    "room_post",
    "room_handoff",
    "room_verdict",
    "sweep",
]
"""read: see and follow. chat: post to people. verdict: a review by a person. task_state: a task's state by a system.
queue, unqueue: a message for the next run, and taking it back. steer, interrupt, promote: reach the running run.
start_run, register_run, end_run: runs. decide: an approval. driver_request, driver_give, driver_take: the driver token.
fork: a new room from this one. invite: add, change and remove members. close: seal the room. hold: set and release a
legal hold. export: take the log with its hash fields. record: push a run's items and ask for its approvals. room_*: the
room tools of a run. sweep: what the server does when a time has passed.
"""

Standing = Literal[
    "stranger", "watcher", "collaborator", "owner", "run", "ended_run", "system",
    "approver", "driver", "auditor", "policy", "server",
]  # fmt: skip
"""What a caller is to a room, after groups, membership and tokens are looked at. The second line adds to the first."""

RIGHTS: dict[Action, frozenset[Standing]] = {
    "read": frozenset({"watcher", "collaborator", "owner", "run", "system", "auditor"}),
    "chat": frozenset({"collaborator", "owner", "run", "system"}),
    "verdict": frozenset({"collaborator", "owner"}),
    "task_state": frozenset({"system"}),
    "queue": frozenset({"collaborator", "owner", "system"}),
    "unqueue": frozenset({"collaborator", "owner", "system"}),
    "steer": frozenset({"driver"}),
    "interrupt": frozenset({"driver"}),
    "promote": frozenset({"driver"}),
    "start_run": frozenset({"driver", "owner", "system"}),
    "register_run": frozenset({"owner", "system"}),
    "end_run": frozenset({"owner", "system"}),
    "decide": frozenset({"approver", "owner", "policy"}),
    "driver_request": frozenset({"collaborator", "owner"}),
    "driver_give": frozenset({"driver"}),
    "driver_take": frozenset({"owner"}),
    "fork": frozenset({"watcher", "collaborator", "owner", "system"}),
    "invite": frozenset({"owner", "system"}),
    "close": frozenset({"owner", "system"}),
    "hold": frozenset({"owner"}),
    "export": frozenset({"owner", "auditor"}),
    "record": frozenset({"run"}),
    "room_read": frozenset({"run"}),
    "room_post": frozenset({"run"}),
    "room_handoff": frozenset({"run"}),
    "room_verdict": frozenset({"run"}),
    "sweep": frozenset({"server"}),
}
"""The table of rooms.md, one row an action. What a decision adds is said there: unqueue is for the author of a message
or the driver; a system starts a run while no human drives; an approval under four eyes is for those who did not prompt.
"""

CLI_CLIENT_ACTIONS: frozenset[Action] = frozenset({"read", "chat", "queue", "fork"})
"""What a token of a command-line client may do, whoever holds it: a local agent could hold it too."""

CLOSED_ROOM_ACTIONS: frozenset[Action] = frozenset({"read", "fork", "hold", "export"})
"""What one may still do once the room is closed and its stream sealed."""

OPEN_ROOM_ACTIONS: frozenset[Action] = frozenset(RIGHTS) - CLOSED_ROOM_ACTIONS
"""What nobody may do once the room is closed."""

CAN_DRIVE: frozenset[Standing] = frozenset({"collaborator", "owner", "system"})
"""Who may hold the driver token: it gives nothing to a holder who is less by now."""

_RANK: dict[Role, int] = {"watcher": 0, "collaborator": 1, "owner": 2}
_TOOLS: tuple[RoomTool, ...] = get_args(RoomTool)


class Verdict(NamedTuple):
    """Whether an action is allowed, and a sentence on why."""

    allowed: bool
    reason: str


def standing(room: Room, room_id: str, tenant: str, caller: Caller) -> Standing:
    """What `caller` is first of all to the room `room_id` of `tenant`. Another tenant's caller is always a stranger."""
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
        case "guest":
            return "stranger"
        case "human":
            return _human_standing(room, caller)


def standings(room: Room, room_id: str, tenant: str, caller: Caller) -> frozenset[Standing]:
    """Everything that `caller` is to the room: `standing`, and the flags and tokens beside it."""
    first = standing(room, room_id, tenant, caller)
    found: set[Standing] = {first}
    name = str(caller.principal)
    if caller.tenant == tenant and caller.is_auditor and caller.principal.kind != "agent":
        found.add("auditor")
    if first == "stranger":
        return frozenset(found)
    if room.driver == name and first in CAN_DRIVE:
        found.add("driver")
    if caller.principal.kind == "human" and (caller.is_admin or (name in room.members and room.members[name].approver)):
        found.add("approver")
    if name == POLICY:
        found.add("policy")
    if caller.principal == SERVER:
        found.add("server")
    return frozenset(found)


def _human_standing(room: Room, caller: Caller) -> Standing:
    if caller.is_admin:
        return "owner"
    member = room.members.get(str(caller.principal))
    roles: list[Role] = [] if member is None else [member.role]
    if caller.is_member:
        roles.append("watcher")
    return max(roles, key=lambda role: _RANK[role]) if roles else "stranger"


def human_drives(room: Room) -> bool:
    """Whether a person holds the driver token."""
    return room.driver.startswith("human:")


def decide_right(room: Room, room_id: str, tenant: str, caller: Caller, action: Action) -> Verdict:
    """The answer for `explain` and `you.can`: the table's, and that nothing is appended to a closed room.

    `require` leaves the second to the decision, whose refusal says that the room is closed, not that the caller may
    not; likewise that a system starts no run while a human drives.
    """
    verdict = _of_table(room, room_id, tenant, caller, action)
    if verdict.allowed and room.is_closed and action in OPEN_ROOM_ACTIONS:
        return Verdict(False, "the room is closed")
    if verdict.allowed and action == "start_run" and caller.principal.kind == "system" and human_drives(room):
        return Verdict(False, "a system starts no run while a human drives")
    return verdict


def _of_table(room: Room, room_id: str, tenant: str, caller: Caller, action: Action) -> Verdict:
    have = standings(room, room_id, tenant, caller)
    allowing = have & RIGHTS[action]
    if not allowing:
        first = standing(room, room_id, tenant, caller)
        return Verdict(False, f"a {first.replace('_', ' ')} may not {_words(action)}")
    if caller.is_cli_client and action not in CLI_CLIENT_ACTIONS:
        return Verdict(False, "a token of a command-line client may read, post, queue and fork only")
    if action in _TOOLS and not _has_tool(room, action):
        return Verdict(False, f"a run of this role may not {_words(action)}")
    return Verdict(True, f"a {min(allowing)} may {_words(action)}")


def _has_tool(room: Room, tool: RoomTool) -> bool:
    roles = TOOL_ROLES[tool]
    return room.run is not None and (roles is None or room.run.role in roles)


def _words(action: Action) -> str:
    return action.replace("_", " ")


def require(room: Room, room_id: str, tenant: str, caller: Caller, action: Action) -> None:
    """Refuse what the table does not allow.

    Raises NotVisible where the caller may not even see the room, RunNotLive for the token of a run that is not the
    running one, ClientNotAllowed and Forbidden where they may see it but not do this.
    """
    verdict = _of_table(room, room_id, tenant, caller, action)
    if verdict.allowed:
        return
    if standing(room, room_id, tenant, caller) == "ended_run":
        raise RunNotLive("The run of this token is not running; say hello first, or start a new run.")
    if not _of_table(room, room_id, tenant, caller, "read").allowed:
        raise NotVisible
    if caller.is_cli_client and action not in CLI_CLIENT_ACTIONS:
        raise ClientNotAllowed(
            "A token of a command-line client may read, post, queue and fork only; use a token of the console."
        )
    raise Forbidden(f"You may see this room but not {_words(action)} in it: {verdict.reason}. Ask an owner.")


def allowed_actions(room: Room, room_id: str, tenant: str, caller: Caller) -> list[Action]:
    """Every action that `caller` may take now, in the table's order."""
    return [action for action in RIGHTS if decide_right(room, room_id, tenant, caller, action).allowed]
