"""Closing: what is open ends first, then the room is sealed, in one append."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import Forbidden, Sealed
from minutebook.domain.principals import SERVER, Caller
from minutebook.domain.rooms.commands import CloseRoom
from minutebook.domain.rooms.decide import close_room
from minutebook.domain.rooms.events import ParticipantLeft, RoomClosed, RunEnded, TurnReported
from room_scenes import ADMIN, COLLABORATOR, OPENED, OWNER, RUN, RUNNING, STARTED, SYSTEM, WATCHER, asked, given, pushed


@pytest.mark.parametrize("caller", [OWNER, ADMIN, SYSTEM], ids=str)
def test_the_room_is_sealed(caller: Caller) -> None:
    decision = given(OPENED).when(asked(close_room, CloseRoom("done"), caller)).then(RoomClosed("done"))
    assert decision.seal
    assert decision.events[0].actor == caller.principal


def test_without_a_reason_none_is_recorded() -> None:
    decision = given(OPENED).when(asked(close_room, CloseRoom(), OWNER)).then(RoomClosed())
    assert decision.events[0].payload() == {"kind": "room_phase", "phase": "closed"}


def test_the_run_ends_first_and_its_open_turn_fails() -> None:
    turn = pushed("events:1", TurnReported(RUN, "t1", "started"))
    decision = (
        given(OPENED, *STARTED, turn)
        .when(asked(close_room, CloseRoom(), OWNER))
        .then(
            TurnReported(RUN, "t1", "failed"),
            RunEnded(RUN, "room_closed"),
            ParticipantLeft(f"agent:{RUN}"),
            RoomClosed(),
        )
    )
    assert [(new.actor, new.origin) for new in decision.events[:3]] == [(SERVER, "broker")] * 3
    assert decision.events[3].origin == "client"


@pytest.mark.parametrize("caller", [COLLABORATOR, WATCHER, RUNNING], ids=str)
def test_only_owners_close(caller: Caller) -> None:
    given(OPENED, *STARTED).when(asked(close_room, CloseRoom(), caller)).then_refused(Forbidden)


def test_it_closes_once() -> None:
    given(OPENED, RoomClosed()).when(asked(close_room, CloseRoom(), OWNER)).then_refused(Sealed)
