"""What a run's bridge may push, and what becomes of what cannot be stored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from minutebook.domain.errors import Forbidden, Invalid, RunNotLive
from minutebook.domain.events import Unstorable
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.approval_events import ApprovalDecided, ApprovalRequested
from minutebook.domain.rooms.context import Limits, NewEvent
from minutebook.domain.rooms.events import (
    ROOM_EVENTS,
    DeliveryAcknowledged,
    HarnessReported,
    MessagePosted,
    ParticipantLeft,
    RunEnded,
    ToolCalled,
    ToolReturned,
    TurnReported,
)
from room_scenes import (
    NEXT_RUN,
    OPENED,
    OWNER,
    RUN,
    RUNNING,
    STARTED,
    WATCHER,
    agent,
    given,
    pushed,
    pushing,
    said,
)

CALL = {"callId": "c1", "tool": "bash", "args": {"command": "ls"}, "decidedBy": "policy"}
RESULT = {"callId": "c1", "status": "ok", "output": "a\n", "truncated": False, "bytes": 2}
TURN = {"runId": RUN, "turnId": "t1", "phase": "started"}
SAID: dict[str, Any] = {"kind": "chat", "text": "done", "to": [], "delivery": "none"}
RUNNING_ROOM = given(OPENED, *STARTED)


def test_items_are_recorded_in_order_with_their_numbers() -> None:
    decision = RUNNING_ROOM.when(
        pushing(
            ("events:1", "turn", TURN),
            ("events:2", "tool_call", CALL),
            ("status:1", "state_changed", {"kind": "harness_status", "phase": "busy"}),
            ("events:3", "tool_result", RESULT),
            ("events:4", "message", SAID),
        )
    ).then(
        TurnReported(RUN, "t1", "started"),
        ToolCalled("c1", "bash", {"command": "ls"}, "policy"),
        HarnessReported("harness_status"),
        ToolReturned("c1", "ok", "a\n", False, 2),
        MessagePosted("done"),
    )
    assert decision.answer == {"afterHarnessSeq": 4, "afterStatusSeq": 1}
    assert [new.origin_key for new in decision.events] == ["events:1", "events:2", "status:1", "events:3", "events:4"]
    assert {(new.origin, new.origin_client, new.run_id, new.actor_role) for new in decision.events} == {
        ("harness", RUN, RUN, "implementer")
    }
    assert decision.events[2].payload() == {"kind": "harness_status", "phase": "busy"}


def test_what_is_stored_already_is_acknowledged_and_added_once() -> None:
    room = given(OPENED, *STARTED, pushed("events:2", TurnReported(RUN, "t1", "started")))
    decision = room.when(
        pushing(("events:1", "tool_call", CALL), ("events:2", "turn", TURN), ("events:3", "tool_result", RESULT))
    ).then(ToolReturned("c1", "ok", "a\n", False, 2))
    assert decision.answer == {"afterHarnessSeq": 3, "afterStatusSeq": 0}


def test_what_a_bridge_leaves_out_is_in_the_log() -> None:
    """Readers tell a stored message from other kinds by its `kind`."""
    decision = RUNNING_ROOM.when(pushing(("events:1", "message", {"text": "done"}))).then(MessagePosted("done"))
    stored = msgspec.json.encode(decision.events[0].payload())
    assert msgspec.json.decode(stored) == SAID
    assert ROOM_EVENTS.decode("message", 1, stored) == MessagePosted("done")


def test_a_heartbeat_adds_nothing() -> None:
    assert RUNNING_ROOM.when(pushing()).then_nothing().answer == {"afterHarnessSeq": 0, "afterStatusSeq": 0}


def test_b06_a_number_that_comes_too_late_in_its_batch_is_refused_not_lost() -> None:
    batch = pushing(("events:2", "tool_call", CALL), ("events:1", "turn", TURN))
    RUNNING_ROOM.when(batch).then_refused(Invalid, "$.items[1].seq")
    RUNNING_ROOM.when(pushing(("events:2", "tool_call", CALL), ("status:1", "turn", TURN))).decided()


@pytest.mark.parametrize(
    ("type_", "payload", "path"),
    [
        ("participant", {"principal": "human:eve", "change": "joined"}, "$.items[1].type"),
        ("driver", {"to": "human:eve"}, "$.items[1].type"),
        ("approval_decided", {"decision": "approved"}, "$.items[1].type"),
        ("handoff", {}, "$.items[1].type"),
        ("restricted", {}, "$.items[1].type"),
        ("state_changed", {"kind": "room_phase", "phase": "closed"}, "$.items[1].payload"),
        ("state_changed", {"kind": "run_phase", "phase": "ended"}, "$.items[1].payload"),
        ("state_changed", {"kind": "limit", "limit": "bytes"}, "$.items[1].payload"),
        ("state_changed", {"kind": "payload_erased", "erasedSeq": 1}, "$.items[1].payload"),
        ("state_changed", {"kind": "hold_set", "reason": "x"}, "$.items[1].payload"),
        ("state_changed", {"kind": "delivered"}, "$.items[1].payload.ref"),
        ("state_changed", {"kind": "delivered", "ref": "5"}, "$.items[1].payload"),
        ("state_changed", {"kind": "delivered", "ref": 5, "Ref": 6}, "$.items[1].payload"),
        ("message", {**SAID, "kind": "task_state"}, "$.items[1].payload"),
        ("message", {**SAID, "delivery": "queued"}, "$.items[1].payload"),
        ("state_changed", {"words": 1}, "$.items[1].payload.kind"),
        ("message", {**SAID, "kind": "review_verdict"}, "$.items[1].payload"),
        ("message", {**SAID, "delivery": "steering"}, "$.items[1].payload"),
        ("message", {**SAID, "Text": "two"}, "$.items[1].payload"),
        ("tool_call", {**CALL, "decidedBy": "somebody"}, "$.items[1].payload"),
        ("tool_call", [], "$.items[1].payload"),
        ("tool_result", {**RESULT, "status": "fine"}, "$.items[1].payload"),
        ("turn", {**TURN, "runId": NEXT_RUN}, "$.items[1].payload.runId"),
        ("state_changed", {"kind": "harness_status", "runId": NEXT_RUN}, "$.items[1].payload.runId"),
        ("state_changed", {"kind": "harness_event", "Kind": "room_phase"}, "$.items[1].payload"),
        ("state_changed", {"kind": "harness_event", "\uff4bind": "room_phase"}, "$.items[1].payload"),
        ("state_changed", {"kind": "harness_event", "RUNID": RUN}, "$.items[1].payload"),
    ],
    ids=str,
)
def test_a_bridge_forges_nothing(type_: str, payload: Any, path: str) -> None:
    batch = pushing(("events:1", "turn", TURN), ("events:2", type_, payload))
    RUNNING_ROOM.when(batch).then_refused(Invalid, path)


def test_what_lies_deeper_is_data() -> None:
    environment = {"http_proxy": "a", "HTTP_PROXY": "b", "kind": 1, "Kind": 2}
    decision = RUNNING_ROOM.when(
        pushing(("events:1", "state_changed", {"kind": "harness_event", "environment": environment}))
    ).decided()
    assert decision.events[0].payload()["environment"] == environment


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"kind":"harness_event","n":1e999}', "number"),
        (b'{"kind":"harness_event","n":18446744073709551616}', "number"),
        (b'{"kind":"harness_event","a":1,"a":2}', "duplicate_key"),
        (b'{"kind":"harness_event","a":' + b"[" * 5000 + b"]" * 5000 + b"}", "depth"),
        (b'{"kind":"harness_event","a":NaN}', "syntax"),
        (b'{"kind":"harness_event","a":1,"a\\u0000":2}', "duplicate_key"),
        (b'{"kind":"harness_event","\\ud800":1,"\\udfff":2}', "duplicate_key"),
        (b'{"kind":"harness_event","\\ud800":1,"a":1,"a\\u0000":2}', "duplicate_key"),
    ],
    ids=["infinity", "big integer", "twice", "deep", "nan", "twice without NUL", "twice repaired", "both"],
)
def test_b42_b44_b45_what_cannot_be_stored_keeps_its_place(raw: bytes, reason: str) -> None:
    decision = RUNNING_ROOM.when(pushing(("events:1", "state_changed", raw), ("events:2", "tool_call", CALL))).decided()
    body = {"refused": True, "type": "state_changed", "reason": reason}
    assert decision.events[0].event == Unstorable("state_changed", body)
    assert decision.events[0].payload() == body
    assert decision.answer["afterHarnessSeq"] == 2


def test_b42_nul_is_dropped_and_surrogates_are_replaced() -> None:
    raw = b'{"callId":"c1","status":"ok","output":"a\\u0000b\\ud800c","truncated":false,"bytes":4}'
    RUNNING_ROOM.when(pushing(("events:1", "tool_result", raw))).then(ToolReturned("c1", "ok", "ab\ufffdc", False, 4))


def test_too_large_a_payload_keeps_its_place_and_its_size() -> None:
    big = {**SAID, "text": "ü" * 600}
    decision = RUNNING_ROOM.when(pushing(("events:1", "message", big), limits=Limits(payload_bytes=1024))).decided()
    assert decision.events[0].payload() == {"oversize": True, "bytes": 1200 + 51, "type": "message"}
    assert decision.answer["afterHarnessSeq"] == 1


def test_the_edge_is_in_bytes() -> None:
    exact = {**SAID, "text": "ü" * 486}
    decision = RUNNING_ROOM.when(pushing(("events:1", "message", exact), limits=Limits(payload_bytes=1024))).decided()
    assert decision.events[0].event == MessagePosted("ü" * 486)


def test_a_result_has_the_class_of_its_call_and_every_class_where_the_call_is_unknown() -> None:
    room = given(OPENED, *STARTED, pushed("events:1", ToolCalled("c1", "vault", {}, None)))
    batch = (
        ("events:2", "tool_result", RESULT),
        ("events:3", "tool_call", {**CALL, "callId": "c2", "tool": "vault"}),
        ("events:4", "tool_result", {**RESULT, "callId": "c2"}),
        ("events:5", "tool_result", {**RESULT, "callId": "c9"}),
        ("events:6", "message", SAID),
    )
    decision = room.when(pushing(*batch, tool_classes={"vault": "secret", "payroll": "hr"})).decided()
    assert [new.classes for new in decision.events] == [("secret",), ("secret",), ("secret",), ("hr", "secret"), ()]


def test_what_stands_for_a_call_that_could_not_be_stored_has_its_class() -> None:
    batch = (
        ("events:1", "tool_call", {**CALL, "tool": "vault", "args": "x" * 2000}),
        ("events:2", "tool_call", {**CALL, "args": "x" * 2000}),
        ("events:3", "tool_call", b'{"callId":"c1","tool":"vault","args":1e999,"decidedBy":null}'),
        ("events:4", "tool_result", b'{"callId":"c1","callId":"c2"}'),
        ("events:5", "message", {**SAID, "text": "x" * 2000}),
    )
    tools = {"vault": "secret", "payroll": "hr"}
    decision = RUNNING_ROOM.when(pushing(*batch, tool_classes=tools, limits=Limits(payload_bytes=1024))).decided()
    assert all(isinstance(new.event, Unstorable) for new in decision.events)
    every = ("hr", "secret")
    assert [new.classes for new in decision.events] == [("secret",), (), every, every, ()]


def test_a_claimed_class_or_cause_gives_no_right() -> None:
    claims = {**CALL, "class": "public", "risk": "none"}
    decision = RUNNING_ROOM.when(pushing(("events:1", "tool_call", claims), tool_classes={"bash": "secret"})).decided()
    assert decision.events[0].classes == ("secret",)


def test_only_the_running_run_pushes() -> None:
    ended = given(OPENED, *STARTED, RunEnded(RUN, "lost"), ParticipantLeft(f"agent:{RUN}"))
    ended.when(pushing(("events:1", "turn", TURN))).then_refused(RunNotLive)
    other = {**TURN, "runId": NEXT_RUN}
    RUNNING_ROOM.when(pushing(("events:1", "turn", other), caller=agent(NEXT_RUN))).then_refused(RunNotLive)


@pytest.mark.parametrize("caller", [OWNER, WATCHER], ids=str)
def test_no_person_pushes(caller: Caller) -> None:
    RUNNING_ROOM.when(pushing(caller=caller)).then_refused(Forbidden)


def test_acknowledgements_are_folded_from_what_is_stored() -> None:
    steering = said(MessagePosted("left", delivery="steering"), OWNER)
    room = given(OPENED, *STARTED, steering)
    acknowledged = {"kind": "delivered", "ref": 4, "note": "read"}
    decision = room.when(pushing(("status:1", "state_changed", acknowledged))).then(DeliveryAcknowledged(4))
    assert decision.events[0].payload() == acknowledged
    assert given(*room.events, *decision.events).state.run.deliveries == ()


def test_a_result_supersedes_the_request_for_its_call() -> None:
    digest = "ab" * 32
    waits = ApprovalRequested("a1", "c1", "forge.pr", {}, digest, (), "2026-03-01T12:30:00.000000Z")
    other = msgspec.structs.replace(waits, approval_id="a2", call_id="c2")
    asked = (NewEvent(each, RUNNING.principal, run_id=RUN) for each in (waits, other))
    room = given(OPENED, *STARTED, *asked)
    result = ToolReturned("c1", "ok", "x", truncated=False, bytes=1)
    decision = room.when(pushing(("events:1", "tool_result", result.payload()))).then(
        result, ApprovalDecided("a1", digest, "superseded")
    )
    state = given(*room.events, *decision.events).state
    assert (list(state.approvals.pending), state.run.deliveries) == (["a2"], ())
