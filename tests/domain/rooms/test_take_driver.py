"""Taking the driver token: owners and admins, with a reason that stays in the log."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import ClientNotAllowed, Forbidden, Invalid, MinutebookError, NotVisible, Sealed
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import TakeDriver
from minutebook.domain.rooms.driver import take_driver
from minutebook.domain.rooms.events import DriverMoved, RoomClosed
from room_scenes import (
    ADMIN,
    COLLABORATOR,
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
)

TAKE = TakeDriver("he is on a plane")
BY_CARL = DriverMoved("human:olga", "human:carl", 2, "given")


@pytest.mark.parametrize("caller", [OWNER, ADMIN], ids=str)
def test_the_reason_is_recorded(caller: Caller) -> None:
    name = str(caller.principal)
    decision = (
        given(OPENED, BY_CARL)
        .when(asked(take_driver, TAKE, caller))
        .then(DriverMoved("human:carl", name, 3, "taken", "he is on a plane"))
    )
    assert decision.answer == {"driver": name, "driverEpoch": 3}
    assert decision.events[0].actor == caller.principal


def test_who_drives_takes_nothing() -> None:
    given(OPENED).when(asked(take_driver, TAKE, OWNER)).then_nothing()


def test_a_reason_is_measured_in_bytes() -> None:
    room = given(OPENED, BY_CARL)
    room.when(asked(take_driver, TakeDriver("ü" * 129), OWNER)).then_refused(Invalid, "$.reason")
    assert room.when(asked(take_driver, TakeDriver("ü" * 128), OWNER)).decided().events


@pytest.mark.parametrize(
    ("caller", "refusal"),
    [
        (COLLABORATOR, Forbidden),
        (WATCHER, Forbidden),
        (SYSTEM, Forbidden),
        (RUNNING, Forbidden),
        (human("olga", is_cli_client=True), ClientNotAllowed),
        (STRANGER, NotVisible),
    ],
    ids=str,
)
def test_nobody_else_takes_it(caller: Caller, refusal: type[MinutebookError]) -> None:
    given(OPENED, BY_CARL, *STARTED).when(asked(take_driver, TAKE, caller)).then_refused(refusal)


def test_nothing_moves_in_a_closed_room() -> None:
    given(OPENED, BY_CARL, RoomClosed()).when(asked(take_driver, TAKE, OWNER)).then_refused(Sealed)
