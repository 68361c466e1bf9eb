"""The state of a room, and how each event moves it."""

from __future__ import annotations

from typing import assert_never

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ..events import Opaque, Recorded, Unstorable
from .approval_events import ApprovalDecided, ApprovalRequested
from .approval_policy import DEFAULT_TTL, ApprovalPolicy, policy_of
from .approvals import Approvals, evolve_approvals
from .brief import Quote
from .events import (
    DataClass,
    DeliveryAcknowledged,
    DriverMoved,
    DriverRequested,
    HarnessReported,
    HoldReleased,
    HoldSet,
    InterruptRequested,
    LimitReached,
    MessagePosted,
    ParticipantJoined,
    ParticipantLeft,
    ParticipantRoleChanged,
    PayloadErased,
    QueuedPromoted,
    QueuedRemoved,
    Role,
    RoomClosed,
    RoomOpened,
    RunEnded,
    RunRegistered,
    RunRequested,
    RunStarted,
    StoredRoomEvent,
    ToolCalled,
    ToolReturned,
    TurnReported,
    VerdictGiven,
    VerdictNotPosted,
    VerdictPosted,
)
from .fork import ForkedFrom
from .handoff import HandoffRecorded
from .run_state import (
    DecisionDelivery,
    InterruptDelivery,
    Run,
    RunRecord,
    SteeringDelivery,
    acknowledged,
    advanced,
    started,
    with_call,
    with_delivery,
    without_call,
    without_words,
)

SCHEMA = "room.2"
"""Names the shape of Room in snapshots; a snapshot of another shape is ignored and the log is read instead."""

POLICY = "system:policy"
"""The principal that decides at once where the room's policy leaves no choice; its run has the answer already."""


class Member(Struct, frozen=True):
    """A person with a role of their own in the room."""

    role: Role
    approver: bool = False


class Room(Struct, frozen=True):
    """A room as its events left it. Collections are never changed in place.

    driver: the holder of the one token, which each change gives the next driver_epoch. system_holder: the last system
    principal that held it. driver_requests: who asked the present holder for it.
    members: people with a role, the owner among them. present: principals that joined and did not leave.
    queue: messages that wait for the next run, oldest first. runs: every run, those that are over with their reason;
    run: the running one. contenders: runs that were turned away because another one had the room, ever.
    """

    owner: str = ""
    driver: str = ""
    driver_epoch: int = 0
    system_holder: str | None = None
    driver_requests: tuple[str, ...] = ()
    data_class: DataClass = "internal"
    retention: str = ""
    title: str | None = None
    repository: str | None = None
    approval_settings: ApprovalPolicy = ApprovalPolicy(ttl=DEFAULT_TTL)
    approvals: Approvals = Approvals()
    members: dict[str, Member] = {}
    present: tuple[str, ...] = ()
    queue: tuple[Quote, ...] = ()
    runs: dict[str, RunRecord] = {}
    run: Run | None = None
    contenders: tuple[str, ...] = ()
    last_handoff: Quote | None = None
    last_verdict: Quote | None = None
    is_open: bool = False
    is_closed: bool = False
    is_held: bool = False

    @property
    def waiting_runs(self) -> list[str]:
        """Runs that were requested or registered and did not say hello yet."""
        return [run_id for run_id, record in self.runs.items() if record.phase == "requested"]


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
        case ForkedFrom():
            return _forked(room, event)
        case HoldSet() | HoldReleased():
            return replace(room, is_held=isinstance(event, HoldSet))
        case ParticipantJoined():
            return _joined(room, event)
        case ParticipantRoleChanged():
            return replace(room, members={**room.members, event.principal: Member(event.role, event.approver)})
        case ParticipantLeft():
            return replace(
                room,
                members={name: member for name, member in room.members.items() if name != event.principal},
                present=_without(room.present, event.principal),
                driver_requests=_without(room.driver_requests, event.principal),
            )
        case DriverRequested():
            return replace(room, driver_requests=(*_without(room.driver_requests, event.by), event.by))
        case DriverMoved():
            return _driven(room, event)
        case RunRequested():
            return _requested(room, event)
        case RunRegistered():
            return _registered(room, event)
        case RunStarted():
            return _started(room, event)
        case RunEnded():
            return _ended(room, event)
        case MessagePosted():
            return _posted(room, recorded, event)
        case VerdictGiven():
            quote = Quote(recorded.seq, str(recorded.actor), event.text, verdict=event.verdict, commit=event.commit)
            return replace(room, last_verdict=quote)
        case HandoffRecorded():
            quote = Quote(
                recorded.seq,
                str(recorded.actor),
                event.summary,
                event.from_role,
                commit=event.commit,
                to_role=event.to_role,
                branch=event.branch,
            )
            return replace(room, last_handoff=quote)
        case QueuedRemoved():
            return replace(room, queue=tuple(quote for quote in room.queue if quote.seq != event.ref))
        case QueuedPromoted():
            return _promoted(room, recorded, event)
        case InterruptRequested():
            if room.run is None or room.run.run_id != event.run_id:
                return room
            return replace(room, run=with_delivery(room.run, InterruptDelivery(recorded.seq)))
        case ApprovalRequested():
            return replace(room, approvals=evolve_approvals(room.approvals, recorded))
        case ApprovalDecided():
            return _decided(room, recorded, event)
        case TurnReported():
            run = advanced(room.run, recorded)
            open_turn = event.turn_id if event.phase == "started" else None
            return room if run is None else replace(room, run=replace(run, open_turn=open_turn))
        case ToolCalled():
            run = advanced(room.run, recorded)
            return room if run is None else replace(room, run=with_call(run, event))
        case ToolReturned():
            run = advanced(room.run, recorded)
            return room if run is None else replace(room, run=without_call(run, event))
        case DeliveryAcknowledged():
            run = advanced(room.run, recorded)
            return room if run is None else replace(room, run=acknowledged(run, event.kind, event.ref))
        case HarnessReported() | Unstorable() | Opaque():
            # An item that was erased, or that this version does not know, has its number all the same.
            run = advanced(room.run, recorded)
            return room if run is None else replace(room, run=run)
        case LimitReached():
            return _limited(room, event)
        case PayloadErased():
            return _erased(room, event.erased_seq)
        case VerdictPosted() | VerdictNotPosted():
            return room
        case _:
            assert_never(event)


def _without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(each for each in names if each != name)


def _system(name: str) -> str | None:
    return name if name.startswith("system:") else None


def _opened(room: Room, event: RoomOpened) -> Room:
    people = {member.principal: Member(member.role, member.approver) for member in event.members}
    people[event.owner] = Member("owner", people[event.owner].approver if event.owner in people else False)
    return replace(
        room,
        owner=event.owner,
        driver=event.driver,
        driver_epoch=1,
        system_holder=_system(event.driver),
        data_class=event.data_class,
        retention=event.retention,
        title=None if event.title is UNSET else event.title,
        repository=None if event.repository is UNSET else event.repository,
        approval_settings=policy_of(event.approvals),
        members=people,
        present=tuple(people),
        is_open=True,
    )


def _forked(room: Room, event: ForkedFrom) -> Room:
    """What was copied is history: nobody but the forker has a place here, and nothing of it is under way."""
    return replace(
        room,
        owner=event.owner,
        driver=event.owner,
        driver_epoch=room.driver_epoch + 1,
        system_holder=_system(event.owner),
        driver_requests=(),
        approvals=Approvals(),
        members={event.owner: Member("owner")},
        present=(event.owner,),
        queue=(),
        runs={},
        run=None,
        contenders=(),
        is_open=True,
        is_closed=False,
        is_held=False,
    )


def _joined(room: Room, event: ParticipantJoined) -> Room:
    present = room.present if event.principal in room.present else (*room.present, event.principal)
    if event.principal.startswith("agent:"):
        return replace(room, present=present)
    approver = False if event.approver is UNSET else event.approver
    role: Role = event.role if event.role in ("watcher", "collaborator", "owner") else "watcher"  # pyright: ignore[reportAssignmentType]
    return replace(room, present=present, members={**room.members, event.principal: Member(role, approver)})


def _driven(room: Room, event: DriverMoved) -> Room:
    return replace(
        room,
        driver=event.to,
        driver_epoch=event.epoch,
        driver_requests=(),
        system_holder=_system(event.to) or _system(event.from_) or room.system_holder,
    )


def _requested(room: Room, event: RunRequested) -> Room:
    record = RunRecord(
        event.role,
        "requested",
        requested_by=event.requested_by,
        pull_request=None if event.pull_request is UNSET else event.pull_request,
        refs=event.refs,
        brief_through_seq=event.brief_through_seq,
        consumed=tuple(quote for quote in room.queue if quote.seq in event.refs),
    )
    queue = tuple(quote for quote in room.queue if quote.seq not in event.refs)
    return replace(room, runs={**room.runs, event.run_id: record}, queue=queue)


def _registered(room: Room, event: RunRegistered) -> Room:
    branch = None if event.branch is UNSET else event.branch
    task_url = None if event.task_url is UNSET else event.task_url
    record = room.runs.get(event.run_id, RunRecord(event.role, "requested"))
    run = room.run
    if run is not None and run.run_id == event.run_id:
        run = replace(run, branch=branch, task_url=task_url)
    return replace(room, run=run, runs={**room.runs, event.run_id: replace(record, branch=branch, task_url=task_url)})


def _started(room: Room, event: RunStarted) -> Room:
    known = room.runs.get(event.run_id)
    record = replace(known or RunRecord(event.role, "running"), phase="running", consumed=())
    return replace(room, run=started(event.run_id, event.role, known), runs={**room.runs, event.run_id: record})


def _ended(room: Room, event: RunEnded) -> Room:
    """A run that never said hello took nothing of the queue with it, unless nobody is left to take it."""
    gone = room.run is not None and room.run.run_id == event.run_id
    record = room.runs.get(event.run_id)
    back = record.consumed if record is not None and event.reason != "room_closed" else ()
    ended = RunRecord("" if record is None else record.role, "ended", event.reason)
    return replace(
        room,
        run=None if gone else room.run,
        runs={**room.runs, event.run_id: ended},
        queue=tuple(sorted((*back, *room.queue), key=lambda quote: quote.seq)),
    )


def _posted(room: Room, recorded: Recorded[StoredRoomEvent], event: MessagePosted) -> Room:
    author = str(recorded.actor)
    if event.delivery == "none" or recorded.actor.kind == "agent":  # agents never talk to each other
        run = advanced(room.run, recorded)
    elif event.delivery == "queued":
        return replace(room, queue=(*room.queue, Quote(recorded.seq, author, event.text)))
    else:
        run = room.run and with_delivery(room.run, SteeringDelivery(recorded.seq, event.text), author)
    return room if run is None else replace(room, run=run)


def _promoted(room: Room, recorded: Recorded[StoredRoomEvent], event: QueuedPromoted) -> Room:
    quote = next((quote for quote in room.queue if quote.seq == event.ref), None)
    if quote is None or room.run is None or room.run.run_id != event.run_id:
        return room
    delivery = SteeringDelivery(event.ref, quote.text)
    return replace(
        room,
        queue=tuple(each for each in room.queue if each is not quote),
        run=with_delivery(room.run, delivery, quote.author, str(recorded.actor)),
    )


def _decided(room: Room, recorded: Recorded[StoredRoomEvent], event: ApprovalDecided) -> Room:
    """The first decision goes to the run that asked; a superseded one, and one that it had at once, to nobody."""
    asked = room.approvals.pending.get(event.approval_id)
    room = replace(room, approvals=evolve_approvals(room.approvals, recorded))
    run = room.run
    if asked is None or run is None or asked.run_id != run.run_id:
        return room
    if event.decision == "superseded" or str(recorded.actor) == POLICY:
        return room
    reason = None if event.reason is UNSET else event.reason
    allow = event.decision == "approved"
    delivery = DecisionDelivery(recorded.seq, event.approval_id, allow, event.action_digest, reason)
    return replace(room, run=with_delivery(run, delivery))


def _limited(room: Room, event: LimitReached) -> Room:
    if event.limit != "concurrent_run" or event.run_id is UNSET or event.run_id in room.contenders:
        return room
    return replace(room, contenders=(*room.contenders, event.run_id))


def _erased(room: Room, seq: int) -> Room:
    """Words that are erased wait nowhere either."""

    def kept(quotes: tuple[Quote, ...]) -> tuple[Quote, ...]:
        return tuple(quote for quote in quotes if quote.seq != seq)

    handoff, verdict = room.last_handoff, room.last_verdict
    return replace(
        room,
        queue=kept(room.queue),
        runs={run_id: replace(record, consumed=kept(record.consumed)) for run_id, record in room.runs.items()},
        run=None if room.run is None else without_words(room.run, seq),
        last_handoff=None if handoff is not None and handoff.seq == seq else handoff,
        last_verdict=None if verdict is not None and verdict.seq == seq else verdict,
    )
