"""What the runner decides, from the log alone."""

from __future__ import annotations

from conversation_scenes import ALICE, Log
from minutebook.domain.conversations.events import (
    ContextDecided,
    ConversationClosed,
    ReplyRecorded,
    UserRecorded,
)
from minutebook.domain.conversations.turns import next_step


def test_a_turn_is_one_question_one_verdict_and_one_reply() -> None:
    log = Log().start()
    envelope = log.send("hello")
    assert next_step(log.state).name == "take"
    assert log.step() == "accepted"
    assert next_step(log.state).name == "run"
    log.end("hi")
    assert next_step(log.state).name == "idle"
    (user,) = log.events(UserRecorded)
    (reply,) = log.events(ReplyRecorded)
    assert (user.ord, user.turn, user.id, user.text, user.asker) == (1, 1, envelope.id, "hello", ALICE)
    assert (reply.ord, reply.turn, reply.status, reply.text) == (2, 1, "completed", "hi")
    assert len(log.events(ContextDecided)) == 1
    assert log.state == log.folded()


def test_a_conversation_closes_after_what_waits_is_rejected() -> None:
    log = Log().start()
    log.send("one")
    assert log.step() == "accepted"
    log.send("two")
    log.forge()
    log.close()
    assert log.state.running is not None
    assert log.state.running.interrupts == (7,)
    log.end("", "interrupted")
    assert [log.step(), log.step(), log.step()] == ["closed", "unauthenticated", "close"]
    assert log.is_sealed
    assert isinstance(log.events(ConversationClosed)[0], ConversationClosed)
    assert next_step(log.state).name == "idle"
