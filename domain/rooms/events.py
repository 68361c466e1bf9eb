"""The facts of a room, exactly as the envelope of rooms.md stores them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType, field

from ..events import Event, Opaque, Registry, Unstorable

Role = Literal["watcher", "collaborator", "owner"]
"""Cumulative room roles: each may do what those before it may."""

DataClass = Literal["public", "internal"]

EndReason = Literal["finished", "error", "stuck", "deadline", "lost", "never_joined", "revoked", "room_closed"]
"""Why a run ended; the reason outlives the run."""

HarnessKind = Literal[
    "harness_status",
    "harness_error",
    "harness_paused",
    "harness_event",
    "delivered",
    "interrupted",
    "undeliverable",
    "policy_decision",
    "decision_applied",
]
"""The `state_changed` kinds that a run's bridge may push."""


class MemberSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One member as RoomOpened lists it."""

    principal: str
    role: Role
    approver: bool = False


class RoomOpened(Event, frozen=True):
    """A room began. The first event of its stream, and never another."""

    type: ClassVar[str] = "state_changed"
    owner: str
    driver: str
    data_class: DataClass
    retention: str
    members: tuple[MemberSpec, ...] = ()
    approvals: dict[str, Any] = field(default_factory=dict[str, Any])
    title: str | UnsetType = UNSET
    repository: str | UnsetType = UNSET
    kind: Literal["room_phase"] = "room_phase"
    phase: Literal["open"] = "open"


class RoomClosed(Event, frozen=True):
    """The room was sealed; nothing follows."""

    type: ClassVar[str] = "state_changed"
    reason: str | UnsetType = UNSET
    kind: Literal["room_phase"] = "room_phase"
    phase: Literal["closed"] = "closed"


class LimitReached(Event, frozen=True):
    """A limit of the room took effect: `events` or `bytes` sealed it, `concurrent_run` turned a second run away."""

    type: ClassVar[str] = "state_changed"
    limit: Literal["events", "bytes", "concurrent_run"]
    run_id: str | UnsetType = UNSET
    kind: Literal["limit"] = "limit"


class ParticipantJoined(Event, frozen=True):
    """A person became a member, or a run's bridge said its first hello."""

    type: ClassVar[str] = "participant"
    principal: str
    role: str
    approver: bool | UnsetType = UNSET
    change: Literal["joined"] = "joined"


class ParticipantRoleChanged(Event, frozen=True):
    """A member's role or approver flag is another now."""

    type: ClassVar[str] = "participant"
    principal: str
    role: Role
    approver: bool
    change: Literal["role_changed"] = "role_changed"


class ParticipantLeft(Event, frozen=True):
    """A member was removed or left, or a run went away."""

    type: ClassVar[str] = "participant"
    principal: str
    change: Literal["left"] = "left"


class RunStarted(Event, frozen=True):
    """A run's bridge holds the room; from here its items may follow."""

    type: ClassVar[str] = "state_changed"
    run_id: str
    role: str
    kind: Literal["run_phase"] = "run_phase"
    phase: Literal["running"] = "running"


class RunEnded(Event, frozen=True):
    """A run is over."""

    type: ClassVar[str] = "state_changed"
    run_id: str
    reason: EndReason
    kind: Literal["run_phase"] = "run_phase"
    phase: Literal["ended"] = "ended"


class PayloadErased(Event, frozen=True):
    """Names an earlier event whose payload the eraser may take away; its place in the chain stays."""

    type: ClassVar[str] = "state_changed"
    erased_seq: int
    kind: Literal["payload_erased"] = "payload_erased"


class MessagePosted(Event, frozen=True):
    """Somebody said something, to people: no run is told (delivery `none`)."""

    type: ClassVar[str] = "message"
    text: str
    to: tuple[str, ...] = ()
    delivery: Literal["none"] = "none"
    kind: Literal["chat"] = "chat"


class TurnReported(Event, frozen=True):
    """A turn of the agent's harness began or ended."""

    type: ClassVar[str] = "turn"
    run_id: str
    turn_id: str
    phase: Literal["started", "completed", "cancelled", "failed"]


class ToolCalled(Event, frozen=True):
    """The agent called a tool. `decidedBy` is the run's claim; no right rests on it."""

    type: ClassVar[str] = "tool_call"
    call_id: str
    tool: str
    args: Any
    decided_by: Literal["policy", "human"] | None
    class_: str | UnsetType = field(default=UNSET, name="class")
    risk: str | UnsetType = UNSET


class ToolReturned(Event, frozen=True):
    """A tool answered. `bytes` is the length before the bridge cut the output."""

    type: ClassVar[str] = "tool_result"
    call_id: str
    status: Literal["ok", "error", "rejected"]
    output: str
    truncated: bool
    bytes: int


class HarnessReported(Event, frozen=True, forbid_unknown_fields=False):
    """What a harness says of itself, in its own words; the fields beside `kind` are data."""

    type: ClassVar[str] = "state_changed"
    kind: HarnessKind = "harness_event"


RoomEvent = (
    RoomOpened
    | RoomClosed
    | LimitReached
    | ParticipantJoined
    | ParticipantRoleChanged
    | ParticipantLeft
    | RunStarted
    | RunEnded
    | PayloadErased
    | MessagePosted
    | TurnReported
    | ToolCalled
    | ToolReturned
    | HarnessReported
)
"""Every declared event of a room; evolve and each fold match on it."""

StoredRoomEvent = RoomEvent | Opaque | Unstorable

ROOM_EVENTS: Registry[RoomEvent] = Registry(
    (
        RoomOpened,
        RoomClosed,
        LimitReached,
        ParticipantJoined,
        ParticipantRoleChanged,
        ParticipantLeft,
        RunStarted,
        RunEnded,
        PayloadErased,
        MessagePosted,
        TurnReported,
        ToolCalled,
        ToolReturned,
        HarnessReported,
    )
)

PUSHED_BY_BRIDGES: dict[str, type[Event]] = {
    MessagePosted.type: MessagePosted,
    TurnReported.type: TurnReported,
    ToolCalled.type: ToolCalled,
    ToolReturned.type: ToolReturned,
    HarnessReported.type: HarnessReported,
}
"""What a bridge may push, by envelope type. Anything else is refused, so that a compromised sandbox forges nothing."""
