"""Ending a run from outside: owners and systems may, and the log says who did."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from minutebook.domain.errors import AlreadyEnded, ClientNotAllowed, Forbidden, MinutebookError, NotVisible
from minutebook.domain.principals import SERVER, Caller
from minutebook.domain.rooms.approval_events import ApprovalDecided, ApprovalRequested
from minutebook.domain.rooms.commands import ClaimedReason, StopRun
from minutebook.domain.rooms.context import NewEvent
from minutebook.domain.rooms.events import ParticipantLeft, RunEnded, RunRequested, TurnReported
from minutebook.domain.rooms.runs import stop_run
from room_scenes import (
    ADMIN,
    COLLABORATOR,
    NEXT_RUN,
    OPENED,
    OWNER,
    RUN,
    RUNNING,
    STARTED,
    STRANGER,
    SYSTEM,
    WATCHER,
    asked,
    given,
    human,
    pushed,
)

STOP = StopRun(RUN)
LEFT = ParticipantLeft(f"agent:{RUN}")


@pytest.mark.parametrize("reason", get_args(ClaimedReason))
@pytest.mark.parametrize("caller", [OWNER, ADMIN, SYSTEM], ids=str)
def test_the_log_says_who_ended_it_and_why(caller: Caller, reason: ClaimedReason) -> None:
    room = given(OPENED, *STARTED)
    decision = room.when(asked(stop_run, StopRun(RUN, reason), caller)).then(RunEnded(RUN, reason), LEFT)
    ended, left = decision.events
    assert (ended.actor, ended.origin, ended.origin_key) == (caller.principal, "client", f"run:{RUN}:ended")
    assert (left.actor, left.origin, left.origin_key) == (SERVER, "broker", f"run:{RUN}:left")
    assert given(*room.events, *decision.events).state.runs[RUN].reason == reason


def test_one_append_closes_the_turn_and_settles_the_approvals() -> None:
    digest = "ab" * 32
    waits = ApprovalRequested("a1", "c1", "forge.pr", {}, digest, (), "2026-03-01T12:30:00.000000Z")
    room = given(
        OPENED,
        *STARTED,
        pushed("events:1", TurnReported(RUN, "t1", "started")),
        NewEvent(waits, RUNNING.principal, run_id=RUN),
    )
    decision = room.when(asked(stop_run, STOP, OWNER)).then(
        TurnReported(RUN, "t1", "failed"),
        ApprovalDecided("a1", digest, "superseded"),
        RunEnded(RUN, "finished"),
        LEFT,
    )
    assert given(*room.events, *decision.events).state.approvals.pending == {}


def test_an_awaited_run_never_joins() -> None:
    room = given(OPENED, RunRequested(NEXT_RUN, "tester", (), 1, "human:olga"), *STARTED)
    decision = room.when(asked(stop_run, StopRun(NEXT_RUN), OWNER)).then(RunEnded(NEXT_RUN, "finished"))
    after = given(*room.events, *decision.events).state
    assert (after.run.run_id, after.waiting_runs) == (RUN, [])


def test_a_run_ends_once() -> None:
    room = given(OPENED, *STARTED, RunEnded(RUN, "lost"), LEFT)
    assert "lost" in room.when(asked(stop_run, STOP, OWNER)).then_refused(AlreadyEnded).detail


def test_a_run_of_another_room_is_not_here() -> None:
    given(OPENED, *STARTED).when(asked(stop_run, StopRun(NEXT_RUN), OWNER)).then_refused(NotVisible)


@pytest.mark.parametrize(
    ("caller", "refusal"),
    [
        (COLLABORATOR, Forbidden),
        (WATCHER, Forbidden),
        (RUNNING, Forbidden),
        (human("olga", is_cli_client=True), ClientNotAllowed),
        (STRANGER, NotVisible),
    ],
    ids=str,
)
def test_others_end_none(caller: Any, refusal: type[MinutebookError]) -> None:
    given(OPENED, *STARTED).when(asked(stop_run, STOP, caller)).then_refused(refusal)
