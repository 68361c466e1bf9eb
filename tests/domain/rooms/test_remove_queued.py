"""Taking a queued message back: its author may, and the driver."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import ClientNotAllowed, Forbidden, MinutebookError, NotQueued, NotVisible, Sealed
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import RemoveQueued
from minutebook.domain.rooms.events import (
    DriverMoved,
    MessagePosted,
    ParticipantRoleChanged,
    QueuedRemoved,
    RoomClosed,
    RunRequested,
)
from minutebook.domain.rooms.messages import remove_queued
from room_scenes import (
    ADMIN,
    COLLABORATOR,
    FRESH_RUN,
    OPENED,
    OWNER,
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

BY_CARL = said(MessagePosted("docs next", delivery="queued"), COLLABORATOR)
BY_OLGA = said(MessagePosted("then tests", delivery="queued"), OWNER)
NORA = ParticipantRoleChanged("human:nora", "owner", approver=False)
QUEUE = (OPENED, BY_CARL, BY_OLGA, NORA)
"""carl's message is event 2, olga's event 3; nora is an owner who does not drive."""


@pytest.mark.parametrize("caller", [COLLABORATOR, OWNER], ids=["the author", "the driver"])
def test_it_waits_no_longer(caller: Caller) -> None:
    decision = given(*QUEUE).when(asked(remove_queued, RemoveQueued(2), caller)).then(QueuedRemoved(2))
    assert [quote.seq for quote in given(*QUEUE, *decision.events).state.queue] == [3]
    assert (decision.events[0].actor, decision.events[0].caused_by) == (caller.principal, 2)


def test_a_system_that_drives_may_too() -> None:
    room = given(*QUEUE, DriverMoved("human:olga", "system:triage", 2, "given"))
    room.when(asked(remove_queued, RemoveQueued(2), SYSTEM)).then(QueuedRemoved(2))


@pytest.mark.parametrize(
    ("caller", "refusal"),
    [
        (human("nora"), Forbidden),
        (ADMIN, Forbidden),
        (SYSTEM, Forbidden),
        (WATCHER, Forbidden),
        (RUNNING, Forbidden),
        (human("carl", is_cli_client=True), ClientNotAllowed),
        (STRANGER, NotVisible),
    ],
    ids=str,
)
def test_it_is_nobody_elses(caller: Caller, refusal: type[MinutebookError]) -> None:
    given(*QUEUE, *STARTED).when(asked(remove_queued, RemoveQueued(2), caller)).then_refused(refusal)


@pytest.mark.parametrize("ref", [1, 2, 9])
def test_what_does_not_wait_cannot_be_taken_back(ref: int) -> None:
    room = given(*QUEUE, QueuedRemoved(2))
    room.when(asked(remove_queued, RemoveQueued(ref), OWNER)).then_refused(NotQueued)
    consumed = given(*QUEUE, RunRequested(FRESH_RUN, "tester", (2, 3), 4, "human:olga"))
    consumed.when(asked(remove_queued, RemoveQueued(ref), OWNER)).then_refused(NotQueued)


def test_a_closed_room_stays_as_it_is() -> None:
    given(*QUEUE, RoomClosed()).when(asked(remove_queued, RemoveQueued(2), OWNER)).then_refused(Sealed)
