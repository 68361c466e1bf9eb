"""Sending a queued message into the running run: the driver's, and steering from then on."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import (
    ClientNotAllowed,
    Forbidden,
    MinutebookError,
    NoRunningRun,
    NotQueued,
    NotVisible,
    QueueFull,
    Sealed,
    StaleEpoch,
)
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import PromoteQueued
from minutebook.domain.rooms.context import Limits
from minutebook.domain.rooms.events import DriverMoved, MessagePosted, QueuedPromoted, RoomClosed
from minutebook.domain.rooms.messages import promote_queued
from minutebook.domain.rooms.run_state import SteeringDelivery
from room_scenes import (
    ADMIN,
    COLLABORATOR,
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
    said,
)

BY_CARL = said(MessagePosted("docs next", delivery="queued"), COLLABORATOR)
BY_WALT = said(MessagePosted("and tests", delivery="queued"), human("walt"))
ROOM_WITH_RUN = (OPENED, BY_CARL, BY_WALT, *STARTED)
SECOND = PromoteQueued(3, 1)


def test_it_leaves_the_queue_and_is_delivered() -> None:
    decision = given(*ROOM_WITH_RUN).when(asked(promote_queued, SECOND, OWNER)).then(QueuedPromoted(3, RUN))
    state = given(*ROOM_WITH_RUN, *decision.events).state
    assert [quote.seq for quote in state.queue] == [2]
    assert state.run.deliveries == (SteeringDelivery(3, "and tests"),)
    assert state.run.prompted_by == ("human:walt", "human:olga"), "the author prompts, and who promoted it"
    given(*ROOM_WITH_RUN, *decision.events).when(asked(promote_queued, SECOND, OWNER)).then_refused(NotQueued)


@pytest.mark.parametrize("ref", [1, 9])
def test_only_what_waits_is_promoted(ref: int) -> None:
    given(*ROOM_WITH_RUN).when(asked(promote_queued, PromoteQueued(ref, 1), OWNER)).then_refused(NotQueued)


def test_there_must_be_a_run_to_hear_it() -> None:
    given(OPENED, BY_CARL).when(asked(promote_queued, PromoteQueued(2, 1), OWNER)).then_refused(NoRunningRun)


def test_what_waits_for_the_run_is_bounded() -> None:
    steering = said(MessagePosted("now", delivery="steering"), OWNER)
    room = given(*ROOM_WITH_RUN, steering)
    error = room.when(asked(promote_queued, SECOND, OWNER, limits=Limits(deliveries=1))).then_refused(QueueFull)
    assert error.attributes["retryAfterMs"] > 0
    room.when(asked(promote_queued, SECOND, OWNER, limits=Limits(deliveries=2))).then(QueuedPromoted(3, RUN))


def test_the_epoch_must_be_the_newest() -> None:
    room = given(*ROOM_WITH_RUN, DriverMoved("human:olga", "human:carl", 2, "given"))
    room.when(asked(promote_queued, SECOND, OWNER)).then_refused(StaleEpoch)
    room.when(asked(promote_queued, PromoteQueued(3, 2), COLLABORATOR)).then(QueuedPromoted(3, RUN))


@pytest.mark.parametrize(
    ("caller", "refusal"),
    [
        (COLLABORATOR, Forbidden),
        (WATCHER, Forbidden),
        (ADMIN, Forbidden),
        (SYSTEM, Forbidden),
        (RUNNING, Forbidden),
        (human("olga", is_cli_client=True), ClientNotAllowed),
        (STRANGER, NotVisible),
    ],
    ids=str,
)
def test_only_the_driver_promotes(caller: Caller, refusal: type[MinutebookError]) -> None:
    given(*ROOM_WITH_RUN).when(asked(promote_queued, SECOND, caller)).then_refused(refusal)


def test_a_closed_room_stays_as_it_is() -> None:
    given(OPENED, BY_CARL, RoomClosed()).when(asked(promote_queued, PromoteQueued(2, 1), OWNER)).then_refused(Sealed)
