"""Running replies as viewers get them: however the words were cut, every viewer has the text, once and in order."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from conversation_scenes import ALICE, BOB, RING, Log
from hypothesis import given
from hypothesis import strategies as st
from minutebook.commands.conversations.ports import At, Delta, Position
from minutebook.commands.ports import StoredEvent
from minutebook.domain.conversations.commands import AddParticipant, RemoveParticipant
from minutebook.domain.conversations.events import ParticipantRemoved, ReplyRecorded, UserRecorded
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.participants import add_participant, remove_participant
from minutebook.domain.conversations.state import Conversation, Running
from minutebook.http.conversation_entries import reader_of
from minutebook.http.dialogue import Dialogue, Live, Viewing
from shared_talks import shared_log

STREAM = 7
ANN = Identity("human:ann", "acme")


def dialogue(turns: int = 1, *, is_running: bool = True) -> Dialogue:
    """Of a conversation whose newest turn runs, or has ended."""
    running = Running(turns, 1, 3, 2, "id", cast("Any", None), "kid") if is_running else None
    return Dialogue(STREAM, cast("Any", None), Conversation(id="c", turns=turns, running=running), 5)


def delta(offset: int, text: str, attempt: int = 1, turn: int = 1) -> Delta:
    """A delta of the conversation."""
    return Delta(STREAM, turn, attempt, offset, text, 1)


@given(text=st.text(min_size=1), cuts=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20))
def test_pieces_that_overlap_come_to_the_text(text: str, cuts: list[tuple[int, int]]) -> None:
    """In any order: what leaves a gap is not taken, and what is there already changes nothing."""
    live = Live(1, 1)
    for start, end in cuts:
        piece = text[start:end]
        before = live.length
        took = live.add(start, piece)
        assert took == (start <= before)
        assert live.length == (max(before, start + len(piece)) if took else before)
        assert live.since(0) == text[: live.length]
    live.add(live.length, text[live.length :])
    assert [live.since(offset) for offset in range(len(text) + 1)] == [text[at:] for at in range(len(text) + 1)]


def test_a_frame_says_what_is_behind_its_offset() -> None:
    live = Live(3, 2)
    live.add(0, "one\n")
    live.add(4, "\U0001f600two")
    for _ in range(2):
        assert said(live.frame("delta", 4)) == (
            "delta",
            {"turn": 3, "attempt": 2, "offset": 4, "text": "\U0001f600two"},
        )
        assert said(live.frame("delta", 5)) == ("delta", {"turn": 3, "attempt": 2, "offset": 5, "text": "two"})
        whole = {"turn": 3, "attempt": 2, "offset": 8, "text": "one\n\U0001f600two"}
        assert said(live.frame("partial", 0)) == ("partial", whole)


def said(frame: bytes) -> tuple[str, Any]:
    """The event and the document of a frame of two lines."""
    event, data = frame.decode().removesuffix("\n\n").split("\n")
    return event.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_a_new_attempt_takes_the_place_of_the_old_one_and_the_old_one_is_heard_no_more() -> None:
    talk = dialogue()
    assert talk.hear(delta(0, "one "))
    assert talk.hear(delta(0, "", attempt=2))
    assert talk.hear(delta(4, "two ", attempt=1)), "a displaced runner's words reach nobody"
    assert talk.hear(delta(0, "uno ", attempt=2))
    live = talk.shown(Viewing(ANN, 0))
    assert live is not None
    assert (live.attempt, live.since(0)) == (2, "uno ")


def test_what_has_no_beginning_is_asked_for() -> None:
    talk = dialogue()
    assert talk.position() == Position(1)
    assert not talk.hear(delta(4, "two "))
    assert talk.shown(Viewing(ANN, 0)) is None
    assert talk.hear(delta(0, "one "))
    assert not talk.hear(delta(9, "three"))
    assert talk.position() == Position(1, 1, 4)


@pytest.mark.parametrize(("turn", "is_shown"), [(1, False), (2, True), (3, False)])
def test_only_the_reply_that_the_log_waits_for_is_shown(turn: int, is_shown: bool) -> None:
    """Not one that has its record, and none before its question."""
    talk = dialogue(2)
    talk.hear(delta(0, "words", turn=turn))
    assert (talk.shown(Viewing(ANN, 0)) is not None) == is_shown
    assert dialogue(2, is_running=False).shown(Viewing(ANN, 0)) is None


def read_rows(talk: Dialogue, log: Log, through: int) -> None:
    """What the hub reads of the log, up to that seq: records and removals."""
    rows = [row for row in log.rows if talk.seq < row.seq <= through and row.type in READ]
    stored = [
        StoredEvent(row.seq, row.type, row.version, row.actor.kind, row.actor.id, None, None, row.payload)
        for row in rows
    ]
    talk.add([At(each, row.at) for each, row in zip(stored, rows, strict=True)])


READ = {UserRecorded.type, ReplyRecorded.type, ParticipantRemoved.type}


def test_law_17_who_is_taken_out_gets_what_came_before_and_no_more_whoever_looks_when() -> None:
    """The removal is between the records of turns 1 and 2; bob comes back before turn 3."""
    log = shared_log(BOB)
    log.turn("one")
    seen_at = len(log.rows)
    log.append(remove_participant(log.state, RemoveParticipant("human:bob"), log.received()))
    log.turn("two")
    log.append(add_participant(log.state, AddParticipant("human:bob"), log.received()))
    back_at = len(log.rows)
    log.turn("three")
    before = shared_log(BOB).state
    talk = Dialogue(STREAM, reader_of(RING, log.id), before, 3)
    early, owner, back = Viewing(BOB, 3), Viewing(ALICE, 3), Viewing(BOB, back_at)
    for viewing in (early, owner, back):
        talk.join(asyncio.Event(), viewing)
    read_rows(talk, log, seen_at)
    assert [each.ord for each in early.theirs(talk.after(0) or [])] == [1, 2]
    assert not early.is_over(2)
    read_rows(talk, log, len(log.rows))
    messages = talk.after(0) or []
    assert [each.ord for each in messages] == [1, 2, 3, 4, 5, 6]
    assert [each.ord for each in early.theirs(messages)] == [1, 2]
    assert (early.is_over(1), early.is_over(2)) == (False, True)
    for viewing in (owner, back):
        assert viewing.theirs(messages) == messages
        assert not viewing.is_over(6)
    late, again = Viewing(BOB, seen_at), Viewing(BOB, back_at)
    for viewing in (late, again):
        talk.join(asyncio.Event(), viewing)
    assert late.is_over(0), "they were let in before the removal, and come after it was read"
    assert not again.is_over(6)


@pytest.mark.parametrize("leaving", [{"is_leaving": True}, {"until": 0}])
def test_law_17_who_was_taken_out_hears_no_more_of_a_reply(leaving: dict[str, Any]) -> None:
    talk = dialogue()
    talk.hear(delta(0, "words"))
    assert talk.shown(Viewing(ANN, 0)) is not None
    assert talk.shown(Viewing(ANN, 0, **leaving)) is None
