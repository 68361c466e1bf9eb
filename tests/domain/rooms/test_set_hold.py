"""A legal hold: owners and admins set it, on a closed room too."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import ClientNotAllowed, Forbidden, Invalid, MinutebookError, NotVisible
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import SetHold
from minutebook.domain.rooms.decide import set_hold
from minutebook.domain.rooms.events import HoldSet, RoomClosed
from room_scenes import ADMIN, COLLABORATOR, OPENED, OWNER, RUNNING, STARTED, STRANGER, SYSTEM, asked, given, human

HOLD = SetHold("lawsuit 7")


@pytest.mark.parametrize("events", [(), (RoomClosed(),)], ids=["open", "closed"])
@pytest.mark.parametrize("caller", [OWNER, ADMIN], ids=str)
def test_retention_stops(caller: Caller, events: tuple[object, ...]) -> None:
    decision = given(OPENED, *events).when(asked(set_hold, HOLD, caller)).then(HoldSet("lawsuit 7"))
    after = given(OPENED, *events, *decision.events).state
    assert (after.is_held, after.is_closed, decision.seal) == (True, bool(events), False)
    assert decision.events[0].actor == caller.principal


def test_a_reason_more_is_recorded_too() -> None:
    given(OPENED, HoldSet("lawsuit 7")).when(asked(set_hold, SetHold("audit"), OWNER)).then(HoldSet("audit"))
    given(OPENED).when(asked(set_hold, SetHold("ü" * 129), OWNER)).then_refused(Invalid, "$.reason")


@pytest.mark.parametrize(
    ("caller", "refusal"),
    [
        (COLLABORATOR, Forbidden),
        (SYSTEM, Forbidden),
        (RUNNING, Forbidden),
        (human("olga", is_cli_client=True), ClientNotAllowed),
        (STRANGER, NotVisible),
    ],
    ids=str,
)
def test_others_hold_nothing(caller: Caller, refusal: type[MinutebookError]) -> None:
    given(OPENED, *STARTED).when(asked(set_hold, HOLD, caller)).then_refused(refusal)
