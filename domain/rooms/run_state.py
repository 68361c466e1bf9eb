"""What a room knows of its runs, and how the running one moves."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ..events import Recorded
from .brief import Quote
from .events import AckKind, EndReason, ToolCalled, ToolReturned

MAX_OPEN_CALLS = 256
"""Tool calls of a run that are remembered until their result comes; the oldest is forgotten first."""

MAX_ANSWERED_CALLS = 256
"""Answered tool calls of a run that are remembered, so that no leave is asked for them any more."""

ItemStream = Literal["events", "status"]
"""The two numbered streams of a bridge (http.md)."""

RunPhase = Literal["requested", "running", "ended"]
"""A run waits for its first hello, has the room, or is over for good."""


class SteeringDelivery(Struct, frozen=True, tag="steering"):
    """A message for the running run. `ref` is the message's seq."""

    ref: int
    text: str


class InterruptDelivery(Struct, frozen=True, tag="interrupt"):
    """The running run must stop what it does. `ref` is the seq of the request."""

    ref: int


class DecisionDelivery(Struct, frozen=True, tag="decision"):
    """What became of a request for approval of the running run. `ref` is the seq of the decision."""

    ref: int
    approval_id: str
    allow: bool
    action_digest: str
    reason: str | None = None


AnyDelivery = SteeringDelivery | InterruptDelivery | DecisionDelivery

ACKNOWLEDGES: dict[AckKind, tuple[type[AnyDelivery], ...]] = {
    "delivered": (SteeringDelivery,),
    "interrupted": (InterruptDelivery,),
    "decision_applied": (DecisionDelivery,),
    "undeliverable": (SteeringDelivery, InterruptDelivery, DecisionDelivery),
}
"""Which deliveries an acknowledgement can end. `undeliverable` is a refusal for good, and blocks none behind it."""


class RunRecord(Struct, frozen=True):
    """A run that the room knows. Of an ended one only role and reason stay.

    consumed: the queued messages of its brief, kept until it says hello: they go back where it never does.
    refs, brief_through_seq: what the brief quotes, as RunRequested has it.
    """

    role: str
    phase: RunPhase
    reason: EndReason | None = None
    requested_by: str | None = None
    branch: str | None = None
    task_url: str | None = None
    pull_request: str | None = None
    refs: tuple[int, ...] = ()
    brief_through_seq: int | None = None
    consumed: tuple[Quote, ...] = ()


class Run(Struct, frozen=True):
    """The running run: how far its two item streams are stored, its open turn, its open calls (callId to tool).

    answered: the last calls that have their results. deliveries: what waits to be delivered to it, in order, until its
    bridge acknowledges it. prompted_by: who requested it, steered it, or wrote a queued message that its brief consumed
    or that was promoted to it.
    """

    run_id: str
    role: str
    events_seq: int = 0
    status_seq: int = 0
    open_turn: str | None = None
    calls: dict[str, str] = {}
    answered: tuple[str, ...] = ()
    branch: str | None = None
    task_url: str | None = None
    prompted_by: tuple[str, ...] = ()
    deliveries: tuple[AnyDelivery, ...] = ()


def started(run_id: str, role: str, record: RunRecord | None) -> Run:
    """The run at its first hello, with what was known of it before."""
    if record is None:
        return Run(run_id, role)
    prompters = [] if record.requested_by is None else [record.requested_by]
    prompters += [quote.author for quote in record.consumed]
    return Run(
        run_id, role, branch=record.branch, task_url=record.task_url, prompted_by=tuple(dict.fromkeys(prompters))
    )


def advanced(run: Run | None, recorded: Recorded[object]) -> Run | None:
    """The running run with its cursor at this item; None where the event is not one of its numbered items."""
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


def with_call(run: Run, event: ToolCalled) -> Run:
    """The run once it called a tool."""
    calls = {**run.calls, event.call_id: event.tool}
    if len(calls) > MAX_OPEN_CALLS:
        del calls[next(iter(calls))]
    answered = run.answered
    if event.call_id in answered:
        answered = tuple(call for call in answered if call != event.call_id)
    return replace(run, calls=calls, answered=answered)


def without_call(run: Run, event: ToolReturned) -> Run:
    """The run once a tool answered."""
    answered, calls = run.answered, run.calls
    if event.call_id in answered:
        answered = tuple(call for call in answered if call != event.call_id)
    if event.call_id in calls:
        calls = {call: tool for call, tool in calls.items() if call != event.call_id}
    return replace(run, calls=calls, answered=(*answered, event.call_id)[-MAX_ANSWERED_CALLS:])


def with_delivery(run: Run, delivery: AnyDelivery, *prompters: str) -> Run:
    """The run with one more delivery behind the others, caused by `prompters`."""
    prompted_by = tuple(dict.fromkeys((*run.prompted_by, *prompters)))
    return replace(run, deliveries=(*run.deliveries, delivery), prompted_by=prompted_by)


def acknowledged(run: Run, kind: AckKind, ref: object) -> Run:
    """The run without the delivery that an acknowledgement names; any other claim changes nothing."""
    kinds = ACKNOWLEDGES[kind]
    deliveries = tuple(each for each in run.deliveries if each.ref != ref or not isinstance(each, kinds))
    return run if len(deliveries) == len(run.deliveries) else replace(run, deliveries=deliveries)


def without_words(run: Run, ref: int) -> Run:
    """The run once the message of event `ref` is erased: it is delivered no more."""
    return acknowledged(run, "delivered", ref)
