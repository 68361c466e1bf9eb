"""The end of a legal hold."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import Forbidden, Invalid
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import ReleaseHold
from minutebook.domain.rooms.decide import release_hold
from minutebook.domain.rooms.events import HoldReleased, HoldSet, RoomClosed
from room_scenes import ADMIN, COLLABORATOR, OPENED, OWNER, SYSTEM, asked, given

RELEASE = ReleaseHold("settled")
HELD = HoldSet("lawsuit 7")


@pytest.mark.parametrize("events", [(HELD,), (RoomClosed(), HELD)], ids=["open", "closed"])
@pytest.mark.parametrize("caller", [OWNER, ADMIN], ids=str)
def test_retention_goes_on(caller: Caller, events: tuple[object, ...]) -> None:
    decision = given(OPENED, *events).when(asked(release_hold, RELEASE, caller)).then(HoldReleased("settled"))
    assert given(OPENED, *events, *decision.events).state.is_held is False


def test_without_a_hold_there_is_nothing_to_release() -> None:
    given(OPENED).when(asked(release_hold, RELEASE, OWNER)).then_nothing()
    given(OPENED, HELD).when(asked(release_hold, ReleaseHold("ü" * 129), OWNER)).then_refused(Invalid, "$.reason")


@pytest.mark.parametrize("caller", [COLLABORATOR, SYSTEM], ids=str)
def test_others_release_nothing(caller: Caller) -> None:
    given(OPENED, HELD).when(asked(release_hold, RELEASE, caller)).then_refused(Forbidden)
