"""A run asks leave for one call: once each, bound to its arguments, answered at once where the policy says so."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest
from approval_scenes import (
    ACTION,
    APPROVER,
    ASK,
    DIGEST,
    EXPIRED,
    TOOL_CLASSES,
    after,
    asking,
    deciding,
    given,
    only,
    opened,
    requested_by,
    running,
    told,
    waiting,
)
from hypothesis import given as for_all
from hypothesis import strategies as st
from minutebook.domain.errors import Forbidden, KeyReused, MinutebookError, NotVisible, RunNotLive, TooManyPending
from minutebook.domain.principals import SERVER, Caller, Principal
from minutebook.domain.rooms.approval_events import ApprovalDecided, ApprovalRequested
from minutebook.domain.rooms.approval_policy import ACTION_CLASSES
from minutebook.domain.rooms.approvals import action_digest, request_key, stamp
from minutebook.domain.rooms.context import Timeouts
from minutebook.domain.rooms.decide_approvals import MAX_PENDING, RequestApproval, request_approval
from minutebook.domain.rooms.events import (
    MessagePosted,
    ParticipantJoined,
    RoomClosed,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
)
from room_scenes import (
    FRESH_ULID,
    NEXT_RUN,
    NOW,
    OTHER_ROOM,
    OWNER,
    RUN,
    RUNNING,
    STARTED,
    SYSTEM,
    agent,
    context_of,
    pushed,
    pushing,
    said,
)

REQUESTED = ApprovalRequested(FRESH_ULID, "c1", "forge.pr", ACTION, DIGEST, (), "2026-03-01T12:30:00.000000Z")
WAITS = {"approvalId": FRESH_ULID, "actionDigest": DIGEST, "expiresAt": "2026-03-01T12:30:00.000000Z"}
ALL_HUMAN: dict[str, Any] = {"overrides": dict.fromkeys(ACTION_CLASSES, "human")}


def numbered(number: int, **changes: Any) -> Any:
    """Another request of the same run, with an id of its own."""
    fields = {"event_id": f"e{number}", "call_id": f"c{number}", **changes}
    return asking(msgspec.structs.replace(ASK, **fields), fresh=f"{FRESH_ULID[:-4]}{number:04}")


def test_a_request_waits_for_a_person() -> None:
    decision = running().when(asking()).then(REQUESTED)
    assert decision.answer == WAITS
    (new,) = decision.events
    assert (new.actor, new.actor_role, new.run_id, new.origin) == (RUNNING.principal, "implementer", RUN, "client")
    assert (new.origin_client, new.origin_key) == (RUN, request_key("e1"))


def test_law_28_of_the_bridges_number_only_a_digest_is_stored() -> None:
    """It is a text that a harness chose, and no redaction looks at keys."""
    ask = msgspec.structs.replace(ASK, event_id="ghp_0123456789abcdefghij0123456789abcdef")
    (new,) = running().when(asking(ask)).decided().events
    assert new.origin_key == f"approval-request:{hashlib.sha256(ask.event_id.encode()).hexdigest()[:32]}"
    assert "ghp_" not in repr(new)


def test_the_digest_is_of_the_id_and_the_canonical_action() -> None:
    """What a bridge written in another language recomputes."""
    canonical = json.dumps(ACTION, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256((FRESH_ULID + canonical).encode()).hexdigest() == DIGEST


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@for_all(_values, _values)
def test_law_24_another_action_has_another_digest(one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (action_digest(FRESH_ULID, one) == action_digest(FRESH_ULID, other)) is same
    assert action_digest(FRESH_ULID, one) != action_digest(f"{FRESH_ULID[:-1]}0", one)


def test_the_order_of_members_makes_no_difference() -> None:
    turned = {"args": dict(reversed(ACTION["args"].items())), "tool": ACTION["tool"]}  # type: ignore[union-attr]
    assert action_digest(FRESH_ULID, turned) == DIGEST


@pytest.mark.parametrize("action_class", ACTION_CLASSES)
@pytest.mark.parametrize(("effect", "outcome"), [("allow", "approved"), ("deny", "denied")])
def test_the_policy_answers_at_once(action_class: Any, effect: str, outcome: Any) -> None:
    ask = msgspec.structs.replace(ASK, class_=action_class)
    decision = (
        running(overrides={action_class: effect})
        .when(asking(ask))
        .then(msgspec.structs.replace(REQUESTED, class_=action_class), ApprovalDecided(FRESH_ULID, DIGEST, outcome))
    )
    assert decision.answer == {**WAITS, "decision": outcome}
    decided = decision.events[1]
    assert (decided.actor, decided.run_id, decided.caused_by) == (Principal("system", "policy"), RUN, 4)
    assert (decided.origin_client, decided.origin_key) == ("minutebook", f"approval:{FRESH_ULID}")


def test_an_answer_at_once_is_not_delivered_again() -> None:
    room = after(running(overrides={"forge.pr": "allow"}), asking())
    assert only(room).decision == "approved"
    assert told(room) == []


@pytest.mark.parametrize(
    ("policy", "expires_at"),
    [
        ({}, "2026-03-01T12:30:00.000000Z"),
        ({"ttl": "9h"}, "2026-03-01T12:30:00.000000Z"),
        ({"profile": "unattended", **ALL_HUMAN}, "2026-03-01T16:00:00.000000Z"),
        ({"profile": "unattended", "ttl": "2d", **ALL_HUMAN}, "2026-03-03T12:00:00.000000Z"),
    ],
    ids=str,
)
def test_it_expires_by_the_profile_of_the_room(policy: dict[str, Any], expires_at: str) -> None:
    assert running(**policy).when(asking()).decided().answer["expiresAt"] == expires_at


def test_texts_of_moments_compare_as_moments() -> None:
    assert stamp(NOW) == "2026-03-01T12:00:00.000000Z"
    assert stamp(NOW) < stamp(NOW.replace(microsecond=1)) < stamp(EXPIRED)


def test_the_same_request_again_is_the_same() -> None:
    again = waiting().when(asking(fresh="01J000000000000000000OTHER", now=EXPIRED)).then_nothing()
    assert again.answer == WAITS


@pytest.mark.parametrize("outcome", ["approved", "denied"])
def test_the_same_request_again_hears_what_was_decided(outcome: str) -> None:
    room = after(waiting(), deciding(decision=outcome))
    assert room.when(asking()).then_nothing().answer == {**WAITS, "decision": outcome}


@pytest.mark.parametrize(
    "changes", [{"action": {"tool": "delete"}}, {"call_id": "c2"}, {"class_": "forge.other"}], ids=str
)
def test_a_number_stands_for_one_action(changes: dict[str, Any]) -> None:
    waiting().when(asking(msgspec.structs.replace(ASK, **changes))).then_refused(KeyReused)


def test_runs_number_their_requests_each_for_itself() -> None:
    room = after(waiting(), deciding())
    next_run = (
        RunEnded(RUN, "finished"),
        ParticipantJoined(f"agent:{NEXT_RUN}", "reviewer"),
        RunStarted(NEXT_RUN, "reviewer"),
    )
    fresh = "01J00000000000000000000NEW"
    decision = given(*room.events, *next_run).when(asking(caller=agent(NEXT_RUN), fresh=fresh)).decided()
    assert decision.answer["approvalId"] == fresh
    assert "decision" not in decision.answer


def test_it_names_who_prompted_the_run() -> None:
    room = given(opened(), *requested_by("carl", "wanda", "carl"), *STARTED)
    room = given(*room.events, said(MessagePosted("Now!", delivery="steering"), OWNER))
    (requested,) = room.when(asking()).decided().events
    assert requested.event.prompted_by == ("human:carl", "human:wanda", "human:olga")


def test_a_bounded_number_waits() -> None:
    room = after(running(), *(numbered(n) for n in range(MAX_PENDING)))
    room.when(numbered(MAX_PENDING)).then_refused(TooManyPending)
    assert room.when(numbered(0, event_id="e0")).then_nothing().answer["approvalId"] == f"{FRESH_ULID[:-4]}0000"
    at_once = numbered(MAX_PENDING, class_="shell.high")
    assert room.when(at_once).decided().answer["decision"] == "approved"


def test_what_is_decided_and_not_heard_of_counts_too() -> None:
    """A bridge that acknowledges nothing cannot make the room remember without bound."""
    room = running()
    for n in range(MAX_PENDING):
        room = after(room, numbered(n))
        (asked,) = room.state.approvals.pending.values()
        room = after(room, deciding(approval_id=asked.approval_id, digest=asked.digest))
    room.when(numbered(MAX_PENDING)).then_refused(TooManyPending)
    ref = told(room)[0].ref  # type: ignore[attr-defined]
    applied = pushing(("status:1", "state_changed", {"kind": "decision_applied", "ref": ref}))
    after(room, applied).when(numbered(MAX_PENDING)).decided()


def test_a_call_that_has_its_result_needs_no_leave() -> None:
    done = (
        pushed("events:1", ToolCalled("c1", "bash", {}, None)),
        pushed("events:2", ToolReturned("c1", "ok", "", False, 0)),
    )
    decision = running(*done).when(asking()).then(REQUESTED, ApprovalDecided(FRESH_ULID, DIGEST, "superseded"))
    assert decision.answer == {**WAITS, "decision": "superseded"}
    assert decision.events[1].actor == SERVER
    called_again = pushed("events:3", ToolCalled("c1", "bash", {}, None))
    running(*done, called_again).when(asking()).then(REQUESTED)


@pytest.mark.parametrize(
    ("called", "classes"),
    [("vault", ("secret",)), ("bash", ("",)), ("editor", ()), (None, ("", "hr", "secret"))],
)
def test_law_14_a_request_has_the_class_of_its_tool(called: str | None, classes: tuple[str, ...]) -> None:
    calls = () if called is None else (pushed("events:1", ToolCalled("c1", called, {}, None)),)
    room = running(*calls, overrides={"forge.pr": "deny"})
    decision = room.when(asking(tool_classes=TOOL_CLASSES)).decided()
    assert [new.classes for new in decision.events] == [classes, classes]


@pytest.mark.parametrize(
    ("called", "named", "classes"),
    [
        (None, "vault", ("secret",)),
        (None, "editor", ()),
        ("vault", "vault", ("secret",)),
        ("vault", "editor", ("secret",)),
        ("editor", "vault", ("secret",)),
        ("vault", "salaries", ("hr", "secret")),
    ],
)
def test_law_14_a_named_tool_counts_beside_the_one_that_was_called(
    called: str | None, named: str, classes: tuple[str, ...]
) -> None:
    """A name takes nothing away from what the log knows of the call."""
    calls = () if called is None else (pushed("events:1", ToolCalled("c1", called, {}, None)),)
    ask = msgspec.structs.replace(ASK, tool=named)
    decision = running(*calls).when(asking(ask, tool_classes=TOOL_CLASSES)).then(REQUESTED)
    assert [new.classes for new in decision.events] == [classes]


def test_law_14_a_call_that_is_not_in_the_log_yet_is_of_every_class() -> None:
    """Only who is cleared for all of them sees what is asked for it, and decides."""
    room = waiting(ask=asking(tool_classes={"vault": "secret", "salaries": "hr"}))
    half, cleared = (msgspec.structs.replace(APPROVER, labels=frozenset(names)) for names in (["hr"], ["hr", "secret"]))
    room.when(deciding(half)).then_refused(NotVisible)
    (decided,) = room.when(deciding(cleared)).then(ApprovalDecided(FRESH_ULID, DIGEST, "approved")).events
    assert decided.classes == ("hr", "secret")


def test_the_settings_say_how_long_a_request_waits_in_an_attended_room() -> None:
    def ask(room: Any, version: int) -> Any:
        context = context_of(RUNNING, version)
        return request_approval(room, ASK, msgspec.structs.replace(context, timeouts=Timeouts(attended_s=90)), {})

    assert running(ttl="9h").when(ask).decided().answer["expiresAt"] == "2026-03-01T12:01:30.000000Z"


@pytest.mark.parametrize(
    ("caller", "refusal"),
    [
        (agent(NEXT_RUN), RunNotLive),
        (agent(room_id=OTHER_ROOM), NotVisible),
        (OWNER, Forbidden),
        (SYSTEM, Forbidden),
    ],
    ids=["a run that waits", "another room's run", "an owner", "a system"],
)
def test_only_the_running_run_asks(caller: Caller, refusal: type[MinutebookError]) -> None:
    running().when(asking(caller=caller)).then_refused(refusal)


def test_a_closed_room_hears_nothing() -> None:
    running(RunEnded(RUN, "room_closed"), RoomClosed()).when(asking()).then_refused(RunNotLive)


@pytest.mark.parametrize(
    "body",
    [
        {"eventId": "", "callId": "c", "class": "forge.pr", "action": {}},
        {"eventId": "e", "callId": "c", "class": "forge.everything", "action": {}},
        {"eventId": "e", "callId": "c", "class": "forge.pr"},
        {"eventId": "e", "callId": "c", "class": "forge.pr", "action": {}, "expiresAt": "2099"},
        {"eventId": "e", "callId": "c", "class": "forge.pr", "action": {}, "tool": ""},
        {"eventId": "e", "callId": "c", "class": "forge.pr", "action": {}, "tool": "t" * 257},
        {"eventId": "e" * 129, "callId": "c", "class": "forge.pr", "action": {}},
    ],
    ids=str,
)
def test_what_is_no_request_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(body, RequestApproval)
