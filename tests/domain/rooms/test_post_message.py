"""Words for people, for the next run and into the running one, from whoever the rights table lets speak."""

from __future__ import annotations

import msgspec
import pytest
from minutebook.domain.errors import (
    ClientNotAllowed,
    Forbidden,
    Invalid,
    MinutebookError,
    NoRunningRun,
    NotVisible,
    QueueFull,
    RunNotLive,
    Sealed,
    StaleEpoch,
    TooLarge,
)
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import MAX_RECIPIENTS, PostMessage
from minutebook.domain.rooms.context import Limits
from minutebook.domain.rooms.events import DriverMoved, MessagePosted, RoomClosed, RunEnded, VerdictGiven
from minutebook.domain.rooms.messages import post_message
from minutebook.domain.rooms.run_state import SteeringDelivery
from room_scenes import (
    ADMIN,
    COLLABORATOR,
    MEMBER_OF_GROUP,
    OPENED,
    OWNER,
    RUN,
    RUNNING,
    STARTED,
    STRANGER,
    SYSTEM,
    WATCHER,
    asked,
    given,
    human,
    said,
)

HELLO = PostMessage("hello")


@pytest.mark.parametrize(
    ("caller", "role"), [(OWNER, "owner"), (COLLABORATOR, "collaborator"), (SYSTEM, None)], ids=str
)
def test_the_envelope_says_who_spoke_and_as_what(caller: Caller, role: str | None) -> None:
    decision = given(OPENED).when(asked(post_message, HELLO, caller)).then(MessagePosted("hello"))
    new = decision.events[0]
    assert (new.actor, new.actor_role, new.run_id, new.origin) == (caller.principal, role, None, "client")


def test_a_run_speaks_as_itself() -> None:
    decision = given(OPENED, *STARTED).when(asked(post_message, HELLO, RUNNING)).then(MessagePosted("hello"))
    new = decision.events[0]
    assert (new.actor_role, new.run_id, new.origin_key) == ("implementer", RUN, None)


def test_recipients_and_cause_are_kept() -> None:
    command = PostMessage("look", to=("human:wanda", f"agent:{RUN}"), caused_by=1)
    decision = (
        given(OPENED)
        .when(asked(post_message, command, OWNER))
        .then(MessagePosted("look", ("human:wanda", f"agent:{RUN}")))
    )
    assert decision.events[0].caused_by == 1


def test_watchers_listen() -> None:
    given(OPENED).when(asked(post_message, HELLO, WATCHER)).then_refused(Forbidden)
    given(OPENED).when(asked(post_message, HELLO, MEMBER_OF_GROUP)).then_refused(Forbidden)


def test_a_stranger_sees_no_room() -> None:
    given(OPENED).when(asked(post_message, HELLO, STRANGER)).then_refused(NotVisible)
    given(OPENED).when(asked(post_message, HELLO, human("olga", tenant="other"))).then_refused(NotVisible)


def test_a_run_that_is_over_says_nothing_more() -> None:
    room = given(OPENED, *STARTED, RunEnded(RUN, "finished"))
    room.when(asked(post_message, HELLO, RUNNING)).then_refused(RunNotLive)


def test_a_closed_room_is_closed_for_its_owner_too() -> None:
    given(OPENED, RoomClosed()).when(asked(post_message, HELLO, OWNER)).then_refused(Sealed)


def test_text_is_measured_in_bytes() -> None:
    limits = Limits(text_bytes=16)
    given(OPENED).when(asked(post_message, PostMessage("x" * 16), OWNER, limits=limits)).then(MessagePosted("x" * 16))
    given(OPENED).when(asked(post_message, PostMessage("ü" * 9), OWNER, limits=limits)).then_refused(TooLarge)


def test_a_cause_is_an_event_of_this_room() -> None:
    given(OPENED).when(asked(post_message, PostMessage("?", caused_by=2), OWNER)).then_refused(Invalid, "$.causedBy")


def test_recipients_are_principals() -> None:
    command = PostMessage("?", to=("human:wanda", "everybody"))
    given(OPENED).when(asked(post_message, command, OWNER)).then_refused(Invalid, "$.to[1]")


@pytest.mark.parametrize(
    "body",
    [
        {"text": ""},
        {"text": "x", "kind": "policy"},
        {"text": "x", "delivery": "at once"},
        {"text": "x", "driverEpoch": 0},
        {"text": "x", "verdict": "perhaps"},
        {"text": "x", "commit": "HEAD"},
        {"text": "x", "to": ["human:a"] * (MAX_RECIPIENTS + 1)},
        {"text": "x", "causedBy": 0},
        {"text": "x", "actor": "human:boss"},
        {"text": "x", "seq": 9},
    ],
    ids=str,
)
def test_the_body_takes_nothing_else(body: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(body, PostMessage)


QUEUED = PostMessage("docs next", delivery="queued")
STEERING = PostMessage("left, not right", delivery="steering", driver_epoch=1)
VERDICT = PostMessage("Wrong sign.", "review_verdict", verdict="changes", commit="0a1b2c3d")
TASK = PostMessage("merged", "task_state")


@pytest.mark.parametrize("caller", [COLLABORATOR, OWNER, SYSTEM, human("carl", is_cli_client=True)], ids=str)
def test_a_queued_message_waits_behind_the_others(caller: Caller) -> None:
    first = given(OPENED).when(asked(post_message, QUEUED, COLLABORATOR)).then(MessagePosted("docs next", (), "queued"))
    second = given(OPENED, *first.events).when(asked(post_message, PostMessage("tests", delivery="queued"), caller))
    room = given(OPENED, *first.events, *second.decided().events)
    assert [(quote.seq, quote.text) for quote in room.state.queue] == [(2, "docs next"), (3, "tests")]
    assert room.state.queue[1].author == str(caller.principal)


def test_the_queue_is_bounded() -> None:
    room = given(OPENED, said(MessagePosted("x", delivery="queued"), OWNER))
    error = room.when(asked(post_message, QUEUED, OWNER, limits=Limits(queued=1))).then_refused(QueueFull)
    assert error.attributes["retryAfterMs"] > 0
    assert room.when(asked(post_message, HELLO, OWNER, limits=Limits(queued=1))).decided().events
    assert room.when(asked(post_message, QUEUED, OWNER, limits=Limits(queued=2))).decided().events


def test_sc3_only_the_driver_steers_and_after_a_give_the_new_one() -> None:
    room = given(OPENED, *STARTED)
    decision = room.when(asked(post_message, STEERING, OWNER)).then(MessagePosted(STEERING.text, (), "steering"))
    run = given(*room.events, *decision.events).state.run
    assert (run.deliveries, run.prompted_by) == ((SteeringDelivery(4, STEERING.text),), ("human:olga",))
    room.when(asked(post_message, STEERING, COLLABORATOR)).then_refused(Forbidden)
    given_on = given(*room.events, DriverMoved("human:olga", "human:carl", 2, "given"))
    at_two = msgspec.structs.replace(STEERING, driver_epoch=2)
    given_on.when(asked(post_message, STEERING, OWNER)).then_refused(StaleEpoch)
    given_on.when(asked(post_message, at_two, OWNER)).then_refused(Forbidden)
    assert given_on.when(asked(post_message, at_two, COLLABORATOR)).decided().events


@pytest.mark.parametrize(
    ("caller", "refusal"),
    [
        (WATCHER, Forbidden),
        (ADMIN, Forbidden),
        (SYSTEM, Forbidden),
        (RUNNING, Forbidden),
        (human("olga", is_cli_client=True), ClientNotAllowed),
        (STRANGER, NotVisible),
    ],
    ids=str,
)
def test_nobody_else_steers(caller: Caller, refusal: type[MinutebookError]) -> None:
    given(OPENED, *STARTED).when(asked(post_message, STEERING, caller)).then_refused(refusal)


def test_steering_needs_an_epoch_a_run_and_room() -> None:
    blind = msgspec.structs.replace(STEERING, driver_epoch=None)
    room = given(OPENED, *STARTED)
    room.when(asked(post_message, blind, OWNER)).then_refused(Invalid, "$.driverEpoch")
    room.when(asked(post_message, blind, human("olga", is_cli_client=True))).then_refused(ClientNotAllowed)
    given(OPENED).when(asked(post_message, STEERING, OWNER)).then_refused(NoRunningRun)
    room.when(asked(post_message, STEERING, OWNER, limits=Limits(deliveries=0))).then_refused(QueueFull)
    given(OPENED, RoomClosed()).when(asked(post_message, STEERING, OWNER)).then_refused(Sealed)


def test_a_system_steers_while_it_drives() -> None:
    room = given(OPENED, *STARTED, DriverMoved("human:olga", "system:triage", 2, "given"))
    command = msgspec.structs.replace(STEERING, driver_epoch=2)
    room.when(asked(post_message, command, SYSTEM)).then(MessagePosted(STEERING.text, (), "steering"))


def test_people_may_review() -> None:
    decision = (
        given(OPENED)
        .when(asked(post_message, VERDICT, COLLABORATOR))
        .then(VerdictGiven("Wrong sign.", "changes", "0a1b2c3d"))
    )
    verdict = given(OPENED, *decision.events).state.last_verdict
    assert (verdict.seq, verdict.author, verdict.text) == (2, "human:carl", "Wrong sign.")
    for caller in (WATCHER, SYSTEM, RUNNING):
        given(OPENED, *STARTED).when(asked(post_message, VERDICT, caller)).then_refused(Forbidden)


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"verdict": None}, "$.verdict"),
        ({"commit": None}, "$.commit"),
        ({"delivery": "queued"}, "$.delivery"),
        ({"kind": "chat"}, "$.verdict"),
        ({"kind": "chat", "verdict": None}, "$.commit"),
    ],
    ids=str,
)
def test_a_verdict_is_whole_and_only_a_verdict_is_one(changed: dict[str, object], path: str) -> None:
    command = msgspec.structs.replace(VERDICT, **changed)
    given(OPENED).when(asked(post_message, command, OWNER)).then_refused(Invalid, path)


def test_systems_tell_the_state_of_a_task() -> None:
    given(OPENED).when(asked(post_message, TASK, SYSTEM)).then(MessagePosted("merged", (), "none", "task_state"))
    queued = msgspec.structs.replace(TASK, delivery="queued")
    given(OPENED).when(asked(post_message, queued, SYSTEM)).then(MessagePosted("merged", (), "queued", "task_state"))
    for caller in (OWNER, ADMIN, RUNNING):
        given(OPENED, *STARTED).when(asked(post_message, TASK, caller)).then_refused(Forbidden)


def test_a_run_queues_nothing() -> None:
    given(OPENED, *STARTED).when(asked(post_message, QUEUED, RUNNING)).then_refused(Forbidden)
    given(OPENED).when(asked(post_message, QUEUED, WATCHER)).then_refused(Forbidden)
