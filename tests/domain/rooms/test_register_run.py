"""Making a run known before its hello: its role, its branch, the task that it works on."""

from __future__ import annotations

from typing import Any

import pytest
from minutebook.domain.errors import (
    AlreadyEnded,
    ClientNotAllowed,
    Conflict,
    Forbidden,
    Full,
    Invalid,
    MinutebookError,
    NotVisible,
    ReviewerNeedsPr,
    Sealed,
)
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import RegisterRun
from minutebook.domain.rooms.context import Limits
from minutebook.domain.rooms.events import MessagePosted, RoomClosed, RunEnded, RunRegistered, RunRequested
from minutebook.domain.rooms.runs import register_run
from room_scenes import (
    ADMIN,
    COLLABORATOR,
    NEXT_RUN,
    OPENED,
    OWNER,
    ROOM,
    RUN,
    RUNNING,
    STARTED,
    STRANGER,
    SYSTEM,
    WATCHER,
    asked,
    given,
    human,
    said,
)

PULL = "https://forge.example/app/pulls/7"
PUT = RegisterRun(NEXT_RUN, "tester", "fix-7", PULL)
BARE = RegisterRun(NEXT_RUN, "tester")
REGISTERED = RunRegistered(NEXT_RUN, "tester", "fix-7", PULL)
QUEUED = said(MessagePosted("docs next", delivery="queued"), COLLABORATOR)


def requested(by: str = "human:olga", **fields: Any) -> RunRequested:
    """What makes a run known."""
    refs, through = fields.get("refs", ()), fields.get("through", 1)
    return RunRequested(NEXT_RUN, "tester", refs, through, by, by_hand=True)


@pytest.mark.parametrize("caller", [OWNER, ADMIN, SYSTEM], ids=str)
def test_a_run_is_registered(caller: Caller) -> None:
    by = str(caller.principal)
    decision = given(OPENED).when(asked(register_run, PUT, caller)).then(requested(by), REGISTERED)
    brief = decision.answer.pop("brief")
    assert decision.answer == {"runId": NEXT_RUN, "roomId": ROOM, "role": "tester", "state": "requested"}
    assert f"Brief of room {ROOM}" in brief
    record = given(OPENED, *decision.events).state.runs[NEXT_RUN]
    assert (record.phase, record.branch, record.task_url, record.requested_by) == ("requested", "fix-7", PULL, by)


def test_it_takes_the_queue() -> None:
    decision = given(OPENED, QUEUED).when(asked(register_run, BARE, OWNER)).then(requested(refs=(2,), through=2))
    assert "docs next" in decision.answer["brief"]
    assert given(OPENED, QUEUED, *decision.events).state.queue == ()


def test_the_same_again_adds_nothing() -> None:
    once = given(OPENED).when(asked(register_run, PUT, OWNER)).decided()
    again = given(OPENED, *once.events).when(asked(register_run, PUT, SYSTEM)).then_nothing()
    assert {**again.answer, "brief": ""} == {**once.answer, "brief": ""}


def test_a_requested_run_is_told_where_it_works() -> None:
    room = given(OPENED, requested())
    decision = room.when(asked(register_run, PUT, SYSTEM)).then(REGISTERED)
    assert given(*room.events, *decision.events).state.runs[NEXT_RUN].task_url == PULL


def test_a_role_is_for_good() -> None:
    given(OPENED, requested()).when(asked(register_run, RegisterRun(NEXT_RUN, "triager"), OWNER)).then_refused(Conflict)


def test_a_run_that_is_running_keeps_its_registration() -> None:
    room = given(OPENED, *STARTED)
    same = RegisterRun(RUN, "implementer")
    decision = room.when(asked(register_run, same, OWNER)).then_nothing()
    assert decision.answer == {"runId": RUN, "roomId": ROOM, "role": "implementer", "state": "running"}
    moved = RegisterRun(RUN, "implementer", "other-branch")
    room.when(asked(register_run, moved, OWNER)).then_refused(Conflict)


def test_a_run_that_ended_is_not_registered_again() -> None:
    room = given(OPENED, requested(), RunEnded(NEXT_RUN, "never_joined"))
    error = room.when(asked(register_run, PUT, OWNER)).then_refused(AlreadyEnded)
    assert "never_joined" in error.detail


def test_a_reviewer_needs_a_pull_request() -> None:
    reviewer = RegisterRun(NEXT_RUN, "reviewer")
    given(OPENED).when(asked(register_run, reviewer, OWNER)).then_refused(ReviewerNeedsPr)
    asked_for = given(OPENED, RunRequested(NEXT_RUN, "reviewer", (), 1, "human:olga", PULL))
    asked_for.when(asked(register_run, reviewer, OWNER)).then_nothing()


def test_a_run_id_has_its_grammar() -> None:
    given(OPENED).when(asked(register_run, RegisterRun("run-1", "tester"), OWNER)).then_refused(Invalid, "runId")


def test_awaited_runs_are_bounded() -> None:
    room = given(OPENED, RunRequested("waitwait", "tester", (), 1, "human:olga"))
    room.when(asked(register_run, PUT, OWNER, limits=Limits(waiting_runs=1))).then_refused(Full)
    assert room.when(asked(register_run, PUT, OWNER, limits=Limits(waiting_runs=2))).decided().events


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
def test_others_register_none(caller: Caller, refusal: type[MinutebookError]) -> None:
    given(OPENED, *STARTED).when(asked(register_run, PUT, caller)).then_refused(refusal)


def test_a_closed_room_takes_none() -> None:
    given(OPENED, RoomClosed()).when(asked(register_run, PUT, OWNER)).then_refused(Sealed)
