"""A decision on a request: the first valid one wins, for exactly what was asked, and never an agent's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from approval_scenes import (
    APPROVER,
    DIGEST,
    EXPIRED,
    LATER,
    OTHER_APPROVER,
    TOOL_CLASSES,
    after,
    asking,
    deciding,
    given,
    only,
    opened,
    requested_by,
    told,
    waiting,
)
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from minutebook.domain.errors import (
    AlreadyDecided,
    ClientNotAllowed,
    DigestMismatch,
    Forbidden,
    FourEyes,
    Invalid,
    MinutebookError,
    NotVisible,
    RunNotLive,
)
from minutebook.domain.events import Recorded
from minutebook.domain.principals import SERVER, Caller, Principal
from minutebook.domain.rooms.approval_events import ApprovalDecided
from minutebook.domain.rooms.approvals import Approvals, evolve_approvals
from minutebook.domain.rooms.commands import CloseRoom
from minutebook.domain.rooms.decide import close_room
from minutebook.domain.rooms.decide_approvals import ApprovalDecision, expire_approvals
from minutebook.domain.rooms.endings import end_of
from minutebook.domain.rooms.events import MessagePosted, RunEnded, ToolCalled
from minutebook.domain.rooms.run_state import DecisionDelivery
from room_scenes import (
    ADMIN,
    COLLABORATOR,
    FRESH_ULID,
    NEXT_RUN,
    NOW,
    OWNER,
    RUN,
    RUNNING,
    STARTED,
    STRANGER,
    SWEEP,
    SYSTEM,
    TENANT,
    WATCHER,
    agent,
    asked,
    context_of,
    human,
    pushed,
    said,
)

POLICY = Caller(Principal("system", "policy"), TENANT)


@pytest.mark.parametrize("decision", ["approved", "denied"])
def test_an_approver_decides(decision: Any) -> None:
    decided = (
        waiting()
        .when(deciding(decision=decision, reason="as agreed"))
        .then(ApprovalDecided(FRESH_ULID, DIGEST, decision, "as agreed"))
    )
    assert decided.answer == {"decision": decision}
    assert decided.refusal is None
    (new,) = decided.events
    assert (new.actor, new.run_id, new.caused_by, new.origin) == (APPROVER.principal, RUN, 4, "client")
    assert (new.origin_client, new.origin_key) == ("minutebook", f"approval:{FRESH_ULID}")


def test_the_bridge_hears_of_it_in_order() -> None:
    room = after(waiting(), deciding(decision="denied", reason="no"))
    assert told(room) == [DecisionDelivery(5, FRESH_ULID, False, DIGEST, "no")]


RIGHT: list[tuple[str, Caller, type[MinutebookError] | None]] = [
    ("approver", APPROVER, None),
    ("owner", OWNER, None),
    ("admin", ADMIN, None),
    ("policy", POLICY, None),
    ("watcher", WATCHER, Forbidden),
    ("collaborator", COLLABORATOR, Forbidden),
    ("system", SYSTEM, Forbidden),
    ("server", SWEEP, Forbidden),
    ("stranger", STRANGER, NotVisible),
    ("the run itself", RUNNING, Forbidden),
    ("another run", agent(NEXT_RUN), RunNotLive),
    ("an approver's client", human("anna", is_cli_client=True), ClientNotAllowed),
    ("another tenant's", human("anna", tenant="other"), NotVisible),
]


@pytest.mark.parametrize(("caller", "refusal"), [row[1:] for row in RIGHT], ids=[row[0] for row in RIGHT])
def test_who_decides(caller: Caller, refusal: type[MinutebookError] | None) -> None:
    asked_for = waiting().when(deciding(caller))
    if refusal is None:
        asked_for.then(ApprovalDecided(FRESH_ULID, DIGEST, "approved"))
    else:
        asked_for.then_refused(refusal)


def test_the_driver_decides_with_the_flag_alone() -> None:
    driver = msgspec.structs.replace(opened(), driver="human:carl")
    room = given(driver, *STARTED)
    room = after(room, asking())
    room.when(deciding(COLLABORATOR)).then_refused(Forbidden)


def test_sc_5_the_second_approver_hears_who_was_first() -> None:
    room = after(waiting(), deciding(APPROVER, "denied"))
    for caller in (OTHER_APPROVER, APPROVER, OWNER):
        error = room.when(deciding(caller, "approved")).then_refused(AlreadyDecided)
        assert error.attributes == {"decision": "denied"}


def test_law_24_a_decision_on_another_action_is_none() -> None:
    for digest in ("", "0" * 64, DIGEST.upper(), DIGEST[:-1]):
        waiting().when(deciding(digest=digest)).then_refused(DigestMismatch)


@pytest.mark.parametrize("approval_id", ["", "01J000000000000000000OTHER", FRESH_ULID.lower()])
def test_a_request_that_the_room_does_not_know_is_not_there(approval_id: str) -> None:
    waiting().when(deciding(approval_id=approval_id)).then_refused(NotVisible)


def test_a_long_reason_is_refused() -> None:
    waiting().when(deciding(reason="ä" * 129)).then_refused(Invalid, "$.reason")


@pytest.mark.parametrize("decision", ["approved", "denied"])
@pytest.mark.parametrize("late", [0, 1, 86_400])
def test_a_decision_at_or_after_the_expiry_appends_that_and_is_refused(decision: str, late: int) -> None:
    moment = EXPIRED + timedelta(seconds=late)
    decided = (
        waiting().when(deciding(decision=decision, now=moment)).then(ApprovalDecided(FRESH_ULID, DIGEST, "expired"))
    )
    assert decided.events[0].actor == SERVER
    assert isinstance(decided.refusal, AlreadyDecided)
    assert decided.refusal.attributes == {"decision": "expired"}


def test_a_moment_before_the_expiry_is_in_time() -> None:
    waiting().when(deciding(now=EXPIRED - EXPIRED.resolution)).then(ApprovalDecided(FRESH_ULID, DIGEST, "approved"))


def test_an_expiry_is_decided_once() -> None:
    room = after(waiting(), deciding(now=EXPIRED))
    error = room.when(deciding(now=EXPIRED)).then_refused(AlreadyDecided)
    assert error.attributes == {"decision": "expired"}
    assert told(room) == [DecisionDelivery(5, FRESH_ULID, False, DIGEST, None)]


def test_what_a_run_left_open_is_superseded() -> None:
    """Its end says so in the same append; this is for a log in which it does not."""
    room = waiting()
    decided = (
        given(*room.events, RunEnded(RUN, "lost"))
        .when(deciding())
        .then(ApprovalDecided(FRESH_ULID, DIGEST, "superseded"))
    )
    assert isinstance(decided.refusal, AlreadyDecided)


def test_a_closed_room_says_what_became_of_it() -> None:
    room = after(waiting(), asked(close_room, CloseRoom(), OWNER))
    error = room.when(deciding()).then_refused(AlreadyDecided)
    assert error.attributes == {"decision": "superseded"}
    room.when(deciding(approval_id="01J000000000000000000OTHER")).then_refused(NotVisible)


PROMPTERS = [("requested it", human("rita")), ("wrote what its brief quotes", human("anna")), ("steered it", OWNER)]


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("prompter", [row[1] for row in PROMPTERS], ids=[row[0] for row in PROMPTERS])
def test_four_eyes(prompter: Caller, is_on: bool) -> None:
    prompter = msgspec.structs.replace(prompter, is_admin=True)
    room = given(opened(four_eyes=is_on), *requested_by("rita", "anna"), *STARTED)
    room = given(*room.events, said(MessagePosted("Now!", delivery="steering"), OWNER))
    room = after(room, asking())
    if is_on:
        room.when(deciding(prompter)).then_refused(FourEyes)
        room.when(deciding(OTHER_APPROVER)).then(ApprovalDecided(FRESH_ULID, DIGEST, "approved"))
    else:
        room.when(deciding(prompter)).then(ApprovalDecided(FRESH_ULID, DIGEST, "approved"))


def test_four_eyes_see_who_steered_since() -> None:
    room = waiting(four_eyes=True)
    room = given(*room.events, said(MessagePosted("Now!", delivery="steering"), OWNER))
    room.when(deciding(OWNER)).then_refused(FourEyes)


def test_law_13_what_a_viewer_is_not_cleared_for_is_not_there() -> None:
    call = pushed("events:1", ToolCalled("c1", "vault", {}, None))
    room = waiting(call, ask=asking(tool_classes=TOOL_CLASSES))
    assert only(room).classes == ("secret",)
    room.when(deciding(APPROVER)).then_refused(NotVisible)
    cleared = msgspec.structs.replace(OTHER_APPROVER, labels=frozenset({"secret"}))
    after(room, deciding(cleared)).when(deciding(APPROVER)).then_refused(NotVisible)


@pytest.mark.parametrize(
    "step",
    [
        deciding(msgspec.structs.replace(APPROVER, labels=frozenset({"secret"}))),
        asked(expire_approvals, None, SWEEP, now=EXPIRED),
        asked(close_room, CloseRoom(), OWNER),
    ],
    ids=["a person", "time", "the end of the room"],
)
def test_law_14_a_decision_has_the_classes_of_its_request(step: Any) -> None:
    """Its digest tells a guesser what was asked for."""
    call = pushed("events:1", ToolCalled("c1", "vault", {}, None))
    room = waiting(call, ask=asking(tool_classes=TOOL_CLASSES))
    decided = [new for new in room.when(step).decided().events if isinstance(new.event, ApprovalDecided)]
    assert [new.classes for new in decided] == [("secret",)]


CALLERS = st.sampled_from([APPROVER, OTHER_APPROVER, OWNER, ADMIN])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["approved", "denied", "sweep", "end", "close"]),
        CALLERS,
        st.sampled_from([NOW, LATER, EXPIRED]),
        st.sampled_from([DIGEST, "0" * 64]),
    ),
    max_size=8,
)


@for_all(STEPS)
@settings(max_examples=200)
def test_b58_one_decision_whoever_comes_in_whatever_order(steps: list[Any]) -> None:
    room = waiting()
    heard: list[str] = []
    for kind, caller, now, digest in steps:
        match kind:
            case "sweep":
                step = asked(expire_approvals, None, SWEEP, now=now)
            case "end":
                context = context_of(SWEEP, len(room.events), now=LATER)
                room = given(*room.events, *end_of(room.state, RUN, "lost", context))
                continue
            case "close":
                step = asked(close_room, CloseRoom(), OWNER, now=now)
            case _:
                step = deciding(caller, kind, digest=digest, now=now)
        try:
            decision = room.when(step).decided()
        except AlreadyDecided as error:
            heard.append(error.attributes["decision"])
            continue
        except MinutebookError:
            continue
        if decision.refusal is not None:
            heard.append(decision.refusal.attributes["decision"])
        elif "decision" in decision.answer:
            heard.append(decision.answer["decision"])
        room = given(*room.events, *decision.events)
    decided = [new.event for new in room.events if isinstance(getattr(new, "event", None), ApprovalDecided)]
    assert len(decided) <= 1
    assert set(heard) <= {each.decision for each in decided}
    assert all(each.action_digest == DIGEST for each in decided)
    assert bool(decided) is (FRESH_ULID in room.state.approvals.settled)


@for_all(st.lists(st.sampled_from(["approved", "denied", "expired", "superseded"]), min_size=1, max_size=5))
def test_the_first_decision_in_a_log_is_the_decision(outcomes: list[Any]) -> None:
    """Whatever a log holds: a fold never changes its mind."""
    approvals: Approvals = waiting().state.approvals
    for seq, outcome in enumerate(outcomes, 5):
        event = ApprovalDecided(FRESH_ULID, DIGEST, outcome)
        approvals = evolve_approvals(approvals, Recorded(seq, SERVER, RUN, None, event))
    assert approvals.settled[FRESH_ULID].decision == outcomes[0]
    assert approvals.pending == {}


@pytest.mark.parametrize(
    "body",
    [
        {"decision": "expired", "actionDigest": DIGEST},
        {"decision": "approved"},
        {"decision": "approved", "actionDigest": DIGEST, "actor": "human:olga"},
        {"decision": "approved", "actionDigest": DIGEST, "reason": ""},
    ],
    ids=str,
)
def test_what_is_no_decision_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(body, ApprovalDecision)
