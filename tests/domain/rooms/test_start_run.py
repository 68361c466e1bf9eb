"""A bridge's hello: the first registers its run, later ones add nothing, and a run that let its lease lapse is lost."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import NotVisible, RunNotLive, Sealed
from minutebook.domain.principals import SERVER, Caller
from minutebook.domain.rooms.commands import StartRun
from minutebook.domain.rooms.events import (
    HarnessReported,
    MessagePosted,
    ParticipantJoined,
    ParticipantLeft,
    RoomClosed,
    RunEnded,
    RunRegistered,
    RunRequested,
    RunStarted,
    ToolCalled,
    TurnReported,
)
from minutebook.domain.rooms.runs import check_start, start_run
from room_scenes import (
    COLLABORATOR,
    NEXT_RUN,
    OPENED,
    OTHER_ROOM,
    OWNER,
    RUN,
    RUNNING,
    STARTED,
    SYSTEM,
    agent,
    asked,
    given,
    pushed,
    said,
)

HELLO = StartRun("implementer")


def test_the_first_hello_registers_the_run() -> None:
    decision = given(OPENED).when(asked(start_run, HELLO, RUNNING)).then(*STARTED)
    assert decision.answer == {"afterHarnessSeq": 0, "afterStatusSeq": 0}
    assert {(new.actor, new.origin, new.run_id) for new in decision.events} == {(SERVER, "broker", RUN)}


def test_a_later_hello_adds_nothing_and_says_what_is_stored() -> None:
    room = given(
        OPENED,
        *STARTED,
        pushed("events:7", ToolCalled("c1", "bash", {}, None)),
        pushed("status:3", HarnessReported("harness_status")),
    )
    decision = room.when(asked(start_run, HELLO, RUNNING)).then_nothing()
    assert decision.answer == {"afterHarnessSeq": 7, "afterStatusSeq": 3}


def test_who_holds_the_lease_takes_over_from_a_lost_run() -> None:
    room = given(OPENED, *STARTED, pushed("events:1", TurnReported(RUN, "t1", "started")))
    room.when(asked(start_run, StartRun("reviewer"), agent(NEXT_RUN))).then(
        TurnReported(RUN, "t1", "failed"),
        RunEnded(RUN, "lost"),
        ParticipantLeft(f"agent:{RUN}"),
        ParticipantJoined(f"agent:{NEXT_RUN}", "reviewer"),
        RunStarted(NEXT_RUN, "reviewer"),
    )


@pytest.mark.parametrize("decision", [start_run, check_start], ids=["start", "check"])
@pytest.mark.parametrize(
    "caller",
    [OWNER, SYSTEM, agent(room_id=OTHER_ROOM), agent(room_id=None), agent(tenant="other")],
    ids=["a person", "a system", "another room's run", "a run of no room", "another tenant's run"],
)
def test_only_a_run_with_a_token_for_this_room(decision: object, caller: Caller) -> None:
    given(OPENED).when(asked(decision, HELLO, caller)).then_refused(NotVisible)  # type: ignore[arg-type]


@pytest.mark.parametrize("decision", [start_run, check_start], ids=["start", "check"])
def test_a_run_that_has_ended_stays_ended(decision: object) -> None:
    room = given(OPENED, *STARTED, RunEnded(RUN, "deadline"), ParticipantLeft(f"agent:{RUN}"))
    error = room.when(asked(decision, HELLO, RUNNING)).then_refused(RunNotLive)  # type: ignore[arg-type]
    assert "deadline" in error.detail


@pytest.mark.parametrize("decision", [start_run, check_start], ids=["start", "check"])
def test_a_closed_room_takes_no_run(decision: object) -> None:
    given(OPENED, RoomClosed()).when(asked(decision, HELLO, RUNNING)).then_refused(Sealed)  # type: ignore[arg-type]


def test_a_check_decides_nothing() -> None:
    given(OPENED).when(asked(check_start, HELLO, RUNNING)).then_nothing()


def test_a_run_that_was_requested_has_its_role_and_prompters_from_there() -> None:
    queued = said(MessagePosted("docs", delivery="queued"), COLLABORATOR)
    room = given(
        OPENED,
        queued,
        RunRequested(NEXT_RUN, "tester", (2,), 2, "human:olga"),
        RunRegistered(NEXT_RUN, "tester", "fix-7", "https://forge.example/app/pulls/7"),
    )
    bridge = agent(NEXT_RUN)
    decision = room.when(asked(start_run, HELLO, bridge)).then(
        ParticipantJoined(f"agent:{NEXT_RUN}", "tester"), RunStarted(NEXT_RUN, "tester")
    )
    assert [new.origin_key for new in decision.events] == [f"run:{NEXT_RUN}:joined", f"run:{NEXT_RUN}:running"]
    after = given(*room.events, *decision.events)
    run = after.state.run
    assert (run.role, run.branch, run.task_url) == ("tester", "fix-7", "https://forge.example/app/pulls/7")
    assert run.prompted_by == ("human:olga", "human:carl")
    lost = given(*after.events, RunEnded(NEXT_RUN, "lost")).state
    assert lost.queue == (), "a run that said hello had its brief"


@pytest.mark.parametrize("decision", [start_run, check_start], ids=["start", "check"])
def test_a_run_that_nobody_registered_has_no_hello(decision: object) -> None:
    given(OPENED).when(asked(decision, StartRun(), RUNNING)).then_refused(RunNotLive)  # type: ignore[arg-type]
    waiting = given(OPENED, RunRequested(RUN, "tester", (), 1, "human:olga"))
    waiting.when(asked(decision, StartRun(), RUNNING)).decided()  # type: ignore[arg-type]
