"""The directory of rooms: one row a room, whose state is what the commands fold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import msgspec
import pytest
from approval_scenes import asking, waiting
from folds import STREAM, given, log_of
from gwt import recorded
from hypothesis import given as examples
from hypothesis import strategies as st
from minutebook.domain.errors import Damaged
from minutebook.domain.rooms.context import Timeouts
from minutebook.domain.rooms.events import HarnessReported, ParticipantJoined, ParticipantLeft, RoomClosed, RunEnded
from minutebook.domain.rooms.state import INITIAL, Room, evolve
from minutebook.projections.room_list import RoomList, phase
from room_samples import EVENTS, RECORDED
from room_scenes import NOW as ASKED_AT
from room_scenes import OPENED, RUN, STARTED, pushed
from room_scenes import given as given_room

ROOMS = RoomList()
NOW = datetime(2026, 1, 2, tzinfo=UTC)
WAITING_S = Timeouts().waiting_s
AWAITING_AFTER = timedelta(seconds=WAITING_S)
ATTENDED_TTL = timedelta(seconds=Timeouts().attended_s)


def test_one_row_a_room() -> None:
    given(ROOMS, OPENED, ParticipantJoined("human:nora", "watcher")).rows(
        {
            "stream_id": STREAM.id,
            "room_id": STREAM.local_id,
            "tenant": STREAM.tenant,
            "last_seq": 2,
            "last_ts": "2026-01-02T03:04:02.000000Z",
            "sealed": False,
            "people": ["human:carl", "human:wanda", "human:olga", "human:nora"],
        }
    )


def test_people_who_left_and_closed_rooms() -> None:
    given(ROOMS, OPENED, ParticipantLeft("human:wanda"), RoomClosed()).rows(
        {"people": ["human:carl", "human:olga"], "sealed": True}
    )


def state_of(row: dict[str, Any]) -> Room:
    """The folded room that a row keeps."""
    return msgspec.json.decode(row["state"], type=Room)


def test_an_erased_item_of_a_run_keeps_its_number() -> None:
    """Or the bridge would be told to push it again."""
    item = pushed("events:4", HarnessReported("harness_event"))
    erased = msgspec.structs.replace(log_of([item])[0], payload=None)
    run = state_of(given(ROOMS, OPENED, *STARTED, erased).table()[0]).run
    assert run is not None
    assert run.events_seq == 4


def test_b79_a_damaged_event_stops_the_fold() -> None:
    broken = msgspec.structs.replace(log_of([OPENED])[0], payload='{"kind": "room_phase", "phase": "open"}')
    with pytest.raises(Damaged):
        given(ROOMS, broken).table()


@examples(st.lists(EVENTS | RECORDED, min_size=1, max_size=12), st.data())
def test_batches_make_no_difference_and_the_state_is_that_of_the_commands(
    events: list[Any], data: st.DataObject
) -> None:
    folding = given(ROOMS, *events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=4)))
    whole = folding.table()
    assert whole == folding.table(*range(1, len(events))) == folding.table(*cuts)
    placed = [msgspec.structs.replace(each, seq=seq) for seq, each in enumerate(recorded(events), 1)]
    assert state_of(whole[0]) == reduce(evolve, placed, INITIAL)


@pytest.mark.parametrize(
    ("events", "silent", "want"),
    [
        ((OPENED,), timedelta(days=9), "Open"),
        ((OPENED, *STARTED), timedelta(0), "Active"),
        ((OPENED, *STARTED), AWAITING_AFTER - timedelta(seconds=1), "Active"),
        ((OPENED, *STARTED), AWAITING_AFTER, "AwaitingHuman"),
        ((OPENED, *STARTED, RunEnded(RUN, "finished")), timedelta(days=9), "Idle"),
        ((OPENED, *STARTED, RoomClosed()), timedelta(0), "Closed"),
    ],
    ids=["open", "active", "still active", "silent", "idle", "closed"],
)
def test_the_phase_is_derived_when_read(events: tuple[Any, ...], silent: timedelta, want: str) -> None:
    assert phase(given_room(*events).state, NOW - silent, NOW, frozenset(), WAITING_S) == want


@pytest.mark.parametrize(
    ("labels", "later", "want"),
    [
        (frozenset({"secret"}), timedelta(0), "AwaitingHuman"),
        (frozenset({"secret"}), ATTENDED_TTL - timedelta(seconds=1), "AwaitingHuman"),
        (frozenset({"secret"}), ATTENDED_TTL, "Active"),
        (frozenset[str](), timedelta(0), "Active"),
    ],
    ids=["cleared", "nearly over", "over", "not cleared"],
)
def test_a_room_whose_run_waits_for_leave_waits_for_whoever_may_see_it(
    labels: frozenset[str], later: timedelta, want: str
) -> None:
    room = waiting(ask=asking(tool_classes={"vault": "secret"})).state
    assert phase(room, ASKED_AT + later, ASKED_AT + later, labels, WAITING_S) == want
