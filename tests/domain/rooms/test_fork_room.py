"""A fork: who may, up to where, and what the copies mean in it: history, and nothing under way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from approval_scenes import asking, waiting
from hypothesis import given as for_all
from hypothesis import strategies as st
from minutebook.domain.errors import Forbidden, Invalid, MinutebookError, NotVisible, ReviewerNeedsPr, TooLong
from minutebook.domain.events import Recorded
from minutebook.domain.principals import SERVER, Caller
from minutebook.domain.rooms.approvals import Approvals
from minutebook.domain.rooms.commands import CloseRoom
from minutebook.domain.rooms.context import Limits
from minutebook.domain.rooms.decide import close_room
from minutebook.domain.rooms.decide_fork import MAX_NOTE_CHARS, ForkRoom, fork_room, latest_commit
from minutebook.domain.rooms.events import (
    DriverMoved,
    HoldSet,
    MessagePosted,
    ParticipantJoined,
    ParticipantLeft,
    RoomClosed,
    RunEnded,
    RunRequested,
    VerdictGiven,
)
from minutebook.domain.rooms.fork import ForkedFrom
from minutebook.domain.rooms.handoff import HandoffRecorded
from minutebook.domain.rooms.rights import standing
from minutebook.domain.rooms.state import INITIAL, Member, Room, evolve
from room_samples import RECORDED
from room_scenes import (
    ADMIN,
    COLLABORATOR,
    MEMBER_OF_GROUP,
    OPENED,
    OTHER_ROOM,
    OWNER,
    ROOM,
    RUN,
    RUNNING,
    STARTED,
    STRANGER,
    SYSTEM,
    TENANT,
    WATCHER,
    agent,
    asked,
    given,
    human,
    said,
)

CHAIN = "cd" * 32
FORKED = ForkedFrom(ROOM, 3, CHAIN, "human:fay")
TWO = ForkRoom(2)


def forking(command: ForkRoom = TWO, caller: Caller = WATCHER, **limits: int) -> Any:
    """What the fork's own event is, ready for `when`."""
    return asked(fork_room, command, caller, limits=Limits(**limits))


def test_the_event_behind_the_copies() -> None:
    event = given(OPENED, *STARTED).when(forking(ForkRoom(2, "another way"))).decided()
    assert event == ForkedFrom(room=ROOM, seq=2, chain="", owner="human:wanda", note="another way")
    assert given(OPENED).when(forking(ForkRoom(1))).decided().payload() == {
        "kind": "forked_from",
        "room": ROOM,
        "seq": 1,
        "chain": "",
        "owner": "human:wanda",
    }


RIGHT: list[tuple[Caller, type[MinutebookError] | None]] = [
    (WATCHER, None),
    (COLLABORATOR, None),
    (OWNER, None),
    (ADMIN, None),
    (MEMBER_OF_GROUP, None),
    (SYSTEM, None),
    (human("wanda", is_cli_client=True), None),
    (RUNNING, Forbidden),
    (STRANGER, NotVisible),
    (agent(room_id=OTHER_ROOM), NotVisible),
    (human("olga", tenant="other"), NotVisible),
]


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize(("caller", "refusal"), RIGHT, ids=lambda value: str(getattr(value, "principal", "")))
def test_whoever_may_read_may_fork_an_open_and_a_closed_room(
    caller: Caller, refusal: type[MinutebookError] | None, is_closed: bool
) -> None:
    room = given(OPENED, *STARTED)
    if is_closed:
        room = given(*room.events, *room.when(asked(close_room, CloseRoom(), OWNER)).decided().events)
    if refusal is None:
        assert room.when(forking(caller=caller)).decided().owner == str(caller.principal)
    elif not (is_closed and caller is RUNNING):
        room.when(forking(caller=caller)).then_refused(refusal)


def test_the_last_event_is_one_of_the_room() -> None:
    room = given(OPENED, *STARTED)
    assert room.when(forking(ForkRoom(3))).decided().seq == 3
    room.when(forking(ForkRoom(4))).then_refused(Invalid, "$.seq")


def test_a_fork_has_room_below_the_limit() -> None:
    room = given(OPENED, *STARTED)
    assert room.when(forking(ForkRoom(2), events=4)).decided().seq == 2
    room.when(forking(ForkRoom(3), events=4)).then_refused(TooLong)


def test_a_reviewers_first_run_needs_a_pull_request() -> None:
    room = given(OPENED)
    room.when(forking(ForkRoom(1, role="reviewer"))).then_refused(ReviewerNeedsPr)
    room.when(forking(ForkRoom(1, role="reviewer", pull_request="https://forge.example/7"))).decided()
    room.when(forking(ForkRoom(1, pull_request="https://forge.example/7"))).then_refused(Invalid, "$.pullRequest")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"seq": 0},
        {"seq": 1.5},
        {"seq": 1, "note": ""},
        {"seq": 1, "note": "x" * (MAX_NOTE_CHARS + 1)},
        {"seq": 1, "owner": "human:eve"},
        {"seq": 1, "role": "gardener"},
    ],
    ids=str,
)
def test_what_is_no_fork_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(body, ForkRoom)


def fork_of(*events: Any) -> Room:
    """The fork behind copies of these events."""
    return given(*events, FORKED).state


def test_the_forker_alone_owns_and_drives() -> None:
    room = fork_of(OPENED, *STARTED, ParticipantJoined("human:nora", "owner", approver=True))
    assert (room.owner, room.driver, room.driver_epoch) == ("human:fay", "human:fay", 2)
    assert room.members == {"human:fay": Member("owner")}
    assert room.present == ("human:fay",)
    for caller in (OWNER, COLLABORATOR, WATCHER, human("nora")):
        assert standing(room, "forkfork", TENANT, caller) == "stranger"
    assert standing(room, "forkfork", TENANT, human("fay")) == "owner"


def test_the_epoch_goes_on_from_the_source() -> None:
    room = fork_of(OPENED, DriverMoved("human:olga", "human:carl", 9, "given"), ParticipantLeft("human:wanda"))
    assert room.driver_epoch == 10


def test_settings_of_the_source_stay() -> None:
    source = msgspec.structs.replace(
        OPENED, data_class="public", retention="7d", approvals={"profile": "unattended"}, title="T", repository="f/a"
    )
    room = fork_of(source)
    assert (room.data_class, room.retention, room.title, room.repository) == ("public", "7d", "T", "f/a")
    assert room.approval_settings.profile == "unattended"


def test_nothing_of_the_source_is_under_way() -> None:
    queued = said(MessagePosted("Later.", delivery="queued"), OWNER)
    steering = said(MessagePosted("Now!", delivery="steering"), OWNER)
    waits = waiting(queued, steering).events
    room = fork_of(*waits, RunRequested("waitswai", "tester", (), 5, "human:olga"), HoldSet("a case"))
    assert (room.run, room.runs, room.queue, room.approvals) == (None, {}, (), Approvals())
    assert (room.contenders, room.is_held, room.driver_requests) == ((), False, ())
    assert standing(room, "forkfork", TENANT, agent(room_id="forkfork")) == "ended_run"


@pytest.mark.parametrize("copied", [(RoomClosed("done"),), (RunEnded(RUN, "room_closed"), RoomClosed())])
def test_a_copied_seal_does_not_seal(copied: Any) -> None:
    room = fork_of(OPENED, *STARTED, *copied)
    assert (room.is_open, room.is_closed) == (True, False)


def test_a_copied_request_is_not_asked_for_again_by_its_number() -> None:
    """The fork has no key of the source: a run of its own may number its requests as it likes."""
    room = given(*waiting().events, FORKED, *STARTED)
    assert len(room.when(asking(fresh="01J00000000000000000000NEW")).decided().events) == 1


@for_all(st.lists(RECORDED, max_size=20))
def test_a_fork_of_any_log_is_the_forkers_and_open(log: list[Recorded[Any]]) -> None:
    state = INITIAL
    for recorded in log:
        state = evolve(state, recorded)
    room = evolve(state, Recorded(99, SERVER, None, None, FORKED))
    blank = Room()
    kept = {"owner", "driver", "driver_epoch", "members", "present", "is_open", "system_holder"}
    kept |= {"data_class", "retention", "title", "repository", "approval_settings", "last_handoff", "last_verdict"}
    for field in msgspec.structs.fields(Room):
        if field.name not in kept:
            assert getattr(room, field.name) == getattr(blank, field.name), field.name
    assert (room.owner, list(room.members), room.is_open) == ("human:fay", ["human:fay"], True)


def test_what_was_handed_over_is_known_in_the_fork() -> None:
    handoff = said(HandoffRecorded("implementer", "reviewer", "Done.", "1111111"), agent(), RUN)
    room = fork_of(OPENED, *STARTED, handoff)
    assert room.last_handoff is not None
    assert latest_commit(room) == "1111111"


def test_the_latest_commit_is_an_agents() -> None:
    handoff = said(HandoffRecorded("implementer", "reviewer", "Done.", "1111111"), agent(), RUN)
    by_run = said(VerdictGiven("Good.", "approve", "2222222"), agent(), RUN)
    by_person = said(VerdictGiven("No.", "changes", "3333333"), OWNER)
    assert latest_commit(fork_of(OPENED)) is None
    assert latest_commit(fork_of(OPENED, *STARTED, by_run, handoff)) == "1111111"
    assert latest_commit(fork_of(OPENED, *STARTED, handoff, by_run)) == "2222222"
    assert latest_commit(fork_of(OPENED, *STARTED, handoff, by_person)) == "1111111"
