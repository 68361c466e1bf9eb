"""What an answer says on a channel."""

from __future__ import annotations

from typing import Any

import pytest
from answer_samples import TALK
from minutebook.domain.answers.saying import sayings
from minutebook.domain.conversations.events import ReplyRecorded, UserRecorded
from minutebook.domain.conversations.identity import Identity

ALICE = Identity("human:alice", "acme")


def user(**fields: Any) -> UserRecorded:
    """The question."""
    return UserRecorded(
        1, fields.pop("turn", 1), 1, fields.pop("status", "accepted"), 2, ALICE, "k", "m", text="why?", **fields
    )


def reply(text: str, status: Any = "completed", **fields: Any) -> ReplyRecorded:
    """How its turn ended."""
    return ReplyRecorded(2, 1, 1, status, text, ALICE, 1, "k", "m", **fields)


@pytest.mark.parametrize(
    ("ended", "echo", "said"),
    [
        (reply("because"), False, [("reply", "because")]),
        (reply("because"), True, [("echo", "why?"), ("reply", "because")]),
        (reply("half", "interrupted"), False, [("reply", "half"), ("notice", "The answer was interrupted.")]),
        (reply("", "interrupted"), False, [("notice", "The answer was interrupted.")]),
        (
            reply("half", "failed", reason="denied"),
            False,
            [("notice", "There is no answer: the turn failed (denied).")],
        ),
        (reply(" "), False, [("notice", "The answer has no text.")]),
    ],
)
def test_a_reply_and_a_notice(ended: ReplyRecorded, echo: bool, said: list[tuple[str, str]]) -> None:
    assert [(each.kind, each.text) for each in sayings("reply", TALK, user(), ended, echo=echo)] == said


def test_a_message_that_was_not_taken_up() -> None:
    (said,) = sayings("reply", TALK, user(turn=0, status="rejected", reason="closed"), None, echo=False)
    assert (said.kind, said.text) == ("notice", "Your message was not taken up (closed).")


def test_a_pointer_has_no_word_of_either() -> None:
    (said,) = sayings("pointer", TALK, user(), reply("because"), echo=True)
    assert said.kind == "pointer"
    assert TALK in said.text
    assert "because" not in said.text
    assert "why" not in said.text


def test_a_pointer_in_a_group_names_nothing() -> None:
    (said,) = sayings("pointer", TALK, user(), reply("because"), echo=True, is_group=True)
    assert (said.kind, TALK in said.text, "private chat" in said.text) == ("pointer", False, True)
