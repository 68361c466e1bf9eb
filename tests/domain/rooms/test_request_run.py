"""Starting the next run: its brief takes the queue, and there is one run at a time."""

from __future__ import annotations

from typing import Any

import pytest
from minutebook.domain.errors import (
    ClientNotAllowed,
    Forbidden,
    HumanDrives,
    MinutebookError,
    NotVisible,
    ReviewerNeedsPr,
    RoomBusy,
    Sealed,
    StaleEpoch,
)
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import RequestRun
from minutebook.domain.rooms.events import (
    DriverMoved,
    MessagePosted,
    PayloadErased,
    RoomClosed,
    RunEnded,
    RunRequested,
    VerdictGiven,
)
from minutebook.domain.rooms.handoff import HandoffRecorded
from minutebook.domain.rooms.runs import brief_of, request_run
from room_scenes import (
    ADMIN,
    COLLABORATOR,
    FRESH_RUN,
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

GO = RequestRun("implementer")
PULL = "https://forge.example/app/pulls/7"
QUEUED = said(MessagePosted("docs next", delivery="queued"), COLLABORATOR)
BY_CARL = DriverMoved("human:olga", "human:carl", 2, "given")
BY_SYSTEM = DriverMoved("human:olga", "system:triage", 2, "given")


def requested(by: str = "human:olga", refs: tuple[int, ...] = (), through: int = 1, role: str = "implementer") -> Any:
    """What a request records."""
    return RunRequested(FRESH_RUN, role, refs, through, by)


def test_the_queue_goes_into_the_brief() -> None:
    handoff = said(HandoffRecorded("tester", "implementer", "Half done.", "0a1b2c3d"), RUNNING, RUN)
    verdict = said(VerdictGiven("Wrong sign.", "changes", "0a1b2c3d"), OWNER)
    room = given(OPENED, QUEUED, handoff, verdict)
    decision = room.when(asked(request_run, GO, OWNER)).then(requested(refs=(2,), through=4))
    assert decision.answer["runId"] == FRESH_RUN
    for words in ("docs next", "Half done.", "Wrong sign."):
        assert words in decision.answer["brief"]
    assert (decision.events[0].run_id, decision.events[0].actor) == (FRESH_RUN, OWNER.principal)
    after = given(*room.events, *decision.events).state
    assert after.queue == ()
    assert (after.runs[FRESH_RUN].phase, after.waiting_runs) == ("requested", [FRESH_RUN])
    assert brief_of(after, ROOM, after.runs[FRESH_RUN]) == decision.answer["brief"]


def test_a_message_that_comes_later_waits_for_the_run_after() -> None:
    room = given(OPENED, QUEUED, requested(refs=(2,), through=2), QUEUED)
    assert [quote.seq for quote in room.state.queue] == [4]
    handoff = said(HandoffRecorded("tester", "implementer", "Later.", "0a1b2c3d"), RUNNING, RUN)
    after = given(*room.events, handoff).state
    assert "Later." not in brief_of(after, ROOM, after.runs[FRESH_RUN])


@pytest.mark.parametrize("reason", ["never_joined", "revoked", "finished"])
def test_a_run_that_never_came_gives_the_queue_back(reason: Any) -> None:
    room = given(OPENED, QUEUED, requested(refs=(2,), through=2), QUEUED, RunEnded(FRESH_RUN, reason))
    assert [quote.seq for quote in room.state.queue] == [2, 4]


def test_what_comes_back_stands_where_it_stood() -> None:
    first = RunRequested("waitwait", "tester", (2,), 2, "system:triage")
    second = RunRequested(FRESH_RUN, "tester", (4,), 4, "system:triage")
    room = given(
        OPENED, QUEUED, first, QUEUED, second,
        RunEnded("waitwait", "never_joined"), RunEnded(FRESH_RUN, "never_joined"),
    )  # fmt: skip
    assert [quote.seq for quote in room.state.queue] == [2, 4]


def test_what_was_erased_does_not_come_back() -> None:
    room = given(OPENED, QUEUED, requested(refs=(2,), through=2), PayloadErased(2), RunEnded(FRESH_RUN, "never_joined"))
    assert room.state.queue == ()


@pytest.mark.parametrize("caller", [OWNER, ADMIN, COLLABORATOR], ids=str)
def test_the_driver_and_owners_start_runs(caller: Caller) -> None:
    room = given(OPENED, BY_CARL)
    room.when(asked(request_run, GO, caller)).then(requested(str(caller.principal), through=2))


def test_a_system_starts_runs_while_no_human_drives() -> None:
    given(OPENED).when(asked(request_run, GO, SYSTEM)).then_refused(HumanDrives)
    given(OPENED, BY_SYSTEM).when(asked(request_run, GO, SYSTEM)).then(requested("system:triage", through=2))


def test_an_epoch_that_is_over_is_refused() -> None:
    at_one = RequestRun("implementer", driver_epoch=1)
    room = given(OPENED, BY_CARL)
    room.when(asked(request_run, at_one, OWNER)).then_refused(StaleEpoch)
    room.when(asked(request_run, at_one, COLLABORATOR)).then_refused(StaleEpoch)
    room.when(asked(request_run, RequestRun("implementer", driver_epoch=2), OWNER)).then(requested(through=2))


def test_one_run_at_a_time() -> None:
    given(OPENED, *STARTED).when(asked(request_run, GO, OWNER)).then_refused(RoomBusy)
    waiting = given(OPENED, RunRequested("waitwait", "tester", (), 1, "human:olga"))
    waiting.when(asked(request_run, GO, OWNER)).then_refused(RoomBusy)
    over = given(*waiting.events, RunEnded("waitwait", "never_joined"))
    over.when(asked(request_run, GO, OWNER)).then(requested(through=3))


def test_a_reviewer_needs_a_pull_request() -> None:
    given(OPENED).when(asked(request_run, RequestRun("reviewer"), OWNER)).then_refused(ReviewerNeedsPr)
    given(OPENED).when(asked(request_run, RequestRun("reviewer", PULL), OWNER)).then(
        RunRequested(FRESH_RUN, "reviewer", (), 1, "human:olga", PULL)
    )


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
def test_others_start_none(caller: Caller, refusal: type[MinutebookError]) -> None:
    given(OPENED, *STARTED).when(asked(request_run, GO, caller)).then_refused(refusal)


def test_a_closed_room_starts_none() -> None:
    given(OPENED, RoomClosed()).when(asked(request_run, GO, OWNER)).then_refused(Sealed)
