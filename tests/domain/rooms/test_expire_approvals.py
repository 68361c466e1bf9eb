"""The sweep of approvals, and what else ends a request without a person: its call's result, its run's end, the seal."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from approval_scenes import (
    APPROVER,
    ASK,
    DIGEST,
    EXPIRED,
    LATER,
    after,
    asking,
    deciding,
    given,
    running,
    told,
    waiting,
)
from minutebook.domain.errors import Forbidden, NotVisible
from minutebook.domain.principals import SERVER, Caller
from minutebook.domain.rooms.approval_events import ApprovalDecided, ApprovalRequested
from minutebook.domain.rooms.approvals import MAX_SETTLED, settle_for_close, supersede_calls, supersede_run
from minutebook.domain.rooms.decide_approvals import expire_approvals
from minutebook.domain.rooms.endings import end_of
from minutebook.domain.rooms.events import RunEnded, ToolReturned
from room_scenes import FRESH_ULID, OWNER, RUN, RUNNING, STRANGER, SWEEP, SYSTEM, asked, context_of, pushing

SUPERSEDED = ApprovalDecided(FRESH_ULID, DIGEST, "superseded")
SECOND = f"{FRESH_ULID[:-1]}2"
RESULT = {"callId": "c1", "status": "ok", "output": "", "truncated": False, "bytes": 0}


def sweeping(caller: Caller = SWEEP, now: Any = EXPIRED) -> Any:
    """The sweep, ready for `when`."""
    return asked(expire_approvals, None, caller, now=now)


def two_waiting() -> Any:
    """A room where two requests wait, of calls c1 and c2; the second was asked a minute later."""
    second = msgspec.structs.replace(ASK, event_id="e2", call_id="c2")
    return after(waiting(), asking(second, fresh=SECOND, now=LATER))


def test_sc_6_what_nobody_decided_in_time_expires() -> None:
    decision = two_waiting().when(sweeping()).then(ApprovalDecided(FRESH_ULID, DIGEST, "expired"))
    (new,) = decision.events
    assert (new.actor, new.run_id, new.caused_by, new.origin) == (SERVER, RUN, 4, "broker")
    assert (new.origin_client, new.origin_key) == ("minutebook", f"approval:{FRESH_ULID}")


def test_an_expiry_is_a_rejection_that_the_bridge_hears() -> None:
    (delivery,) = told(after(waiting(), sweeping()))
    assert delivery.allow is False  # type: ignore[attr-defined]


def test_nothing_is_swept_before_its_time_or_twice() -> None:
    waiting().when(sweeping(now=EXPIRED - EXPIRED.resolution)).then_nothing()
    after(waiting(), sweeping()).when(sweeping()).then_nothing()
    after(waiting(), deciding(APPROVER)).when(sweeping()).then_nothing()
    running().when(sweeping()).then_nothing()


def test_the_sweep_ends_what_a_run_left_behind() -> None:
    room = waiting()
    given(*room.events, RunEnded(RUN, "lost")).when(sweeping(now=LATER)).then(SUPERSEDED)


@pytest.mark.parametrize(
    ("caller", "refusal"), [(OWNER, Forbidden), (SYSTEM, Forbidden), (RUNNING, Forbidden), (STRANGER, NotVisible)]
)
def test_the_server_alone_sweeps(caller: Caller, refusal: Any) -> None:
    waiting().when(sweeping(caller)).then_refused(refusal)


def test_a_result_supersedes_the_request_of_its_call_alone() -> None:
    batch = pushing(("events:1", "tool_result", RESULT))
    decision = two_waiting().when(batch).then(ToolReturned("c1", "ok", "", truncated=False, bytes=0), SUPERSEDED)
    assert [new.origin for new in decision.events] == ["harness", "broker"]
    assert list(after(two_waiting(), batch).state.approvals.pending) == [SECOND]
    assert told(after(two_waiting(), batch)) == [], "a superseded decision is never sent"


def test_a_run_that_leaves_takes_its_requests_with_it() -> None:
    room = two_waiting()
    digest = room.state.approvals.pending[SECOND].digest
    events = end_of(room.state, RUN, "error", context_of(SWEEP, len(room.events), now=LATER))
    assert [new.event for new in events][:2] == [SUPERSEDED, ApprovalDecided(SECOND, digest, "superseded")]
    assert isinstance(events[2].event, RunEnded)
    assert given(*room.events, *events).state.approvals.pending == {}


@pytest.mark.parametrize("settle", [settle_for_close, lambda room, context: supersede_run(room, RUN, context)])
def test_what_expired_before_it_was_settled_did_expire(settle: Any) -> None:
    room = two_waiting()
    events = settle(room.state, context_of(SWEEP, len(room.events), now=EXPIRED))
    assert [new.event.decision for new in events] == ["expired", "superseded"]


def test_other_runs_and_calls_are_let_be() -> None:
    room = two_waiting()
    context = context_of(SWEEP, len(room.events), now=LATER)
    assert supersede_run(room.state, "runrunbb", context) == ()
    assert supersede_calls(room.state, {"c3"}, context) == ()
    assert [new.event.approval_id for new in supersede_calls(room.state, {"c2", "c3"}, context)] == [SECOND]  # type: ignore[union-attr]


def test_a_room_remembers_a_bounded_number_of_decisions() -> None:
    room = running()
    events: list[Any] = []
    for n in range(MAX_SETTLED + 2):
        asked_for = ApprovalRequested(f"id{n}", f"c{n}", "forge.pr", {}, DIGEST, (), "2026-03-01T12:30:00.000000Z")
        events += [asked_for, ApprovalDecided(f"id{n}", DIGEST, "denied")]
    settled = given(*room.events, *events).state.approvals.settled
    assert list(settled) == [f"id{n}" for n in range(2, MAX_SETTLED + 2)]
