"""Decisions on approvals: a run asks, the policy or a person answers, or time does (rooms.md, Approvals).

Approvals are oversight, not a boundary: what a run can do is fixed where it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta
from msgspec.structs import replace

from ..errors import AlreadyDecided, DigestMismatch, FourEyes, KeyReused, NotVisible, TooManyPending
from ..principals import SERVER, SERVER_COMPONENT, Principal
from ..times import stamp
from ..visibility import cleared
from .acting import allow, by_caller, check_reason, refuse_sealed
from .approval_events import ActionClass, ApprovalDecided, ApprovalOutcome, ApprovalRequested
from .approval_policy import Effect
from .approvals import Approval, action_digest, decision_key, request_key, settled_by_server
from .commands import MAX_REASON_BYTES, Command
from .context import Context, Decision, NewEvent
from .run_state import DecisionDelivery, Run
from .state import POLICY, Room

MAX_PENDING = 32
"""Requests of a run that may wait at once: for a person, or decided for its bridge to hear of it."""

MAX_EVENT_ID_CHARS = 128
MAX_CALL_ID_CHARS = 256
MAX_TOOL_CHARS = 256

_AT_ONCE: dict[Effect, ApprovalOutcome | None] = {"allow": "approved", "deny": "denied", "human": None}
_POLICY = Principal.parse(POLICY)


class RequestApproval(Command, frozen=True):
    """POST /v1/bridge/approvals. event_id is the bridge's own number of the request: the same again is the same one.

    tool: of the call, for a request that comes before the call is in the log.
    """

    event_id: Annotated[str, Meta(min_length=1, max_length=MAX_EVENT_ID_CHARS)]
    call_id: Annotated[str, Meta(min_length=1, max_length=MAX_CALL_ID_CHARS)]
    class_: ActionClass = msgspec.field(name="class")
    action: Any
    tool: Annotated[str, Meta(min_length=1, max_length=MAX_TOOL_CHARS)] | None = None


class ApprovalDecision(Command, frozen=True):
    """The body of POST /v1/rooms/{id}/approvals/{approvalId}/decision."""

    decision: Literal["approved", "denied"]
    action_digest: Annotated[str, Meta(max_length=64)]
    reason: Annotated[str, Meta(min_length=1, max_length=MAX_REASON_BYTES)] | None = None


class DecideApproval(Command, frozen=True):
    """ApprovalDecision with the request's id, of the path."""

    approval_id: str
    decision: Literal["approved", "denied"]
    action_digest: str
    reason: str | None = None


def request_approval(
    room: Room, command: RequestApproval, context: Context, tool_classes: Mapping[str, str]
) -> Decision:
    """A run asks leave for one call; its policy may answer at once, and what was asked before is answered as it stands.

    A call that has its result already needs no leave any more: its request is superseded at once.
    tool_classes: visibility class by tool name, from the settings; the request has that of the tool of its call, and of
    the one that it names. Where neither is known it has every class: what it was made from may have had any.
    Raises TooManyPending; KeyReused where the bridge's number stands for another action. The answer carries
    `approvalId`, `actionDigest`, `expiresAt` and, once there is one, `decision`.
    """
    allow(room, context, "record")
    run = room.run
    assert run is not None  # noqa: S101 - `record` is the running run's alone
    known = room.approvals.asked_as(run.run_id, command.event_id)
    if known is not None:
        return _asked_again(known, command)
    policy = room.approval_settings
    effect = policy.effect(command.class_)
    decision: ApprovalOutcome | None = "superseded" if command.call_id in run.answered else _AT_ONCE[effect]
    if decision is None and len(room.approvals.pending) + _undelivered(run) >= MAX_PENDING:
        raise TooManyPending(f"{MAX_PENDING} requests of this run wait already; go on once some are decided.")
    approval_id = context.fresh_ulid
    digest = action_digest(approval_id, command.action)
    expires_at = stamp(policy.expiry(context.now, context.timeouts))
    asked = ApprovalRequested(
        approval_id, command.call_id, command.class_, command.action, digest, run.prompted_by, expires_at
    )
    classes = _classes(run, command, tool_classes)
    request = replace(
        by_caller(room, asked, context),
        classes=classes,
        origin_client=run.run_id,
        origin_key=request_key(command.event_id),
    )
    answer = _answer(approval_id, digest, expires_at, decision)
    if decision is None:
        return Decision((request,), answer=answer)
    return Decision(
        (request, _at_once(request, ApprovalDecided(approval_id, digest, decision), context)), answer=answer
    )


def _at_once(request: NewEvent, event: ApprovalDecided, context: Context) -> NewEvent:
    """What became of a request that is stored in the same append, right before it."""
    return NewEvent(
        event,
        SERVER if event.decision == "superseded" else _POLICY,
        run_id=request.run_id,
        caused_by=context.version + 1,
        origin="broker",
        classes=request.classes,
        origin_client=SERVER_COMPONENT,
        origin_key=decision_key(event.approval_id),
    )


def decide_approval(room: Room, command: DecideApproval, context: Context) -> Decision:
    """The first valid decision wins, and applies to exactly the call that was asked for (law 24).

    Raises NotVisible for a request that the room does not know or the caller may not see; AlreadyDecided, with the
    winning `decision`; FourEyes; DigestMismatch. A request whose time is over, or whose run has left, is not decided:
    that is what is appended, and then refused.
    """
    allow(room, context, "decide")
    check_reason(command.reason)
    asked = room.approvals.find(command.approval_id)
    if asked is None or not cleared(asked.classes, context.caller.labels):
        raise NotVisible
    if asked.decision is not None:
        raise _already(asked.decision)
    refuse_sealed(room)
    lost = _lost(room, asked, context)
    if lost is not None:
        return Decision((settled_by_server(asked, lost),), refusal=_already(lost))
    if room.approval_settings.four_eyes and str(context.caller.principal) in _prompters(room, asked):
        raise FourEyes("You prompted this run, so somebody else must decide what it asks for.")
    if command.action_digest != asked.digest:
        raise DigestMismatch("This digest is not that of the action which was asked for; read the approval again.")
    event = ApprovalDecided(
        asked.approval_id, asked.digest, command.decision, UNSET if command.reason is None else command.reason
    )
    decided = replace(
        by_caller(room, event, context, caused_by=asked.seq),
        run_id=asked.run_id,
        classes=asked.classes,
        origin_client=SERVER_COMPONENT,
        origin_key=decision_key(asked.approval_id),
    )
    return Decision((decided,), answer={"decision": command.decision})


def expire_approvals(room: Room, command: None, context: Context) -> Decision:  # noqa: ARG001
    """The sweep: every request whose time is over, or whose run has left, ends. Nothing where none is."""
    allow(room, context, "sweep")
    if room.is_closed:
        return Decision()
    events: list[NewEvent] = []
    for asked in room.approvals.pending.values():
        lost = _lost(room, asked, context)
        if lost is not None:
            events.append(settled_by_server(asked, lost))
    return Decision(tuple(events))


def _undelivered(run: Run) -> int:
    return sum(isinstance(each, DecisionDelivery) for each in run.deliveries)


def _lost(room: Room, asked: Approval, context: Context) -> ApprovalOutcome | None:
    if stamp(context.now) >= asked.expires_at:
        return "expired"
    return None if room.run is not None and room.run.run_id == asked.run_id else "superseded"


def _prompters(room: Room, asked: Approval) -> set[str]:
    """Who caused the run until it asked, and who did since: they would decide what they asked for themselves."""
    since = () if room.run is None else room.run.prompted_by
    return {*asked.prompted_by, *since}


def _asked_again(known: Approval, command: RequestApproval) -> Decision:
    same = (known.call_id, known.action_class, known.digest)
    if same != (command.call_id, command.class_, action_digest(known.approval_id, command.action)):
        raise KeyReused("This eventId stands for another action; give each request its own.")
    return Decision(answer=_answer(known.approval_id, known.digest, known.expires_at, known.decision))


def _answer(approval_id: str, digest: str, expires_at: str, decision: ApprovalOutcome | None) -> dict[str, Any]:
    answer = {"approvalId": approval_id, "actionDigest": digest, "expiresAt": expires_at}
    return answer if decision is None else {**answer, "decision": decision}


def _already(decision: ApprovalOutcome) -> AlreadyDecided:
    return AlreadyDecided(f"This request was {decision} before your decision came.", decision=decision)


def _classes(run: Run, command: RequestApproval, tool_classes: Mapping[str, str]) -> tuple[str, ...]:
    """Only who may see the call may see what is asked for it (law 14). A named tool is a claim, as a call's is."""
    tools = {name for name in (run.calls.get(command.call_id), command.tool) if name is not None}
    return tuple(sorted({label for name, label in tool_classes.items() if not tools or name in tools}))
