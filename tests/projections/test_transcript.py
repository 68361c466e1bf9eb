"""The transcript: one line an event, in words; what was erased has none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from folds import STREAM, given, log_of
from hypothesis import given as examples
from hypothesis import strategies as st
from minutebook.domain.errors import Damaged
from minutebook.domain.events import Event, Unstorable
from minutebook.domain.rooms.context import NewEvent
from minutebook.domain.rooms.events import (
    ROOM_EVENTS,
    DriverMoved,
    HarnessReported,
    MessagePosted,
    PayloadErased,
    RoomClosed,
    ToolCalled,
    ToolReturned,
)
from minutebook.projections.ports import LogEvent
from minutebook.projections.transcript import MAX_BODY_CHARS, Transcript
from room_samples import EVENTS, FULL
from room_scenes import OPENED, OWNER, RUN, RUNNING, pushed

TRANSCRIPT = Transcript()

LINES = {
    "RoomOpened": ("room opened", "Release 2"),
    "RoomClosed": ("room closed", "done"),
    "LimitReached": ("limit reached", "concurrent_run"),
    "ParticipantJoined": ("joined", "human:nora as watcher"),
    "ParticipantRoleChanged": ("role changed", "human:nora is owner now"),
    "ParticipantLeft": ("left", "human:nora"),
    "RunStarted": ("run started", "runrunaa as implementer"),
    "RunEnded": ("run ended", "runrunaa: deadline"),
    "PayloadErased": ("payload erased", "of entry 7"),
    "MessagePosted": ("message", "Grüße, 世界 \u2028 \U0001f600"),
    "TurnReported": ("turn cancelled", "t1"),
    "ToolCalled": ("tool call bash", '{"command":"ls","deep":[1,2.5,null,true]}'),
    "ToolReturned": ("tool result rejected (cut from 70000 bytes)", "no"),
    "HoldSet": ("hold set", "lawsuit 7"),
    "HoldReleased": ("hold released", "settled"),
    "DriverRequested": ("driver requested", "human:carl"),
    "DriverMoved": ("driver taken", "human:olga to human:carl: she is on a plane"),
    "RunRequested": ("run requested", "runrunbb as reviewer"),
    "RunRegistered": ("run registered", "runrunbb as reviewer"),
    "VerdictGiven": ("verdict changes", "0a1b2c3d: Wrong sign."),
    "VerdictPosted": ("verdict posted", "of entry 14"),
    "VerdictNotPosted": ("verdict not posted", "of entry 14"),
    "QueuedRemoved": ("queued removed", "entry 4"),
    "QueuedPromoted": ("promoted", "entry 9"),
    "InterruptRequested": ("interrupt", "runrunaa"),
    "DeliveryAcknowledged": ("undeliverable", '{"ref":9,"kind":"undeliverable"}'),
    "HandoffRecorded": ("handoff to reviewer", "0a1b2c3d: Done but for the docs."),
    "ApprovalRequested": ("approval requested forge.pr", '{"title":"Fix"}'),
    "ApprovalDecided": ("approval denied", "not on a Friday"),
    "ForkedFrom": ("forked", "abcd2345 at 12"),
    "HarnessReported": ("policy decision", '{"kind":"policy_decision"}'),
}


@pytest.mark.parametrize("event", FULL, ids=lambda event: type(event).__name__)
def test_every_event_has_its_line(event: Event) -> None:
    heading, body = LINES[type(event).__name__]
    given(TRANSCRIPT, event).rows({"seq": 1, "type": event.type, "heading": heading, "body": body})


def test_no_event_is_left_out() -> None:
    assert {event.__name__ for event in ROOM_EVENTS.declared} == set(LINES)


def test_a_row_says_where_when_who_and_for_whom() -> None:
    secret = NewEvent(ToolReturned("c1", "ok", "x", False, 1), RUNNING.principal, run_id=RUN, classes=("hr", "secret"))
    given(TRANSCRIPT, OPENED, secret).rows(
        {"actor": "system:minutebook", "run_id": None, "classes": []},
        (
            STREAM.id, 2, "2026-01-02T03:04:02.000000Z", "tool_result", f"agent:{RUN}", RUN, ["hr", "secret"],
            "tool result ok", "x",
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("event", "heading", "body"),
    [
        (ToolCalled("c1", "bash", {"command": "ls -l"}, None), "tool call bash", "ls -l"),
        (ToolCalled("c1", "bash", {"command": ["ls"]}, None), "tool call bash", '{"command":["ls"]}'),
        (ToolCalled("c1", "x", None, None), "tool call x", "null"),
        (ToolReturned("c1", "ok", "", False, 0), "tool result ok", ""),
        (RoomClosed(), "room closed", ""),
        (MessagePosted("next", delivery="queued"), "queued message", "next"),
        (MessagePosted("now", delivery="steering"), "steering message", "now"),
        (DriverMoved("human:a", "human:b", 2, "lease_expired"), "driver lease expired", "human:a to human:b"),
        (HarnessReported("harness_paused"), "harness paused", '{"kind":"harness_paused"}'),
        (
            Unstorable("tool_call", {"refused": True, "type": "tool_call"}),
            "tool call",
            '{"refused":true,"type":"tool_call"}',
        ),
    ],
    ids=str,
)
def test_special_lines(event: Any, heading: str, body: str) -> None:
    given(TRANSCRIPT, event).rows({"heading": heading, "body": body})


def test_b79_an_event_of_another_version_is_shown_as_it_is() -> None:
    newer = msgspec.structs.replace(log_of([OPENED])[0], type="applause", version=3, payload='{"hands": 2}')
    given(TRANSCRIPT, newer).rows({"heading": "applause", "body": '{"hands": 2}'})


def test_b79_a_damaged_event_stops_the_fold() -> None:
    broken = msgspec.structs.replace(log_of([OPENED])[0], payload='{"kind": "room_phase", "phase": "open"}')
    with pytest.raises(Damaged):
        given(TRANSCRIPT, broken).table()


def test_a_body_is_bounded() -> None:
    given(TRANSCRIPT, MessagePosted("x" * (MAX_BODY_CHARS + 1))).rows({"body": "x" * MAX_BODY_CHARS})


def test_an_erasure_takes_the_words_of_the_row_that_it_names() -> None:
    said = NewEvent(MessagePosted("secret"), OWNER.principal)
    want = (
        {"seq": 1, "heading": "room opened"},
        {"seq": 2, "heading": "erased", "body": "", "actor": "human:olga", "type": "message"},
        {"seq": 3, "heading": "payload erased"},
    )
    given(TRANSCRIPT, OPENED, said, PayloadErased(2)).rows(*want)
    gone = msgspec.structs.replace(log_of([OPENED, said])[1], payload=None)
    given(TRANSCRIPT, OPENED, gone, PayloadErased(2)).rows(*want)


def erased(log: tuple[LogEvent, ...]) -> tuple[LogEvent, ...]:
    """The log once the eraser has been."""
    named = {
        event.erased_seq
        for each in log
        if each.payload is not None
        and isinstance(event := ROOM_EVENTS.decode(each.type, each.version, each.payload), PayloadErased)
        and event.erased_seq < each.seq
    }
    return tuple(msgspec.structs.replace(each, payload=None) if each.seq in named else each for each in log)


@pytest.mark.parametrize("named", [1, 2], ids=["itself", "a later one"])
def test_an_erasure_names_only_what_came_before(named: int) -> None:
    folding = given(TRANSCRIPT, PayloadErased(named), MessagePosted("still here"))
    folding.rows({"heading": "payload erased"}, {"heading": "message", "body": "still here"})
    assert folding.table(1) == folding.table()


ERASING = EVENTS | st.builds(PayloadErased, st.integers(1, 6))


@examples(st.lists(ERASING, min_size=1, max_size=8), st.data())
def test_batches_make_no_difference_and_a_rebuild_after_erasure_neither(
    events: list[Event], data: st.DataObject
) -> None:
    folding = given(TRANSCRIPT, *events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=4)))
    by_event = folding.table(*range(1, len(events)))
    assert folding.table() == by_event == folding.table(*cuts)
    assert by_event == type(folding)(TRANSCRIPT, erased(folding.log)).table()


def test_the_origin_of_an_item_makes_no_difference() -> None:
    bare, item = given(TRANSCRIPT, MessagePosted("x")), given(TRANSCRIPT, pushed("events:1", MessagePosted("x")))
    assert bare.table()[0]["body"] == item.table()[0]["body"] == "x"
