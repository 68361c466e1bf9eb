"""Interrupting the running run: the driver's, once until the run has stopped."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import (
    ClientNotAllowed,
    Forbidden,
    MinutebookError,
    NoRunningRun,
    NotVisible,
    Sealed,
    StaleEpoch,
)
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import InterruptRun
from minutebook.domain.rooms.context import Limits
from minutebook.domain.rooms.events import (
    DeliveryAcknowledged,
    DriverMoved,
    InterruptRequested,
    MessagePosted,
    RoomClosed,
)
from minutebook.domain.rooms.messages import interrupt_run
from minutebook.domain.rooms.run_state import InterruptDelivery
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
    pushed,
    said,
)

STOP = InterruptRun(1)
ASKED = InterruptRequested(RUN)


def test_it_is_delivered_to_the_running_run() -> None:
    decision = given(OPENED, *STARTED).when(asked(interrupt_run, STOP, OWNER)).then(ASKED)
    run = given(OPENED, *STARTED, *decision.events).state.run
    assert run.deliveries == (InterruptDelivery(4),)
    assert run.prompted_by == ()


def test_one_request_waits_at_a_time() -> None:
    waits = given(OPENED, *STARTED, ASKED)
    waits.when(asked(interrupt_run, STOP, OWNER)).then_nothing()
    stopped = given(*waits.events, pushed("status:1", DeliveryAcknowledged(4, "interrupted")))
    stopped.when(asked(interrupt_run, STOP, OWNER)).then(ASKED)


def test_it_is_never_refused_for_what_waits_before_it() -> None:
    room = given(OPENED, *STARTED, said(MessagePosted("now", delivery="steering"), OWNER))
    room.when(asked(interrupt_run, STOP, OWNER, limits=Limits(deliveries=1))).then(ASKED)


def test_there_must_be_a_run_to_stop() -> None:
    given(OPENED).when(asked(interrupt_run, STOP, OWNER)).then_refused(NoRunningRun)


def test_the_epoch_must_be_the_newest() -> None:
    room = given(OPENED, *STARTED, DriverMoved("human:olga", "human:carl", 2, "given"))
    room.when(asked(interrupt_run, STOP, OWNER)).then_refused(StaleEpoch)
    room.when(asked(interrupt_run, InterruptRun(2), OWNER)).then_refused(Forbidden)
    room.when(asked(interrupt_run, InterruptRun(2), COLLABORATOR)).then(ASKED)


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
def test_only_the_driver_interrupts(caller: Caller, refusal: type[MinutebookError]) -> None:
    given(OPENED, *STARTED).when(asked(interrupt_run, STOP, caller)).then_refused(refusal)


def test_a_command_line_client_hears_first_that_it_never_may() -> None:
    client = human("olga", is_cli_client=True)
    moved = given(OPENED, *STARTED, DriverMoved("human:olga", "human:carl", 2, "given"))
    for room in (moved, given(OPENED, RoomClosed())):
        room.when(asked(interrupt_run, STOP, client)).then_refused(ClientNotAllowed)


def test_a_closed_room_has_no_run() -> None:
    given(OPENED, RoomClosed()).when(asked(interrupt_run, STOP, OWNER)).then_refused(Sealed)
