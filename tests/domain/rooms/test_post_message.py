"""Chat: words for people, from whoever the rights table lets speak."""

from __future__ import annotations

import msgspec
import pytest
from minutebook.domain.errors import Forbidden, Invalid, NotVisible, RunNotLive, Sealed, TooLarge
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import MAX_RECIPIENTS, PostMessage
from minutebook.domain.rooms.context import Limits
from minutebook.domain.rooms.events import MessagePosted, RoomClosed, RunEnded
from minutebook.domain.rooms.messages import post_message
from room_scenes import (
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
