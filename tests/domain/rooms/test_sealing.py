"""A room at its limits: what crosses one is stored whole, then what is open ends, then the seal, in one append."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from minutebook.domain.principals import SERVER
from minutebook.domain.rooms.commands import CloseRoom, EndRun, PostMessage, SetHold, StartRun
from minutebook.domain.rooms.context import Decision, Limits
from minutebook.domain.rooms.decide import close_room, set_hold
from minutebook.domain.rooms.events import (
    HoldSet,
    LimitReached,
    MessagePosted,
    ParticipantLeft,
    QueuedRemoved,
    RoomClosed,
    RunEnded,
    TurnReported,
)
from minutebook.domain.rooms.messages import post_message
from minutebook.domain.rooms.runs import end_run, start_run
from minutebook.domain.rooms.sealing import sealing
from room_scenes import OPENED, OWNER, RUN, RUNNING, STARTED, asked, context_of, given, pushed, pushing, said

HELLO = PostMessage("hello")


def size(new: Any) -> int:
    """The bytes of a payload, as the handlers count them."""
    return len(msgspec.json.encode(new.payload()))


def sealed_by(decide: Any, *, events: int = 100_000, bytes_: int = 1 << 28, stored: int = 0) -> Any:
    """A decision taken through the limits of its room."""

    def both(room: Any, version: int) -> Decision:
        context = context_of(OWNER, version, stored, Limits(events=events, bytes=bytes_))
        return sealing(room, decide(room, version), context, size)

    return both


def test_below_the_limits_nothing_is_added() -> None:
    decision = given(OPENED).when(sealed_by(asked(post_message, HELLO, OWNER), events=3)).then(MessagePosted("hello"))
    assert not decision.seal


def test_the_event_that_reaches_the_limit_is_stored_and_the_room_sealed() -> None:
    decision = (
        given(OPENED)
        .when(sealed_by(asked(post_message, HELLO, OWNER), events=2))
        .then(MessagePosted("hello"), LimitReached("events"), RoomClosed("limit"))
    )
    assert decision.seal
    assert [new.actor for new in decision.events[1:]] == [SERVER, SERVER]


@pytest.mark.parametrize(("stored", "is_sealed"), [(0, False), (1 << 20, True)])
def test_bytes_count_too(stored: int, is_sealed: bool) -> None:
    decide = sealed_by(asked(post_message, HELLO, OWNER), bytes_=1 << 20, stored=stored)
    decision = given(OPENED).when(decide).decided()
    assert decision.seal is is_sealed
    assert (LimitReached("bytes") in [new.event for new in decision.events]) is is_sealed


def test_the_limit_in_bytes_is_exact() -> None:
    message = asked(post_message, HELLO, OWNER)
    exact = size(message(given(OPENED).state, 1).events[0])
    assert given(OPENED).when(sealed_by(message, bytes_=1000, stored=1000 - exact)).decided().seal
    assert not given(OPENED).when(sealed_by(message, bytes_=1000, stored=999 - exact)).decided().seal


def test_a_run_that_the_limit_finds_running_ends_first() -> None:
    room = given(OPENED, *STARTED, pushed("events:1", TurnReported(RUN, "t1", "started")))
    room.when(sealed_by(asked(post_message, HELLO, OWNER), events=5)).then(
        MessagePosted("hello"),
        TurnReported(RUN, "t1", "failed"),
        RunEnded(RUN, "room_closed"),
        ParticipantLeft(f"agent:{RUN}"),
        LimitReached("events"),
        RoomClosed("limit"),
    )


def test_a_run_that_starts_with_the_last_event_does_not_outlive_the_room() -> None:
    room = given(OPENED).when(sealed_by(asked(start_run, StartRun("implementer"), RUNNING), events=3))
    decision = room.then(
        *STARTED,
        RunEnded(RUN, "room_closed"),
        ParticipantLeft(f"agent:{RUN}"),
        LimitReached("events"),
        RoomClosed("limit"),
    )
    assert given(OPENED, *decision.events).state.run is None


def test_a_run_that_ends_with_the_last_event_ends_once() -> None:
    given(OPENED, *STARTED).when(sealed_by(asked(end_run, EndRun(), RUNNING), events=5)).then(
        RunEnded(RUN, "finished"), ParticipantLeft(f"agent:{RUN}"), LimitReached("events"), RoomClosed("limit")
    )


def test_a_turn_that_opens_in_the_last_batch_is_closed() -> None:
    turn = {"runId": RUN, "turnId": "t9", "phase": "started"}
    decision = (
        given(OPENED, *STARTED)
        .when(sealed_by(pushing(("events:1", "turn", turn)), events=4))
        .then(
            TurnReported(RUN, "t9", "started"),
            TurnReported(RUN, "t9", "failed"),
            RunEnded(RUN, "room_closed"),
            ParticipantLeft(f"agent:{RUN}"),
            LimitReached("events"),
            RoomClosed("limit"),
        )
    )
    assert decision.answer == {"afterHarnessSeq": 1, "afterStatusSeq": 0}


def test_a_close_at_the_limit_is_a_close() -> None:
    given(OPENED).when(sealed_by(asked(close_room, CloseRoom(), OWNER), events=2)).then(RoomClosed())


def test_a_command_that_changes_nothing_seals_nothing() -> None:
    given(OPENED, *STARTED).when(sealed_by(pushing(), events=1)).then_nothing()


def test_what_waits_is_settled_before_the_limit_seals() -> None:
    queued = said(MessagePosted("next", delivery="queued"), OWNER)
    room = given(OPENED, queued)
    decision = room.when(sealed_by(asked(post_message, PostMessage("last", delivery="queued"), OWNER), events=3)).then(
        MessagePosted("last", (), "queued"),
        QueuedRemoved(2),
        QueuedRemoved(3),
        LimitReached("events"),
        RoomClosed("limit"),
    )
    assert [new.origin_key for new in decision.events] == [None, "unqueued:2", "unqueued:3", None, "seal"]


def test_a_hold_on_a_room_that_is_full_and_closed_seals_nothing_again() -> None:
    closed = given(OPENED, RoomClosed("limit"))
    decision = closed.when(sealed_by(asked(set_hold, SetHold("lawsuit"), OWNER), events=2)).then(HoldSet("lawsuit"))
    assert not decision.seal
