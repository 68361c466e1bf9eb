"""Giving the driver token on: only its holder may, with the newest epoch, to somebody who can hold it."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import (
    ClientNotAllowed,
    Forbidden,
    Invalid,
    MinutebookError,
    NotVisible,
    Sealed,
    StaleEpoch,
)
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import GiveDriver
from minutebook.domain.rooms.driver import give_driver
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

TO_CARL = GiveDriver("human:carl", 1)
BY_SYSTEM = DriverMoved("human:olga", "system:triage", 2, "given")


def test_each_change_has_the_next_epoch() -> None:
    decision = (
        given(OPENED).when(asked(give_driver, TO_CARL, OWNER)).then(DriverMoved("human:olga", "human:carl", 2, "given"))
    )
    assert decision.answer == {"driver": "human:carl", "driverEpoch": 2}
    back = given(OPENED, *decision.events).when(asked(give_driver, GiveDriver("human:olga", 2), COLLABORATOR))
    back.then(DriverMoved("human:carl", "human:olga", 3, "given"))


def test_the_system_that_held_it_may_have_it_back() -> None:
    held = given(OPENED, BY_SYSTEM, DriverMoved("system:triage", "human:carl", 3, "requested"))
    held.when(asked(give_driver, GiveDriver("system:triage", 3), COLLABORATOR)).then(
        DriverMoved("human:carl", "system:triage", 4, "given")
    )
    held.when(asked(give_driver, GiveDriver("system:other", 3), COLLABORATOR)).then_refused(Invalid, "$.to")


def test_a_system_gives_what_it_holds() -> None:
    room = given(OPENED, BY_SYSTEM)
    room.when(asked(give_driver, GiveDriver("human:carl", 2), SYSTEM)).then(
        DriverMoved("system:triage", "human:carl", 3, "given")
    )


@pytest.mark.parametrize(
    "to", ["human:wanda", "human:nobody", "system:triage", "agent:runrunaa", "carl", "human:carl "]
)
def test_it_goes_to_a_collaborator_or_better(to: str) -> None:
    given(OPENED, *STARTED).when(asked(give_driver, GiveDriver(to, 1), OWNER)).then_refused(Invalid, "$.to")


def test_giving_it_to_oneself_changes_nothing() -> None:
    decision = given(OPENED).when(asked(give_driver, GiveDriver("human:olga", 1), OWNER)).then_nothing()
    assert decision.answer == {"driver": "human:olga", "driverEpoch": 1}


def test_an_epoch_that_is_over_is_refused_to_whoever_drove_then() -> None:
    moved = given(OPENED, DriverMoved("human:olga", "human:carl", 2, "given"))
    for caller in (OWNER, COLLABORATOR):
        error = moved.when(asked(give_driver, TO_CARL, caller)).then_refused(StaleEpoch)
        assert error.attributes == {"driver": "human:carl", "driverEpoch": 2}
    moved.when(asked(give_driver, GiveDriver("human:carl", 3), COLLABORATOR)).then_refused(StaleEpoch)


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
def test_only_the_holder_gives(caller: Caller, refusal: type[MinutebookError]) -> None:
    given(OPENED, *STARTED).when(asked(give_driver, TO_CARL, caller)).then_refused(refusal)


def test_nothing_moves_in_a_closed_room() -> None:
    given(OPENED, RoomClosed()).when(asked(give_driver, TO_CARL, OWNER)).then_refused(Sealed)
