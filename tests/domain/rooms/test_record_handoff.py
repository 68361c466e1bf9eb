"""A run hands its work on, by the tool of its role; the room keeps the last handoff for the next brief."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from minutebook.domain.errors import Forbidden, Invalid, MinutebookError, NotVisible, RunNotLive
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.brief import Quote
from minutebook.domain.rooms.decide_handoff import MAX_SUMMARY_BYTES, RecordHandoff, record_handoff
from minutebook.domain.rooms.events import (
    ParticipantJoined,
    PayloadErased,
    RoomClosed,
    RunEnded,
    RunRegistered,
    RunStarted,
)
from minutebook.domain.rooms.handoff import TOOL_ROLES, HandoffRecorded, tools_of
from room_scenes import NEXT_RUN, OPENED, OTHER_ROOM, OWNER, RUN, RUNNING, STARTED, SYSTEM, agent, asked, given

HANDOFF = RecordHandoff("reviewer", "Done but for the docs.", "0a1b2c3d")
RECORDED = HandoffRecorded("implementer", "reviewer", "Done but for the docs.", "0a1b2c3d")


def running_as(role: str) -> Any:
    """A room with a running run of that role."""
    return given(OPENED, ParticipantJoined(f"agent:{RUN}", role), RunStarted(RUN, role))


def handing(command: RecordHandoff = HANDOFF, caller: Caller = RUNNING) -> Any:
    """The handoff, ready for `when`."""
    return asked(record_handoff, command, caller)


def test_a_handoff_is_recorded_by_its_run() -> None:
    decision = given(OPENED, *STARTED).when(handing()).then(RECORDED)
    (new,) = decision.events
    assert (new.actor, new.actor_role, new.run_id, new.origin) == (RUNNING.principal, "implementer", RUN, "client")


def test_the_branch_is_the_registered_one() -> None:
    room = given(OPENED, RunRegistered(RUN, "implementer", "fix-7"), *STARTED)
    room.when(handing()).then(msgspec.structs.replace(RECORDED, branch="fix-7"))


@pytest.mark.parametrize("role", ["implementer", "tester", "triager", "reviewer", "gardener"])
def test_a_role_has_the_tool_or_not(role: str) -> None:
    may = role in ("implementer", "tester", "triager")
    assert ("room_handoff" in tools_of(role)) is may
    if may:
        running_as(role).when(handing()).then(msgspec.structs.replace(RECORDED, from_role=role))
    else:
        running_as(role).when(handing()).then_refused(Forbidden)


def test_the_tools_of_each_role() -> None:
    assert {role: tools_of(role) for role in ("implementer", "reviewer", "tester", "triager", "gardener")} == {
        "implementer": ["room_read", "room_post", "room_handoff"],
        "reviewer": ["room_read", "room_post", "room_verdict"],
        "tester": ["room_read", "room_post", "room_handoff", "room_verdict"],
        "triager": ["room_read", "room_post", "room_handoff"],
        "gardener": ["room_read", "room_post"],
    }
    assert set(TOOL_ROLES) == {"room_read", "room_post", "room_handoff", "room_verdict"}


@pytest.mark.parametrize(
    ("caller", "refusal"),
    [
        (OWNER, Forbidden),
        (SYSTEM, Forbidden),
        (agent(NEXT_RUN), RunNotLive),
        (agent(room_id=OTHER_ROOM), NotVisible),
    ],
    ids=["an owner", "a system", "a run that waits", "another room's run"],
)
def test_the_running_run_alone_hands_over(caller: Caller, refusal: type[MinutebookError]) -> None:
    given(OPENED, *STARTED).when(handing(caller=caller)).then_refused(refusal)


def test_a_run_that_left_hands_nothing_over() -> None:
    given(OPENED, *STARTED, RunEnded(RUN, "finished")).when(handing()).then_refused(RunNotLive)
    given(OPENED, *STARTED, RunEnded(RUN, "room_closed"), RoomClosed()).when(handing()).then_refused(RunNotLive)


def test_the_summary_is_bounded_in_bytes() -> None:
    fits = msgspec.structs.replace(HANDOFF, summary="ä" * (MAX_SUMMARY_BYTES // 2))
    given(OPENED, *STARTED).when(handing(fits)).then(msgspec.structs.replace(RECORDED, summary=fits.summary))
    over = msgspec.structs.replace(HANDOFF, summary=fits.summary + "x")
    given(OPENED, *STARTED).when(handing(over)).then_refused(Invalid, "$.summary")


@pytest.mark.parametrize(
    "changes",
    [
        {"summary": ""},
        {"summary": "x" * (MAX_SUMMARY_BYTES + 1)},
        {"commit": "0a1b2c"},
        {"commit": "a" * 65},
        {"commit": "0a1b2c3g"},
        {"commit": "0a1b2c3d\n"},
        {"toRole": "gardener"},
        {"branch": "mine"},
        {"toRole": None},
    ],
    ids=str,
)
def test_arguments_are_strict(changes: dict[str, Any]) -> None:
    body = {"toRole": "reviewer", "summary": "x", "commit": "0a1b2c3d", **changes}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({name: value for name, value in body.items() if value is not None}, RecordHandoff)


def test_the_room_keeps_the_last_handoff_until_it_is_erased() -> None:
    room = given(OPENED, *STARTED)
    for commit in ("1111111", "2222222"):
        step = handing(msgspec.structs.replace(HANDOFF, commit=commit))
        room = given(*room.events, *room.when(step).decided().events)
    kept = Quote(5, f"agent:{RUN}", "Done but for the docs.", "implementer", commit="2222222", to_role="reviewer")
    assert room.state.last_handoff == kept
    assert given(*room.events, PayloadErased(5)).state.last_handoff is None
