"""What waits for the running run: in order, folded from the log, acknowledged once and by that run alone."""

from __future__ import annotations

from typing import Any

import pytest
from minutebook.domain.principals import Principal
from minutebook.domain.rooms.approval_events import ApprovalDecided, ApprovalOutcome, ApprovalRequested
from minutebook.domain.rooms.context import NewEvent
from minutebook.domain.rooms.events import (
    AckKind,
    DeliveryAcknowledged,
    InterruptRequested,
    MessagePosted,
    PayloadErased,
    QueuedPromoted,
    RunEnded,
)
from minutebook.domain.rooms.run_state import DecisionDelivery, InterruptDelivery, SteeringDelivery
from room_scenes import COLLABORATOR, NEXT_RUN, OPENED, OWNER, RUN, RUNNING, STARTED, given, pushed, said

DIGEST = "ab" * 32
REQUESTED = ApprovalRequested("a1", "c1", "forge.pr", {}, DIGEST, (), "2026-03-01T12:30:00.000000Z")
DECIDED = ApprovalDecided("a1", DIGEST, "approved", "fine")
LOG: tuple[Any, ...] = (
    OPENED,
    said(MessagePosted("docs next", delivery="queued"), COLLABORATOR),
    *STARTED,
    said(MessagePosted("left", delivery="steering"), OWNER),
    said(InterruptRequested(RUN), OWNER),
    NewEvent(REQUESTED, RUNNING.principal, run_id=RUN),
    said(QueuedPromoted(2, RUN), OWNER),
    said(DECIDED, OWNER, RUN),
)
STEERING, INTERRUPT, PROMOTED = SteeringDelivery(5, "left"), InterruptDelivery(6), SteeringDelivery(2, "docs next")
DECISION = DecisionDelivery(9, "a1", allow=True, action_digest=DIGEST, reason="fine")


def left_by(*events: Any) -> list[int]:
    """The refs that wait after more events."""
    run = given(*LOG, *events).state.run
    return [] if run is None else [each.ref for each in run.deliveries]


def ack(kind: AckKind, ref: int, run_id: str = RUN) -> Any:
    """An acknowledgement as a run's bridge pushed it."""
    return pushed("status:1", DeliveryAcknowledged(ref, kind), run_id)


def test_deliveries_wait_in_the_order_in_which_they_came_about() -> None:
    assert given(*LOG).state.run.deliveries == (STEERING, INTERRUPT, PROMOTED, DECISION)
    assert given(*LOG).state.run.prompted_by == ("human:olga", "human:carl")


@pytest.mark.parametrize(
    ("kind", "ref"),
    [
        ("delivered", 5),
        ("delivered", 2),
        ("interrupted", 6),
        ("decision_applied", 9),
        ("undeliverable", 5),
        ("undeliverable", 6),
        ("undeliverable", 9),
    ],
)
def test_an_acknowledgement_ends_its_delivery_and_no_other(kind: AckKind, ref: int) -> None:
    assert left_by(ack(kind, ref)) == [each for each in (5, 6, 2, 9) if each != ref]
    assert left_by(ack(kind, ref), ack(kind, ref)) == left_by(ack(kind, ref))


@pytest.mark.parametrize(
    "claim",
    [
        ack("delivered", 6),
        ack("delivered", 9),
        ack("interrupted", 5),
        ack("decision_applied", 5),
        ack("undeliverable", 4),
        ack("delivered", 5, NEXT_RUN),
        said(DeliveryAcknowledged(5, "delivered"), RUNNING, RUN),
        pushed("status:1", DeliveryAcknowledged()),
    ],
    ids=[
        "an interrupt as a message", "a decision as a message", "a message as an interrupt",
        "a message as a decision", "nothing", "another run's", "one without a number", "one without a ref",
    ],
)  # fmt: skip
def test_a_claim_that_fits_no_delivery_changes_nothing(claim: Any) -> None:
    assert left_by(claim) == [5, 6, 2, 9]


@pytest.mark.parametrize("decision", ["denied", "expired"])
def test_a_rejection_is_delivered_too(decision: ApprovalOutcome) -> None:
    log = (*LOG[:-1], said(ApprovalDecided("a1", DIGEST, decision), OWNER, RUN))
    assert given(*log).state.run.deliveries[-1] == DecisionDelivery(9, "a1", allow=False, action_digest=DIGEST)


@pytest.mark.parametrize(
    "decided",
    [
        said(ApprovalDecided("a1", DIGEST, "superseded"), OWNER, RUN),
        NewEvent(DECIDED, Principal("system", "policy"), run_id=RUN),
        said(ApprovalDecided("a2", DIGEST, "approved"), OWNER, RUN),
    ],
    ids=["superseded", "the run has it already", "of no request"],
)
def test_other_decisions_are_sent_to_nobody(decided: Any) -> None:
    assert [each.ref for each in given(*LOG[:-1], decided).state.run.deliveries] == [5, 6, 2]


def test_the_first_decision_is_the_one_that_is_sent() -> None:
    assert left_by(said(ApprovalDecided("a1", DIGEST, "denied"), COLLABORATOR, RUN)) == [5, 6, 2, 9]


def test_a_decision_on_what_another_run_asked_is_not_for_this_one() -> None:
    other = NewEvent(REQUESTED, Principal("agent", NEXT_RUN), run_id=NEXT_RUN)
    assert given(OPENED, other, *STARTED, said(DECIDED, OWNER, RUN)).state.run.deliveries == ()


def test_what_a_run_did_not_get_is_not_for_the_next() -> None:
    assert given(*LOG, RunEnded(RUN, "lost")).state.run is None


def test_agents_never_talk_to_each_other() -> None:
    for delivery in ("queued", "steering"):
        forged = pushed("events:1", MessagePosted("do it", delivery=delivery))
        state = given(*LOG, forged).state
        assert ([each.ref for each in state.run.deliveries], state.queue) == ([5, 6, 2, 9], ())


def test_words_that_are_erased_wait_no_longer() -> None:
    assert left_by(PayloadErased(5)) == [6, 2, 9]
    queued = given(*LOG[:4], PayloadErased(2)).state
    assert queued.queue == ()
