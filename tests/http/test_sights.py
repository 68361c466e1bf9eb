"""What a record becomes for its viewers: three forms, each made once, and the policy is asked for little."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from conversation_desk import desk
from in_loop import in_loop
from minutebook.commands.conversations.clearances import Clearances
from minutebook.commands.conversations.handlers import Looked
from minutebook.commands.conversations.ports import Delta, Viewer
from minutebook.domain.conversations.events import Mode, ReplyRecorded, UserRecorded
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.state import Conversation, Running
from minutebook.domain.conversations.visibility import sight
from minutebook.http.conversation_entries import Record, shown
from minutebook.http.conversation_sights import sights_of
from minutebook.http.dialogue import Dialogue, Message, Viewing
from msgspec import UNSET
from msgspec.structs import replace
from shared_past import Policy as SharedPolicy
from shared_past import SharedTalk

ANN, BOB = Identity("human:ann", "acme"), Identity("human:bob", "acme")
AT = datetime(2030, 1, 2, tzinfo=UTC)
CANARY = "canary-in-the-words"


def asked(ord_: int = 1, asker: Identity | None = ANN, *classes: str, **fields: Any) -> Record:
    """A question with everything that a question can have."""
    said: dict[str, Any] = {
        "ord": ord_,
        "turn": 1,
        "generation": 1,
        "status": "accepted",
        "envelope_seq": 1,
        "asker": asker,
        "text": CANARY,
        "id": "i" * 32,
        "message_id": "m",
        "edit_of": 1,
        "edit_of_turn": 1,
        "classes": classes,
        "kid": "",
        "mac": "",
        **fields,
    }
    return Record(UserRecorded(**said), AT)


def answered(ord_: int = 2, asker: Identity = ANN, *classes: str, **fields: Any) -> Record:
    """A reply likewise."""
    said: dict[str, Any] = {
        "ord": ord_,
        "turn": 1,
        "generation": 1,
        "status": "interrupted",
        "asker": asker,
        "text": CANARY,
        "classes": classes,
        "reason": "cancelled",
        "error_id": "e",
        "truncated": True,
        "seen": 3,
        "usage": {"input": 1},
        "attempts": 1,
        "kid": "",
        "mac": "",
        **fields,
    }
    return Record(ReplyRecorded(**said), AT)


class Policy:
    """A Clearance that answers what it is told, and keeps what it was asked."""

    version = "0" * 16

    def __init__(self, *answers: Any) -> None:
        self.answers: Any = answers[0] if answers else True
        self.asked: list[set[frozenset[str]]] = []

    def labels(self, viewer: Viewer) -> None:
        """None: a callable decides."""

    async def resolve(self, viewer: Viewer, class_sets: Iterable[Collection[str]]) -> Mapping[frozenset[str], Any]:
        """The one answer for each."""
        self.asked.append({frozenset(each) for each in class_sets})
        return dict.fromkeys(self.asked[-1], self.answers)


def keys(message: Message, sight: Any) -> set[str]:
    return set(json.loads(message.frame(sight).split(b"data: ")[1]))


@pytest.mark.parametrize("record", [asked(), answered(), asked(3, None, status="rejected", turn=0)])
def test_what_is_restricted_has_six_keys_and_nothing_of_the_record(record: Record) -> None:
    message = Message(record)
    assert keys(message, "restricted") == {"cursor", "ord", "turn", "role", "status", "asker"}
    raw = message.frame("restricted").decode()
    assert CANARY not in raw
    assert "2030" not in raw, "no time"
    assert shown(record, "restricted").status == "restricted"


def test_what_is_the_askers_alone_is_left_out_for_everybody_else() -> None:
    question, reply = Message(asked()), Message(answered())
    assert keys(question, "own") - keys(question, "cleared") == {"id", "messageId"}
    assert keys(reply, "own") - keys(reply, "cleared") == {"errorId", "truncated", "seen"}
    assert "usage" not in keys(reply, "own")
    assert {"classes", "ts", "text"} <= keys(question, "cleared") & keys(reply, "cleared")


@pytest.mark.parametrize("answer", [1, "yes", None, [True], 1.0, object()])
@in_loop
async def test_only_exactly_true_clears(answer: Any) -> None:
    nowhere: Any = None
    records = [asked(1, ANN), asked(2, ANN, "secret"), asked(3, BOB, "secret"), asked(4, None), answered(5, ANN, "x")]
    for policy, expected in ((Policy(answer), "restricted"), (Policy(True), "cleared")):
        clearances = Clearances(nowhere, nowhere, nowhere, policy)
        granted = await clearances.unrecorded(Viewer(BOB), ("secret", "x"))
        cleared = granted.cleared([record.event.classes for record in records])
        seen = [sight("shared", record.event, BOB, cleared) for record in records]
        assert seen == ["cleared", expected, "own", "restricted", expected]


def test_the_policy_is_asked_once_for_a_page_and_only_what_decides(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            talk = await SharedTalk(here, SharedPolicy(is_asked=True), 1).start()
            await talk.add(BOB)
            talk.policy.granted[BOB.actor] = frozenset({"a"})

            async def look() -> Looked:
                return replace(await talk.looked(), who=BOB)

            sights = await sights_of(talk.clearances, await look(), {}, look)
            assert await sights.of([asked(1, ANN), asked(2, BOB, "mine")]) == ["cleared", "own"]
            assert talk.policy.asked == [], "nothing to ask"
            page = [asked(each, ANN, *("a", "b")[: each % 3]) for each in range(1, 90)]
            for _ in range(2):
                seen = await sights.of(page)
                assert seen[:3] == ["cleared", "restricted", "cleared"]
            assert talk.policy.asked == [frozenset("a"), frozenset("b")] * 2, "once for each page"

    asyncio.run(go())


def test_each_form_is_made_once_for_all_who_get_it() -> None:
    message = Message(asked(1, ANN, "secret"))
    for seen in ("own", "cleared", "restricted"):
        assert message.frame(seen) is message.frame(seen)


def dialogue(mode: Mode, asker: Identity | None = ANN) -> Dialogue:
    """Of a conversation whose first turn runs, or none."""
    running = None if asker is None else Running(1, 1, 3, 2, "id", asker, "kid")
    turns = 0 if asker is None else 1
    reader: Any = None
    return Dialogue(7, reader, Conversation(id="c", mode=mode, turns=turns, running=running, next_ord=2), 5)


def test_a_running_reply_is_shown_to_who_asked_it() -> None:
    talk = dialogue("shared")
    ann, bob = asyncio.Event(), asyncio.Event()
    talk.join(ann, Viewing(ANN, 5))
    talk.join(bob, Viewing(BOB, 5))
    assert talk.hear(Delta(7, 1, 1, 0, CANARY, 1))
    assert (ann.is_set(), bob.is_set()) == (True, False), "others are not even woken"
    assert talk.shown(Viewing(ANN, 0)) is not None
    assert talk.shown(Viewing(BOB, 0)) is None
    assert talk.shown(Viewing(Identity("human:ann"), 0)) is None, "an absent tenant is none"
    assert talk.shown(Viewing(Identity("human:ann", "acme", "human:bob"), 0)) is None


def test_nothing_is_shown_before_the_log_says_who_asked() -> None:
    talk = dialogue("shared", None)
    assert talk.hear(Delta(7, 1, 1, 0, CANARY, 1))
    assert talk.shown(Viewing(ANN, 0)) is None
    talk.reader = Records()
    talk.add([At_(2, asked(2, BOB))])
    assert talk.shown(Viewing(BOB, 0)) is not None
    assert talk.shown(Viewing(ANN, 0)) is None
    assert talk.hear(Delta(7, 2, 1, 0, CANARY, 1)), "of a turn whose question nobody has read"
    assert talk.shown(Viewing(BOB, 0)) is None
    talk.add([At_(3, answered(3, BOB)), At_(4, asked(4, ANN, turn=2))])
    assert talk.shown(Viewing(BOB, 0)) is None
    assert talk.shown(Viewing(ANN, 0)) is not None


class At_:  # noqa: N801 - stands for ports.At
    """A record with its place."""

    def __init__(self, seq: int, record: Record) -> None:
        self.event = self
        self.seq = seq
        self.record = record
        self.type = record.event.type


class Records:
    """A reader of these."""

    def decode(self, at: At_) -> Any:
        """Its event."""
        return at.record.event

    def record(self, at: At_) -> Record:
        """It."""
        return at.record


def test_a_rejected_question_names_no_asker_of_a_turn() -> None:
    talk = dialogue("shared")
    talk.reader = Records()
    talk.add([At_(6, asked(2, BOB, status="rejected", turn=0, text=UNSET))])
    talk.hear(Delta(7, 1, 1, 0, CANARY, 1))
    assert talk.shown(Viewing(BOB, 0)) is None
    assert talk.shown(Viewing(ANN, 0)) is not None
