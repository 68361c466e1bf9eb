"""Runs that show no life: lost once they were running, never joined before."""

from __future__ import annotations

from datetime import timedelta

import pytest
from minutebook.domain.errors import Forbidden
from minutebook.domain.principals import SERVER, Caller
from minutebook.domain.rooms.commands import SweepRun
from minutebook.domain.rooms.events import ParticipantLeft, RunEnded, RunRequested, TurnReported
from minutebook.domain.rooms.runs import sweep_run
from room_scenes import NEXT_RUN, NOW, OPENED, OWNER, RUN, STARTED, SWEEP, SYSTEM, asked, given, pushed

WAITING = RunRequested(NEXT_RUN, "tester", (), 1, "human:olga")
LONG_AGO = NOW - timedelta(minutes=10)
NOT_YET = NOW - timedelta(minutes=9, seconds=59)


def test_a_run_whose_lease_is_long_lapsed_is_lost() -> None:
    room = given(OPENED, *STARTED, pushed("events:1", TurnReported(RUN, "t1", "started")))
    decision = room.when(asked(sweep_run, SweepRun(RUN, LONG_AGO), SWEEP)).then(
        TurnReported(RUN, "t1", "failed"), RunEnded(RUN, "lost"), ParticipantLeft(f"agent:{RUN}")
    )
    assert {(new.actor, new.origin_client) for new in decision.events[1:]} == {(SERVER, "minutebook")}
    assert [new.origin_key for new in decision.events] == [None, f"run:{RUN}:ended", f"run:{RUN}:left"]


def test_a_run_without_a_hello_never_joined() -> None:
    room = given(OPENED, WAITING)
    room.when(asked(sweep_run, SweepRun(NEXT_RUN, LONG_AGO), SWEEP)).then(RunEnded(NEXT_RUN, "never_joined"))


@pytest.mark.parametrize("run_id", [RUN, NEXT_RUN])
def test_before_the_time_nothing_happens(run_id: str) -> None:
    given(OPENED, *STARTED, WAITING).when(asked(sweep_run, SweepRun(run_id, NOT_YET), SWEEP)).then_nothing()


def test_what_ended_meanwhile_or_was_never_here_is_left_alone() -> None:
    room = given(OPENED, *STARTED, RunEnded(RUN, "finished"))
    room.when(asked(sweep_run, SweepRun(RUN, LONG_AGO), SWEEP)).then_nothing()
    room.when(asked(sweep_run, SweepRun("otherrun", LONG_AGO), SWEEP)).then_nothing()


@pytest.mark.parametrize("caller", [OWNER, SYSTEM], ids=str)
def test_only_the_server_sweeps(caller: Caller) -> None:
    given(OPENED, WAITING).when(asked(sweep_run, SweepRun(NEXT_RUN, LONG_AGO), caller)).then_refused(Forbidden)
