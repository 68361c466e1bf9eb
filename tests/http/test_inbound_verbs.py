"""What people on channels say instead of a message, over a real socket, and what a group hears of it: nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from inbound_scenes import Desk, inbound_desk

GROUP = -100
CODE = re.compile(r"[0-9A-Z]{4}-[0-9A-Z]{4}")
WORD = re.compile(r"/confirm ([0-9a-f]{8})")


@pytest.fixture(scope="module")
def desk(new_data_dir: Callable[[], Path]) -> Iterator[Desk]:
    with inbound_desk(new_data_dir()) as made:
        yield made
        assert "Traceback" not in made.server.logs()
        assert not made.platforms.texts(str(GROUP)), "nothing of a verb is for a group"


def began(desk: Desk, chat: str = "7") -> str:
    """The code of a link that Ann begins over telegram."""
    before = len([text for text in desk.platforms.texts(chat) if "Your code is" in text])
    desk.telegram("/link")
    desk.platforms.until_texts(chat, "Your code is", before + 1)
    found = CODE.search([text for text in desk.platforms.texts(chat) if "Your code is" in text][-1])
    assert found is not None
    return found[0]


def test_two_chats_are_linked_by_a_code_and_a_word(desk: Desk) -> None:
    desk.slack("before", user="U7")
    alone = desk.newest("sl")
    code = began(desk)
    desk.telegram("/confirm")
    desk.platforms.told("7", "Nothing waits")
    desk.slack_command("/link", code)
    desk.platforms.told("D7", "confirm it now")
    word = WORD.search(desk.platforms.told("7", "wants to be linked"))
    assert word is not None
    desk.telegram("/confirm 00000000")
    desk.platforms.told("7", "cannot be made")
    desk.telegram(f"/confirm {word[1]}")
    desk.platforms.told("7", "are linked now")
    desk.slack("after")
    together = desk.newest("sl")
    desk.telegram("from the other end")
    assert desk.newest("tg")["account"] == together["account"] != alone["account"]
    assert together["conversation"] != alone["conversation"], "what was before stays where it was"
    desk.slack_command("/link", code)
    desk.platforms.told("D7", "does not work")
    desk.slack_command("/unlink")
    desk.platforms.told("D7", "on its own again")
    desk.slack("apart")
    apart = desk.newest("sl")
    assert (apart["account"], apart["conversation"]) == (alone["account"], alone["conversation"])


def test_who_shows_a_code_again_is_told_the_same_and_nothing_counts(desk: Desk) -> None:
    desk.hook(None, command="link code", sender="beginner")
    code = CODE.search(desk.platforms.told("beginner", "Your code is"))
    assert code is not None
    for _ in range(6):
        desk.hook(None, command=f"link {code[0]}", sender="again")
    desk.platforms.until_texts("again", "confirm it now", 6)
    assert sum("wants to be linked" in text for text in desk.platforms.texts("beginner")) == 1
    desk.hook(None, command=f"link {code[0]}", sender="another")
    desk.platforms.told("another", "does not work")
    word = WORD.search(desk.platforms.told("beginner", "wants to be linked"))
    assert word is not None
    desk.hook(None, command=f"confirm {word[1]}", sender="beginner")
    desk.platforms.told("beginner", "are linked now")


def test_a_code_that_a_group_was_shown_is_void(desk: Desk) -> None:
    """Whoever says it there, to whomever."""
    for show in ("look, my code is {}", "/link@minute_bot {}"):
        code = began(desk)
        desk.telegram(show.format(code.lower()), user=99, chat=GROUP)
        desk.hook(None, command=f"link {code}", sender="presenter")
        desk.platforms.told("presenter", "does not work")
        desk.platforms.requests.clear()
    code = began(desk)
    desk.telegram(f"/link@minute_bot {code}", chat=GROUP, entities=[{"type": "bot_command", "offset": 0, "length": 16}])
    desk.platforms.told("7", "shown in a group is void")
    desk.telegram("/confirm")
    desk.platforms.told("7", "Nothing waits")


def test_new_begins_another_conversation(desk: Desk) -> None:
    first = desk.decided(desk.hook("one", sender="newcomer").json()["id"])["conversation"]
    asked = desk.hook(None, command="new", sender="newcomer", messageId="new-1")
    assert asked.json()["outcome"] == "accepted"
    second = desk.decided(desk.hook("two", sender="newcomer").json()["id"])["conversation"]
    assert second != first
    assert desk.hook(None, command="new", sender="newcomer", messageId="new-1").json()["duplicate"] is True
    assert desk.decided(desk.hook("three", sender="newcomer").json()["id"])["conversation"] == second
    assert (desk.asked(first), desk.asked(second)) == (["one"], ["two", "three"])


def test_a_new_that_comes_again_after_a_crash_brings_no_older_conversation_back(desk: Desk) -> None:
    sender = "torn-new"

    def said(text: str) -> str:
        return desk.decided(desk.hook(text, sender=sender).json()["id"])["conversation"]

    first = said("one")
    torn = desk.hook(None, command="new", sender=sender, messageId="torn-new-1").json()["id"]
    second = said("two")
    desk.hook(None, command="new", sender=sender)
    third = said("three")
    assert len({first, second, third}) == 3
    desk.rows("UPDATE minutebook.inbound_messages SET done_at = NULL WHERE correlation_id = %s RETURNING true", torn)
    assert desk.hook(None, command="new", sender=sender, messageId="torn-new-1").json()["outcome"] == "accepted"
    assert said("four") == third


def test_cancel_stops_what_runs_and_status_says_so(desk: Desk) -> None:
    desk.hook(None, command="cancel", sender="canceller")
    desk.platforms.told("canceller", "Nothing runs")
    talk = desk.decided(desk.hook("!hang", sender="canceller").json()["id"])["conversation"]
    desk.hook(None, command="status", sender="canceller")
    desk.platforms.told("canceller", "an answer is under way")
    desk.hook(None, command="cancel", sender="canceller")
    desk.platforms.told("canceller", "is stopped")
    assert desk.asked(talk) == ["!hang"], "it has ended"


def test_stop_mutes_and_start_greets(desk: Desk) -> None:
    desk.hook("/stop", sender="silent")
    desk.hook("/status", sender="silent")
    muted = "SELECT muted FROM minutebook.ends WHERE tenant = 'acme' AND native_id = 'silent'"
    assert desk.rows(muted) == [(True,)]
    desk.hook("/start", sender="silent")
    assert desk.rows(muted) == [(False,)]


@pytest.mark.parametrize(("verb", "other", "is_muted"), [("start", "stop", True), ("stop", "start", False)])
def test_a_word_that_comes_again_after_a_crash_takes_back_no_later_one(
    desk: Desk, verb: str, other: str, is_muted: bool
) -> None:
    """A server was killed right before it wrote down that the word was done; its platform sends it once more."""
    sender, message = f"torn-{verb}", f"torn-{verb}-1"
    desk.hook("hello", sender=sender)
    torn = desk.hook(f"/{verb}", sender=sender, messageId=message).json()["id"]
    for later, muted in ((None, verb == "stop"), (other, is_muted)):
        desk.rows(
            "UPDATE minutebook.inbound_messages SET done_at = NULL WHERE correlation_id = %s RETURNING true", torn
        )
        if later is not None:
            desk.hook(f"/{later}", sender=sender)
        again = desk.hook(f"/{verb}", sender=sender, messageId=message)
        assert (again.status_code, again.json()["id"]) == (202, torn)
        assert desk.rows("SELECT muted FROM minutebook.ends WHERE native_id = %s", sender) == [(muted,)]


def test_no_verb_is_said_in_a_conversation(desk: Desk) -> None:
    talk = desk.decided(desk.hook("a message", sender="careful").json()["id"])["conversation"]
    for text in ("/status", "/LINK", "/stop", "/start", "/confirm", "/unlink", "/cancel"):
        assert desk.hook(text, sender="careful").json()["outcome"] == "accepted"
    assert desk.asked(talk) == ["a message"]
    desk.hook("/linked is no verb", sender="careful")
    assert desk.asked(talk) == ["a message", "/linked is no verb"]


def test_markup_in_a_name_stays_text(desk: Desk) -> None:
    code = began(desk)
    desk.hook(None, command=f"link {code}", sender="<b>bold</b> & *co*")
    shown = desk.platforms.told("7", "wants to be linked")
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; *co* on hook" in shown
