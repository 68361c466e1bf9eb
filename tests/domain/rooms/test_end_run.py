"""A bridge's bye."""

from __future__ import annotations

from typing import get_args

import pytest
from minutebook.domain.errors import AlreadyEnded, NotVisible, RunNotLive
from minutebook.domain.principals import SERVER
from minutebook.domain.rooms.commands import ClaimedReason, EndRun
from minutebook.domain.rooms.events import ParticipantLeft, RunEnded, TurnReported
from minutebook.domain.rooms.run_state import RunRecord
from minutebook.domain.rooms.runs import end_run
from room_scenes import NEXT_RUN, OPENED, OWNER, RUN, RUNNING, STARTED, SYSTEM, agent, asked, given, pushed


@pytest.mark.parametrize("reason", get_args(ClaimedReason))
def test_the_reason_outlives_the_run(reason: ClaimedReason) -> None:
    room = given(OPENED, *STARTED)
    decision = room.when(asked(end_run, EndRun(reason), RUNNING)).then(
        RunEnded(RUN, reason), ParticipantLeft(f"agent:{RUN}")
    )
    after = given(OPENED, *STARTED, *decision.events).state
    assert (after.run, f"agent:{RUN}" in after.present) == (None, False)
    assert after.runs == {RUN: RunRecord("implementer", "ended", reason)}


def test_an_open_turn_fails_by_the_server() -> None:
    room = given(OPENED, *STARTED, pushed("events:1", TurnReported(RUN, "t1", "started")))
    decision = room.when(asked(end_run, EndRun(), RUNNING)).then(
        TurnReported(RUN, "t1", "failed"), RunEnded(RUN, "finished"), ParticipantLeft(f"agent:{RUN}")
    )
    assert decision.events[0].actor == SERVER


def test_a_turn_that_is_over_is_left_alone() -> None:
    room = given(
        OPENED,
        *STARTED,
        pushed("events:1", TurnReported(RUN, "t1", "started")),
        pushed("events:2", TurnReported(RUN, "t1", "cancelled")),
    )
    room.when(asked(end_run, EndRun(), RUNNING)).then(RunEnded(RUN, "finished"), ParticipantLeft(f"agent:{RUN}"))


def test_a_run_ends_once() -> None:
    room = given(OPENED, *STARTED, RunEnded(RUN, "lost"))
    assert "lost" in room.when(asked(end_run, EndRun(), RUNNING)).then_refused(AlreadyEnded).detail


def test_a_run_that_never_began_has_nothing_to_end() -> None:
    given(OPENED, *STARTED).when(asked(end_run, EndRun(), agent(NEXT_RUN))).then_refused(RunNotLive)


@pytest.mark.parametrize("caller", [OWNER, SYSTEM], ids=str)
def test_only_the_run_itself_says_bye(caller: object) -> None:
    given(OPENED, *STARTED).when(asked(end_run, EndRun(), caller)).then_refused(NotVisible)  # type: ignore[arg-type]
