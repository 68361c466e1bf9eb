"""Asking for the driver token: visible to all, and a system yields at once."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import ClientNotAllowed, Forbidden, MinutebookError, NotVisible, RunNotLive, Sealed
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import RequestDriver
from minutebook.domain.rooms.driver import request_driver
from minutebook.domain.rooms.events import DriverMoved, DriverRequested, ParticipantLeft, RoomClosed
from room_scenes import (
    ADMIN,
    AUDITOR,
    COLLABORATOR,
    OPENED,
    OWNER,
    RUNNING,
    STARTED,
    STRANGER,
    SYSTEM,
    WATCHER,
    agent,
    asked,
    given,
    human,
)

ASK = RequestDriver()
BY_SYSTEM = DriverMoved("human:olga", "system:triage", 2, "given")


def test_a_person_who_drives_is_asked_for_all_to_see() -> None:
    decision = given(OPENED).when(asked(request_driver, ASK, COLLABORATOR)).then(DriverRequested("human:carl"))
    assert decision.answer == {"driver": "human:olga", "driverEpoch": 1}
    assert decision.events[0].actor == COLLABORATOR.principal


def test_asking_again_adds_nothing_until_the_token_moves() -> None:
    room = given(OPENED, DriverRequested("human:carl"))
    room.when(asked(request_driver, ASK, COLLABORATOR)).then_nothing()
    moved = given(*room.events, DriverMoved("human:olga", "human:nora", 2, "taken"))
    moved.when(asked(request_driver, ASK, COLLABORATOR)).then(DriverRequested("human:carl"))
    left = given(*room.events, ParticipantLeft("human:carl"))
    assert left.state.driver_requests == ()


def test_a_system_yields_at_once() -> None:
    decision = (
        given(OPENED, BY_SYSTEM)
        .when(asked(request_driver, ASK, COLLABORATOR))
        .then(DriverMoved("system:triage", "human:carl", 3, "requested"))
    )
    assert decision.answer == {"driver": "human:carl", "driverEpoch": 3}
    state = given(OPENED, BY_SYSTEM, *decision.events).state
    assert (state.driver, state.driver_epoch, state.system_holder) == ("human:carl", 3, "system:triage")


def test_who_drives_has_nothing_to_ask_for() -> None:
    decision = given(OPENED).when(asked(request_driver, ASK, OWNER)).then_nothing()
    assert decision.answer == {"driver": "human:olga", "driverEpoch": 1}


@pytest.mark.parametrize(
    ("caller", "refusal"),
    [
        (WATCHER, Forbidden),
        (AUDITOR, Forbidden),
        (SYSTEM, Forbidden),
        (RUNNING, Forbidden),
        (agent("endedrun"), RunNotLive),
        (human("carl", is_cli_client=True), ClientNotAllowed),
        (STRANGER, NotVisible),
    ],
    ids=str,
)
def test_who_could_never_drive_may_not_ask(caller: Caller, refusal: type[MinutebookError]) -> None:
    given(OPENED, *STARTED).when(asked(request_driver, ASK, caller)).then_refused(refusal)


def test_nobody_drives_a_closed_room() -> None:
    given(OPENED, RoomClosed()).when(asked(request_driver, ASK, ADMIN)).then_refused(Sealed)
