"""Revoking a run: it ends at once, and the reason outlives it."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import AlreadyEnded, Forbidden, Invalid, NotVisible, RunNotLive
from minutebook.domain.rooms.commands import RevokeRun, StartRun
from minutebook.domain.rooms.events import ParticipantLeft, RunEnded
from minutebook.domain.rooms.runs import revoke_run, start_run
from room_scenes import (
    COLLABORATOR,
    NEXT_RUN,
    OPENED,
    OWNER,
    RUN,
    RUNNING,
    STARTED,
    STRANGER,
    SYSTEM,
    asked,
    given,
)

REVOKE = RevokeRun(RUN, "leaked its token")
LEFT = ParticipantLeft(f"agent:{RUN}")


def test_its_token_is_good_for_nothing_from_here() -> None:
    room = given(OPENED, *STARTED)
    decision = room.when(asked(revoke_run, REVOKE, OWNER)).then(RunEnded(RUN, "revoked", "leaked its token"), LEFT)
    assert decision.events[0].actor == OWNER.principal
    over = given(*room.events, *decision.events)
    assert "revoked" in over.when(asked(start_run, StartRun("tester"), RUNNING)).then_refused(RunNotLive).detail
    over.when(asked(revoke_run, REVOKE, OWNER)).then_refused(AlreadyEnded)


def test_the_reason_may_be_left_out_and_is_bounded() -> None:
    room = given(OPENED, *STARTED)
    room.when(asked(revoke_run, RevokeRun(RUN), SYSTEM)).then(RunEnded(RUN, "revoked"), LEFT)
    room.when(asked(revoke_run, RevokeRun(RUN, "ü" * 129), OWNER)).then_refused(Invalid, "$.reason")


@pytest.mark.parametrize("caller", [COLLABORATOR, RUNNING], ids=str)
def test_others_revoke_none(caller: object) -> None:
    given(OPENED, *STARTED).when(asked(revoke_run, REVOKE, caller)).then_refused(Forbidden)  # type: ignore[arg-type]
    given(OPENED, *STARTED).when(asked(revoke_run, REVOKE, STRANGER)).then_refused(NotVisible)
    given(OPENED, *STARTED).when(asked(revoke_run, RevokeRun(NEXT_RUN), OWNER)).then_refused(NotVisible)
