"""Laws of the room that hold for any log and any command, found or broken by generated examples."""

from __future__ import annotations

import itertools
from functools import reduce
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from minutebook.domain.errors import MinutebookError
from minutebook.domain.events import Recorded
from minutebook.domain.principals import SERVER
from minutebook.domain.rooms.commands import AddMember, CloseRoom, EndRun, PostMessage, RemoveMember, StartRun
from minutebook.domain.rooms.decide import close_room
from minutebook.domain.rooms.events import ROOM_EVENTS
from minutebook.domain.rooms.members import add_member, remove_member
from minutebook.domain.rooms.messages import post_message
from minutebook.domain.rooms.rights import allowed_actions
from minutebook.domain.rooms.runs import end_run, start_run
from minutebook.domain.rooms.state import INITIAL, Room, evolve
from minutebook.domain.visibility import cleared
from room_samples import EVENTS, RECORDED
from room_scenes import ADMIN, OPENED, ROOM, RUNNING, STARTED, TENANT, context_of, human, pushing
from room_scenes import given as given_room

LOGS = st.lists(RECORDED, max_size=30)
LABELS = st.frozensets(st.sampled_from(["hr", "finance", "secret"]))


def fold(state: Room, log: list[Recorded[Any]]) -> Room:
    """A log on top of a state."""
    return reduce(evolve, log, state)


@given(LOGS)
@settings(max_examples=200)
def test_evolve_takes_any_log(log: list[Recorded[Any]]) -> None:
    assert isinstance(fold(INITIAL, log), Room)


@given(LOGS, LOGS)
def test_folding_in_parts_is_folding_the_whole(one: list[Recorded[Any]], other: list[Recorded[Any]]) -> None:
    assert fold(INITIAL, one + other) == fold(fold(INITIAL, one), other)


@given(LOGS)
def test_a_snapshot_is_the_state(log: list[Recorded[Any]]) -> None:
    room = fold(INITIAL, log)
    assert msgspec.json.decode(msgspec.json.encode(room), type=Room) == room


@given(LOGS)
def test_a_fold_changes_no_state_that_it_was_given(log: list[Recorded[Any]]) -> None:
    for each in itertools.accumulate(log, evolve, initial=INITIAL):
        kept = msgspec.json.encode(each)
        fold(each, log)
        assert msgspec.json.encode(each) == kept


@given(EVENTS)
@settings(max_examples=200)
def test_an_event_comes_back_as_it_went(event: Any) -> None:
    stored = msgspec.json.encode(event.payload())
    assert ROOM_EVENTS.decode(event.type, event.version, stored) == event


ROOMS = st.sampled_from([given_room(OPENED), given_room(OPENED, *STARTED)])
NAMES = st.sampled_from(["human:olga", "human:carl", "human:wanda", "human:nora"])
COMMANDS = st.one_of(
    st.builds(AddMember, NAMES, st.sampled_from(["watcher", "collaborator", "owner"]), st.booleans()),
    st.builds(RemoveMember, NAMES),
)
"""Commands that set something: asked twice, the second time it is so already."""


@given(ROOMS, COMMANDS)
def test_the_same_command_again_adds_nothing(room: Any, command: AddMember | RemoveMember) -> None:
    decision: Any = add_member if isinstance(command, AddMember) else remove_member
    context = context_of(ADMIN, len(room.events))
    try:
        events = decision(room.state, command, context).events
    except MinutebookError:
        return
    assert decision(given_room(*room.events, *events).state, command, context).events == ()


@given(st.integers(0, 6), st.integers(0, 6))
def test_a_batch_again_adds_nothing(first: int, second: int) -> None:
    def batch(start: int, count: int) -> Any:
        items = [(f"status:{n}", "state_changed", {"kind": "harness_event"}) for n in range(start, start + count)]
        return pushing(*items)

    room = given_room(OPENED, *STARTED)
    once = room.when(batch(1, first)).decided()
    after = given_room(*room.events, *once.events)
    after.when(batch(1, first)).then_nothing()
    more = after.when(batch(1, first + second)).decided()
    assert [new.origin_key for new in more.events] == [f"status:{n}" for n in range(first + 1, first + second + 1)]


def test_a_hello_again_adds_nothing() -> None:
    context = context_of(RUNNING, 1)
    events = start_run(given_room(OPENED).state, StartRun("implementer"), context).events
    room = given_room(OPENED, *events).state
    assert start_run(room, StartRun("implementer"), context).events == ()


@given(st.lists(st.sampled_from(["hr", "finance", "secret"]), max_size=3), LABELS, LABELS)
@example([], frozenset(), frozenset())
def test_a_lower_clearance_never_sees_more(classes: list[str], labels: frozenset[str], more: frozenset[str]) -> None:
    """Law 12 for classes: what is seen with some labels is seen with those and others."""
    assert cleared([], labels)
    assert cleared(classes, frozenset(classes))
    if cleared(classes, labels):
        assert cleared(classes, labels | more)
    else:
        assert not cleared(classes, labels & more)


@given(LOGS)
def test_a_stranger_may_do_nothing_in_any_room(log: list[Recorded[Any]]) -> None:
    room = fold(INITIAL, log)
    for caller in (human("p0", tenant="other"), human("nobody")):
        assert allowed_actions(room, ROOM, TENANT, caller) == []


@given(LOGS, st.sampled_from(["post", "close", "end"]))
def test_a_decision_on_any_room_is_events_or_a_refusal(log: list[Recorded[Any]], which: str) -> None:
    room = fold(INITIAL, log)
    context = context_of(RUNNING if which == "end" else ADMIN, len(log))
    try:
        match which:
            case "post":
                decision = post_message(room, PostMessage("x"), context)
            case "close":
                decision = close_room(room, CloseRoom(), context)
            case _:
                decision = end_run(room, EndRun(), context)
    except MinutebookError:
        return
    after = fold(room, [Recorded(0, SERVER, new.run_id, new.origin_key, new.event) for new in decision.events])
    assert after.is_closed is (room.is_closed or decision.seal)
