"""Closing: what is open ends first, then the room is sealed, in one append."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import Forbidden, Invalid, Sealed
from minutebook.domain.principals import SERVER, Caller
from minutebook.domain.rooms.approval_events import ApprovalDecided, ApprovalRequested
from minutebook.domain.rooms.commands import CloseRoom
from minutebook.domain.rooms.context import NewEvent
from minutebook.domain.rooms.decide import close_room
from minutebook.domain.rooms.events import (
    MessagePosted,
    ParticipantLeft,
    QueuedRemoved,
    RoomClosed,
    RunEnded,
    RunRequested,
    TurnReported,
)
from room_scenes import (
    ADMIN,
    COLLABORATOR,
    NEXT_RUN,
    OPENED,
    OWNER,
    RUN,
    RUNNING,
    STARTED,
    SYSTEM,
    WATCHER,
    asked,
    given,
    pushed,
    said,
)


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


def test_approvals_queue_and_runs_are_settled_before_the_seal() -> None:
    digest = "ab" * 32
    waits = ApprovalRequested("a1", "c1", "forge.pr", {}, digest, (), "2026-03-01T12:30:00.000000Z")
    room = given(
        OPENED,
        said(MessagePosted("one", delivery="queued"), COLLABORATOR),
        RunRequested(NEXT_RUN, "tester", (2,), 2, "human:olga"),
        said(MessagePosted("two", delivery="queued"), COLLABORATOR),
        *STARTED,
        NewEvent(waits, RUNNING.principal, run_id=RUN),
    )
    decision = room.when(asked(close_room, CloseRoom("done"), OWNER)).then(
        ApprovalDecided("a1", digest, "superseded"),
        QueuedRemoved(4),
        RunEnded(NEXT_RUN, "room_closed"),
        RunEnded(RUN, "room_closed"),
        ParticipantLeft(f"agent:{RUN}"),
        RoomClosed("done"),
    )
    state = given(*room.events, *decision.events).state
    assert (state.queue, state.run, state.waiting_runs, state.approvals.pending) == ((), None, [], {})
    keys = [new.origin_key for new in decision.events[:-1]]
    assert keys == ["approval:a1", "unqueued:4", f"run:{NEXT_RUN}:ended", f"run:{RUN}:ended", f"run:{RUN}:left"]


def test_a_reason_is_measured_in_bytes() -> None:
    given(OPENED).when(asked(close_room, CloseRoom("ü" * 129), OWNER)).then_refused(Invalid, "$.reason")


@pytest.mark.parametrize("caller", [COLLABORATOR, WATCHER, RUNNING], ids=str)
def test_only_owners_close(caller: Caller) -> None:
    given(OPENED, *STARTED).when(asked(close_room, CloseRoom(), caller)).then_refused(Forbidden)


def test_it_closes_once() -> None:
    given(OPENED, RoomClosed()).when(asked(close_room, CloseRoom(), OWNER)).then_refused(Sealed)
