"""The facts of a room, exactly as the envelope of rooms.md stores them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

from msgspec import UNSET, Struct, UnsetType, field

from ..events import Event, Opaque, Registry, Unstorable
from .approval_events import ApprovalDecided, ApprovalRequested
from .fork import ForkedFrom
from .handoff import HandoffRecorded

Role = Literal["watcher", "collaborator", "owner"]
"""Cumulative room roles: each may do what those before it may."""

DataClass = Literal["public", "internal"]

EndReason = Literal["finished", "error", "stuck", "deadline", "lost", "never_joined", "revoked", "room_closed"]
"""Why a run ended; the reason outlives the run."""

HarnessKind = Literal["harness_status", "harness_error", "harness_paused", "harness_event", "policy_decision"]
"""The `state_changed` kinds in which a run's bridge tells of its harness."""

AckKind = Literal["delivered", "interrupted", "undeliverable", "decision_applied"]
"""The `state_changed` kinds in which a run's bridge tells what became of a delivery."""

Delivery = Literal["none", "queued", "steering"]
"""Whom a message reaches beside those who read: nobody, the next run, the running run."""

DriverReason = Literal["given", "requested", "taken", "lease_expired"]
"""How the driver token came to another holder."""


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


class DriverRequested(Event, frozen=True):
    """A person asks the driver for the token, for all to see."""

    type: ClassVar[str] = "state_changed"
    by: str
    kind: Literal["driver_requested"] = "driver_requested"


class DriverMoved(Event, frozen=True):
    """The driver token is another's now. `epoch` is the new one; `note` says why it was taken."""

    type: ClassVar[str] = "driver"
    from_: str = field(name="from")
    to: str
    epoch: int
    reason: DriverReason
    note: str | UnsetType = UNSET


class RunRequested(Event, frozen=True):
    """The next run is wanted. Its brief quotes the queued messages `refs`; `briefThroughSeq` is the last it knows.

    by_hand: whoever registered it starts it, so that no launcher is asked to.
    """

    type: ClassVar[str] = "state_changed"
    run_id: str
    role: str
    refs: tuple[int, ...]
    brief_through_seq: int
    requested_by: str
    pull_request: str | UnsetType = UNSET
    by_hand: Literal[True] | UnsetType = UNSET
    kind: Literal["run_requested"] = "run_requested"


class RunRegistered(Event, frozen=True):
    """Where a run works: its branch, and the task or pull request that it works on."""

    type: ClassVar[str] = "state_changed"
    run_id: str
    role: str
    branch: str | UnsetType = UNSET
    task_url: str | UnsetType = UNSET
    kind: Literal["run_phase"] = "run_phase"
    phase: Literal["registered"] = "registered"


class RunStarted(Event, frozen=True):
    """A run's bridge holds the room; from here its items may follow."""

    type: ClassVar[str] = "state_changed"
    run_id: str
    role: str
    kind: Literal["run_phase"] = "run_phase"
    phase: Literal["running"] = "running"


class RunEnded(Event, frozen=True):
    """A run is over. `note` says why somebody revoked it."""

    type: ClassVar[str] = "state_changed"
    run_id: str
    reason: EndReason
    note: str | UnsetType = UNSET
    kind: Literal["run_phase"] = "run_phase"
    phase: Literal["ended"] = "ended"


class PayloadErased(Event, frozen=True):
    """Names an earlier event whose payload the eraser may take away; its place in the chain stays."""

    type: ClassVar[str] = "state_changed"
    erased_seq: int
    reason: str | UnsetType = UNSET
    kind: Literal["payload_erased"] = "payload_erased"


class HoldSet(Event, frozen=True):
    """A legal hold: retention stops until it is released."""

    type: ClassVar[str] = "state_changed"
    reason: str
    kind: Literal["hold_set"] = "hold_set"


class HoldReleased(Event, frozen=True):
    """The legal hold is over; retention goes on."""

    type: ClassVar[str] = "state_changed"
    reason: str
    kind: Literal["hold_released"] = "hold_released"


class MessagePosted(Event, frozen=True):
    """Somebody said something: to people alone, for the next run's brief, or into the running run."""

    type: ClassVar[str] = "message"
    text: str
    to: tuple[str, ...] = ()
    delivery: Delivery = "none"
    kind: Literal["chat", "task_state"] = "chat"


class VerdictGiven(Event, frozen=True):
    """A reviewer, a run or a person, says what they think of a commit."""

    type: ClassVar[str] = "message"
    text: str
    verdict: Literal["approve", "changes"]
    commit: str
    to: tuple[str, ...] = ()
    pull_request: str | UnsetType = UNSET
    delivery: Literal["none"] = "none"
    kind: Literal["review_verdict"] = "review_verdict"


class VerdictPosted(Event, frozen=True):
    """The verdict of event `ref` stands on its pull request, as one comment."""

    type: ClassVar[str] = "state_changed"
    ref: int
    url: str | UnsetType = UNSET
    kind: Literal["verdict_posted"] = "verdict_posted"


class VerdictNotPosted(Event, frozen=True):
    """The verdict of event `ref` will not reach its pull request."""

    type: ClassVar[str] = "state_changed"
    ref: int
    reason: str
    kind: Literal["verdict_not_posted"] = "verdict_not_posted"


class QueuedRemoved(Event, frozen=True):
    """The queued message of event `ref` waits no longer; no run was told."""

    type: ClassVar[str] = "state_changed"
    ref: int
    kind: Literal["queued_removed"] = "queued_removed"


class QueuedPromoted(Event, frozen=True):
    """The queued message of event `ref` goes into the running run now."""

    type: ClassVar[str] = "state_changed"
    ref: int
    run_id: str
    kind: Literal["queued_promoted"] = "queued_promoted"


class InterruptRequested(Event, frozen=True):
    """The driver wants the running run to stop what it does."""

    type: ClassVar[str] = "state_changed"
    run_id: str
    kind: Literal["interrupt"] = "interrupt"


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


class DeliveryAcknowledged(Event, frozen=True, forbid_unknown_fields=False):
    """What a run's bridge says became of the delivery of event `ref`; the other fields are data."""

    type: ClassVar[str] = "state_changed"
    ref: int | UnsetType = UNSET
    kind: AckKind = "delivered"


RoomEvent = (
    RoomOpened
    | RoomClosed
    | LimitReached
    | HoldSet
    | HoldReleased
    | ParticipantJoined
    | ParticipantRoleChanged
    | ParticipantLeft
    | DriverRequested
    | DriverMoved
    | RunRequested
    | RunRegistered
    | RunStarted
    | RunEnded
    | PayloadErased
    | MessagePosted
    | VerdictGiven
    | VerdictPosted
    | VerdictNotPosted
    | QueuedRemoved
    | QueuedPromoted
    | InterruptRequested
    | HandoffRecorded
    | ApprovalRequested
    | ApprovalDecided
    | ForkedFrom
    | TurnReported
    | ToolCalled
    | ToolReturned
    | HarnessReported
    | DeliveryAcknowledged
)
"""Every declared event of a room; evolve and each fold match on it."""

StoredRoomEvent = RoomEvent | Opaque | Unstorable

ROOM_EVENTS: Registry[RoomEvent] = Registry(get_args(RoomEvent))

PUSHED_BY_BRIDGES: dict[str, type[Event]] = {
    MessagePosted.type: MessagePosted,
    TurnReported.type: TurnReported,
    ToolCalled.type: ToolCalled,
    ToolReturned.type: ToolReturned,
    HarnessReported.type: HarnessReported,
}
"""What a bridge may push, by envelope type. Anything else is refused, so that a compromised sandbox forges nothing."""
