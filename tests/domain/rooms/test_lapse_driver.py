"""The driver token falls back to the system that held it last, when a person is away or idle for too long."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from minutebook.domain.errors import Forbidden
from minutebook.domain.principals import SERVER, Caller
from minutebook.domain.rooms.commands import LapseDriver
from minutebook.domain.rooms.driver import lapse_driver
from minutebook.domain.rooms.events import DriverMoved, RoomClosed
from room_scenes import NOW, OPENED, OWNER, SWEEP, SYSTEM, asked, given

BY_SYSTEM = DriverMoved("human:olga", "system:triage", 2, "given")
BY_CARL = DriverMoved("system:triage", "human:carl", 3, "requested")
LAPSED = DriverMoved("human:carl", "system:triage", 4, "lease_expired")


def ago(**since: float) -> datetime:
    """A time before now."""
    return NOW - timedelta(**since)


def lapse(epoch: int = 3, seen: datetime = NOW, acted: datetime = NOW) -> LapseDriver:
    """What the sweep knows of the driver."""
    return LapseDriver(epoch, seen, acted)


@pytest.mark.parametrize(
    "command",
    [
        lapse(seen=ago(minutes=2)),
        lapse(acted=ago(minutes=15)),
        lapse(seen=ago(hours=9), acted=ago(hours=9)),
    ],
    ids=["away", "idle", "both"],
)
def test_a_person_who_is_away_or_idle_loses_it(command: LapseDriver) -> None:
    decision = given(OPENED, BY_SYSTEM, BY_CARL).when(asked(lapse_driver, command, SWEEP)).then(LAPSED)
    new = decision.events[0]
    assert (new.actor, new.origin, new.origin_client, new.origin_key) == (SERVER, "broker", "minutebook", "driver:4")
    assert decision.answer == {"driver": "system:triage", "driverEpoch": 4}


@pytest.mark.parametrize(
    "command",
    [
        lapse(),
        lapse(seen=ago(seconds=119.9)),
        lapse(acted=ago(seconds=899.9)),
        lapse(seen=NOW + timedelta(seconds=5), acted=NOW + timedelta(seconds=5)),
    ],
    ids=["here", "nearly away", "nearly idle", "a clock that went back"],
)
def test_who_is_here_keeps_it(command: LapseDriver) -> None:
    given(OPENED, BY_SYSTEM, BY_CARL).when(asked(lapse_driver, command, SWEEP)).then_nothing()


@pytest.mark.parametrize("epoch", [2, 4])
def test_a_token_that_moved_meanwhile_is_left_alone(epoch: int) -> None:
    command = lapse(epoch, seen=ago(hours=1))
    given(OPENED, BY_SYSTEM, BY_CARL).when(asked(lapse_driver, command, SWEEP)).then_nothing()


@pytest.mark.parametrize(
    ("events", "epoch"),
    [
        ((OPENED,), 1),
        ((OPENED, BY_SYSTEM), 2),
        ((OPENED, BY_SYSTEM, BY_CARL, LAPSED), 4),
        ((OPENED, BY_SYSTEM, BY_CARL, RoomClosed()), 3),
    ],
    ids=["no system ever held it", "a system holds it", "it fell back already", "the room is closed"],
)
def test_there_is_nobody_to_fall_back_to_or_nothing_to_move(events: tuple[object, ...], epoch: int) -> None:
    given(*events).when(asked(lapse_driver, lapse(epoch, seen=ago(hours=1)), SWEEP)).then_nothing()


@pytest.mark.parametrize("caller", [OWNER, SYSTEM], ids=str)
def test_only_the_server_sweeps(caller: Caller) -> None:
    room = given(OPENED, BY_SYSTEM, BY_CARL)
    room.when(asked(lapse_driver, lapse(seen=ago(hours=1)), caller)).then_refused(Forbidden)
