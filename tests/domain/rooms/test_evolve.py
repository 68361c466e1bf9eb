"""How each event moves the room. evolve validates nothing and raises for no recorded event."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from minutebook.domain.errors import Damaged
from minutebook.domain.events import Opaque, Registry, Unstorable
from minutebook.domain.rooms.approval_policy import STRICTEST, ApprovalPolicy
from minutebook.domain.rooms.approvals import Approvals
from minutebook.domain.rooms.events import (
    ROOM_EVENTS,
    DriverMoved,
    DriverRequested,
    HarnessReported,
    HoldSet,
    LimitReached,
    MessagePosted,
    ParticipantJoined,
    ParticipantLeft,
    ParticipantRoleChanged,
    PayloadErased,
    RoomClosed,
    RoomEvent,
    RoomOpened,
    RunEnded,
    RunRequested,
    RunStarted,
    ToolCalled,
    ToolReturned,
    TurnReported,
)
from minutebook.domain.rooms.fork import ForkedFrom
from minutebook.domain.rooms.handoff import HandoffRecorded
from minutebook.domain.rooms.run_state import MAX_OPEN_CALLS, Run, RunRecord
from minutebook.domain.rooms.state import INITIAL, Member, Room, evolve
from room_samples import FULL
from room_scenes import OPENED, OWNER, RUN, STARTED, given, pushed, said

CALL = ToolCalled("c1", "bash", {}, None)
RESULT = ToolReturned("c1", "ok", "", False, 0)
SAID = MessagePosted("x")

OPEN: Room = given(OPENED).state
RUNNING: Room = given(OPENED, *STARTED).state


def moved(room: Room, event: Any) -> dict[str, Any]:
    """The fields that an event changes."""
    recorded = event if hasattr(event, "origin_key") else pushed("", event)
    recorded = recorded if recorded.origin_key else type(recorded)(1, recorded.actor, None, None, recorded.event)
    after = evolve(room, recorded)
    return {
        name: getattr(after, name) for name in Room.__struct_fields__ if getattr(after, name) != getattr(room, name)
    }


def run(**fields: Any) -> dict[str, Any]:
    """Only the run changed."""
    return {"run": Run(RUN, "implementer", **fields)}


@pytest.mark.parametrize(
    ("room", "event", "changes"),
    [
        (OPEN, RoomClosed("done"), {"is_open": False, "is_closed": True}),
        (OPEN, LimitReached("events"), {}),
        (OPEN, LimitReached("concurrent_run", "otherrun"), {"contenders": ("otherrun",)}),
        (
            OPEN,
            ParticipantJoined("human:nora", "watcher", True),
            {
                "members": {**OPEN.members, "human:nora": Member("watcher", approver=True)},
                "present": (*OPEN.present, "human:nora"),
            },
        ),
        (OPEN, ParticipantJoined(f"agent:{RUN}", "tester"), {"present": (*OPEN.present, f"agent:{RUN}")}),
        (
            OPEN,
            ParticipantRoleChanged("human:wanda", "owner", True),
            {"members": {**OPEN.members, "human:wanda": Member("owner", approver=True)}},
        ),
        (
            OPEN,
            ParticipantLeft("human:wanda"),
            {
                "members": {name: each for name, each in OPEN.members.items() if name != "human:wanda"},
                "present": tuple(name for name in OPEN.present if name != "human:wanda"),
            },
        ),
        (OPEN, ParticipantLeft("human:nobody"), {}),
        (OPEN, RunStarted(RUN, "implementer"), {**run(), "runs": {RUN: RunRecord("implementer", "running")}}),
        (RUNNING, RunEnded(RUN, "stuck"), {"run": None, "runs": {RUN: RunRecord("implementer", "ended", "stuck")}}),
        (RUNNING, RunEnded("otherrun", "lost"), {"runs": {**RUNNING.runs, "otherrun": RunRecord("", "ended", "lost")}}),
        (RUNNING, PayloadErased(1), {}),
        (RUNNING, SAID, {}),
        (RUNNING, pushed("events:4", SAID), run(events_seq=4)),
        (RUNNING, pushed("events:1", TurnReported(RUN, "t1", "started")), run(events_seq=1, open_turn="t1")),
        (RUNNING, pushed("events:1", CALL), run(events_seq=1, calls={"c1": "bash"})),
        (RUNNING, pushed("events:1", RESULT), run(events_seq=1, answered=("c1",))),
        (RUNNING, pushed("status:2", HarnessReported("harness_error")), run(status_seq=2)),
        (RUNNING, pushed("events:9", Unstorable("turn", {"refused": True})), run(events_seq=9)),
        (RUNNING, pushed("events:9", Opaque("turn", 2)), run(events_seq=9)),
        (RUNNING, pushed("events:1", SAID, run_id="otherrun"), {}),
        (RUNNING, pushed("elsewhere:1", SAID), {}),
        (RUNNING, pushed("events", SAID), {}),
        (OPEN, pushed("events:1", CALL), {}),
    ],
    ids=lambda value: type(getattr(value, "event", value)).__name__,
)
def test_what_an_event_changes(room: Room, event: Any, changes: dict[str, Any]) -> None:
    assert moved(room, event) == changes


def test_the_first_event_makes_the_room() -> None:
    assert INITIAL.is_open is False
    assert (OPEN.owner, OPEN.driver, OPEN.driver_epoch, OPEN.retention, OPEN.title) == (
        "human:olga", "human:olga", 1, "90d", None,
    )  # fmt: skip
    assert OPEN.members["human:olga"] == Member("owner")
    assert set(OPEN.present) == set(OPEN.members) == {"human:olga", "human:carl", "human:wanda"}


def test_a_turn_and_a_call_are_open_until_they_end() -> None:
    turn = [TurnReported(RUN, "t1", phase) for phase in ("started", "completed")]
    room = given(OPENED, *STARTED, pushed("events:1", turn[0]), pushed("events:2", CALL))
    assert room.state.run == Run(RUN, "implementer", 2, 0, "t1", {"c1": "bash"})
    room = given(*room.events, pushed("events:3", RESULT), pushed("events:4", turn[1]))
    assert room.state.run == Run(RUN, "implementer", 4, answered=("c1",))


def test_a_fork_keeps_the_history_and_nothing_that_is_under_way() -> None:
    room = given(
        OPENED,
        said(MessagePosted("next", delivery="queued"), OWNER),
        RunRequested("waitwait", "tester", (2,), 2, "human:olga"),
        *STARTED,
        said(HandoffRecorded("implementer", "tester", "Done.", "0a1b2c3d"), OWNER),
        said(MessagePosted("and then", delivery="queued"), OWNER),
        DriverMoved("human:olga", "system:triage", 2, "given"),
        DriverRequested("human:carl"),
        LimitReached("concurrent_run", "otherrun"),
        HoldSet("lawsuit"),
        RoomClosed(),
        ForkedFrom("zzzz7777", 12, "ab", "human:carl"),
    ).state
    assert (room.owner, room.driver, room.driver_epoch) == ("human:carl", "human:carl", 3)
    assert (room.members, room.present) == ({"human:carl": Member("owner")}, ("human:carl",))
    assert (room.run, room.runs, room.queue, room.approvals) == (None, {}, (), Approvals())
    assert (room.system_holder, room.driver_requests, room.contenders) == (None, (), ())
    assert (room.is_open, room.is_closed, room.is_held) == (True, False, False)
    assert (room.retention, room.last_handoff.text) == ("90d", "Done.")


def test_a_stored_policy_that_cannot_be_read_asks_people_for_everything() -> None:
    odd = msgspec.structs.replace(OPENED, approvals={"profile": "lenient"})
    assert given(odd).state.approval_settings == STRICTEST
    assert given(OPENED).state.approval_settings == ApprovalPolicy(ttl="4h")


def test_open_calls_are_bounded() -> None:
    calls = [pushed(f"events:{n}", ToolCalled(f"c{n}", "bash", {}, None)) for n in range(1, MAX_OPEN_CALLS + 3)]
    run_ = given(OPENED, *STARTED, *calls).state.run
    assert len(run_.calls) == MAX_OPEN_CALLS
    assert "c2" not in run_.calls
    assert f"c{MAX_OPEN_CALLS + 2}" in run_.calls


def test_no_collection_is_changed_in_place() -> None:
    before = msgspec.json.encode(RUNNING)
    for event in (ParticipantLeft("human:wanda"), RunEnded(RUN, "lost"), pushed("events:1", CALL)):
        moved(RUNNING, event)
    assert msgspec.json.encode(RUNNING) == before


@pytest.mark.parametrize("event", get_args(RoomEvent), ids=lambda event: event.__name__)
@pytest.mark.parametrize("room", [INITIAL, OPEN, RUNNING], ids=["no room", "open", "running"])
def test_every_declared_event_is_folded(event: type[Any], room: Room) -> None:
    samples = [each for each in SAMPLES if isinstance(each, event)]
    assert samples, f"no sample of {event.__name__}"
    for sample in samples:
        assert isinstance(evolve(room, pushed("events:1", sample)), Room)


SAMPLES = FULL


def test_b79_what_this_version_does_not_know_is_kept_as_opaque() -> None:
    assert ROOM_EVENTS.decode("applause", 1, b"{}") == Opaque("applause", 1)
    assert ROOM_EVENTS.decode("message", 2, b'{"words":[]}') == Opaque("message", 2)
    assert ROOM_EVENTS.decode("state_changed", 1, b'{"kind":"applauded"}') == Opaque("state_changed", 1)
    assert evolve(RUNNING, pushed("", Opaque("applause", 1))) == RUNNING


@pytest.mark.parametrize(
    "payload",
    [
        b'{"kind":"chat","text":1}',
        b'{"kind":"chat","text":"x","more":1}',
        b'{"kind":"chat"}',
        b'{"kind":[]}',
        b"{",
        b"null",
        b'"text"',
    ],
)
def test_b79_a_body_that_breaks_its_name_is_damage(payload: bytes) -> None:
    with pytest.raises(Damaged):
        ROOM_EVENTS.decode("message", 1, payload)


def test_a_name_is_declared_once() -> None:
    with pytest.raises(ValueError, match="two events"):
        Registry((RoomOpened, RoomClosed, RoomClosed))
