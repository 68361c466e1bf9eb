"""A second run at the door: turned away, and one event says so however often it knocks."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import NotVisible, Sealed
from minutebook.domain.principals import SERVER, Caller
from minutebook.domain.rooms.commands import TurnRunAway
from minutebook.domain.rooms.events import LimitReached, RoomClosed, RunEnded, RunStarted
from minutebook.domain.rooms.runs import turn_run_away
from room_scenes import (
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
)

KNOCK = TurnRunAway()
CONTENDER = agent(NEXT_RUN)
TURNED = LimitReached("concurrent_run", NEXT_RUN)


def test_one_event_a_contender() -> None:
    room = given(OPENED, *STARTED)
    decision = room.when(asked(turn_run_away, KNOCK, CONTENDER)).then(TURNED)
    new = decision.events[0]
    assert (new.actor, new.origin_client, new.origin_key) == (SERVER, "minutebook", f"busy:{NEXT_RUN}")
    room = given(*room.events, *decision.events)
    room.when(asked(turn_run_away, KNOCK, CONTENDER)).then_nothing()
    room.when(asked(turn_run_away, KNOCK, agent("runruncc"))).then(LimitReached("concurrent_run", "runruncc"))


def test_its_key_is_good_for_once_whatever_became_of_the_run_since() -> None:
    third = RunStarted("runruncc", "tester")
    room = given(OPENED, *STARTED, TURNED, RunEnded(RUN, "lost"), RunStarted(NEXT_RUN, "tester"), third)
    room.when(asked(turn_run_away, KNOCK, CONTENDER)).then_nothing()


def test_the_run_that_has_the_room_is_no_contender() -> None:
    given(OPENED, *STARTED).when(asked(turn_run_away, KNOCK, RUNNING)).then_nothing()
    given(OPENED).when(asked(turn_run_away, KNOCK, CONTENDER)).then_nothing()


@pytest.mark.parametrize(
    "caller", [OWNER, SYSTEM, agent(NEXT_RUN, room_id=OTHER_ROOM), agent(NEXT_RUN, tenant="other")], ids=str
)
def test_only_a_run_of_this_room_knocks(caller: Caller) -> None:
    given(OPENED, *STARTED).when(asked(turn_run_away, KNOCK, caller)).then_refused(NotVisible)


def test_a_closed_room_hears_nobody() -> None:
    given(OPENED, RoomClosed()).when(asked(turn_run_away, KNOCK, CONTENDER)).then_refused(Sealed)
