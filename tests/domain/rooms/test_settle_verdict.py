"""What became of a verdict on its pull request is recorded by the server, under a key that is fixed."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import Forbidden
from minutebook.domain.principals import SERVER, Caller
from minutebook.domain.rooms.decide_verdicts import SettleVerdict, settle_verdict
from minutebook.domain.rooms.events import RoomClosed, VerdictNotPosted, VerdictPosted
from room_scenes import OPENED, OWNER, SWEEP, SYSTEM, asked, given


@pytest.mark.parametrize(
    ("command", "event"),
    [
        (SettleVerdict(7, url="https://forge.example/c/1"), VerdictPosted(7, "https://forge.example/c/1")),
        (SettleVerdict(7), VerdictPosted(7)),
        (SettleVerdict(7, "http_404"), VerdictNotPosted(7, "http_404")),
    ],
    ids=["posted", "posted somewhere", "not posted"],
)
def test_the_outcome_is_recorded(command: SettleVerdict, event: VerdictPosted | VerdictNotPosted) -> None:
    decision = given(OPENED).when(asked(settle_verdict, command, SWEEP)).then(event)
    new = decision.events[0]
    assert (new.actor, new.origin, new.caused_by) == (SERVER, "broker", 7)
    assert (new.origin_client, new.origin_key) == ("minutebook", "verdict:7")


def test_a_room_that_was_closed_meanwhile_takes_no_outcome() -> None:
    given(OPENED, RoomClosed()).when(asked(settle_verdict, SettleVerdict(7), SWEEP)).then_nothing()


@pytest.mark.parametrize("caller", [OWNER, SYSTEM], ids=["an owner", "a system"])
def test_nobody_but_the_server_says_so(caller: Caller) -> None:
    given(OPENED).when(asked(settle_verdict, SettleVerdict(7), caller)).then_refused(Forbidden)
