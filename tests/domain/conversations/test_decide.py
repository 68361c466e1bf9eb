"""What people ask of a conversation: envelopes, or one refusal."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from conversation_scenes import ALICE, BOB, CONVERSATION, NOON, Log
from gwt import Then
from minutebook.domain.conversations.commands import (
    MAX_TEXT_CHARS,
    CloseConversation,
    InterruptTurn,
    SendTurn,
    StartConversation,
)
from minutebook.domain.conversations.decide import (
    MAX_LIVE_CLASSES,
    MAX_STOPS,
    close_conversation,
    envelope_id,
    interrupt_turn,
    milliseconds,
    send_turn,
    start,
)
from minutebook.domain.conversations.events import ConversationStarted, EnvelopeReceived
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.state import MAX_WAITING_TURNS
from minutebook.domain.errors import Invalid, KeyReused, NotVisible, QueueFull, Sealed
from minutebook.domain.principals import Principal
from msgspec import UNSET
from msgspec.structs import replace


def sending(log: Log, text: str = "hello", who: Identity = ALICE, **said: Any) -> Then:
    """A message of somebody's."""
    return Then(lambda: send_turn(log.state, SendTurn(text, **said), log.received(who)))


def interrupting(log: Log, who: Identity = ALICE, **said: Any) -> Then:
    """A request to stop."""
    return Then(lambda: interrupt_turn(log.state, InterruptTurn(**said), log.received(who)))


def closing(log: Log, who: Identity = ALICE) -> Then:
    """A request to close."""
    return Then(lambda: close_conversation(log.state, CloseConversation(), log.received(who)))


def starting(command: StartConversation, who: Identity = ALICE) -> Then:
    """A request to start."""
    return Then(lambda: start(CONVERSATION, command, Log().received(who), ["echo", "ops"]))


def test_a_start_is_the_askers() -> None:
    delegated = Identity("agent:abcdefgh", "acme", "human:alice")
    command = StartConversation("ops", "my-handle", barge_in="interrupt")
    decision = starting(command, delegated).then(
        ConversationStarted(CONVERSATION, delegated, "ops", "owner", "interrupt", "", "", "my-handle")
    )
    assert decision.events[0].actor == Principal("agent", "abcdefgh")
    assert decision.answer == {"id": CONVERSATION}


def test_a_start_without_a_handle_names_none() -> None:
    decision = starting(StartConversation("echo")).decided()
    assert "handle" not in decision.events[0].event.payload()


def test_only_agents_of_the_settings_start() -> None:
    starting(StartConversation("gone")).then_refused(Invalid, "$.agent")


def test_shared_mode_an_agent_with_one_memory_of_all_starts_none() -> None:
    command = StartConversation("echo", mode="shared")
    log = Log()
    with pytest.raises(Invalid):
        start(CONVERSATION, command, log.received(), ["echo"], ["echo"])
    assert start(CONVERSATION, command, log.received(), ["echo"], ["ops"]).events
    assert start(CONVERSATION, StartConversation("echo"), log.received(), ["echo"], ["echo"]).events


def test_a_message_is_one_envelope() -> None:
    log = Log().start()
    envelope = log.send("hello", message_id="m-1", edit_of=3, classes=("b", "a", "b"))
    assert envelope == EnvelopeReceived(
        id=envelope_id(ALICE, "m-1"),
        kind="user",
        iat=milliseconds(NOON),
        asker=ALICE,
        kid="k1",
        mac=envelope.mac,
        message_id="m-1",
        text="hello",
        edit_of=3,
        classes=("a", "b"),
    )
    assert envelope.claims is UNSET


def test_a_message_without_an_id_gets_one_and_its_claims() -> None:
    log = Log().start()
    received = log.received(claims={"groups": ("ops",)})
    decision = send_turn(log.state, SendTurn("hello"), received)
    envelope: Any = decision.events[0].event
    assert envelope.message_id == received.fresh_id
    assert envelope.claims == {"groups": ["ops"]}
    assert decision.answer == {"id": envelope.id}
    assert decision.events[0].origin == "client"


@pytest.mark.parametrize(
    "text",
    ["", " \n\t\u2003", "\0\0", "\u0301\u0302", " \u0301", "\u200b\u200d", "\u202e", "\ufeff", "a\ud800"],
)
def test_a_text_with_nothing_to_read_is_refused(text: str) -> None:
    sending(Log().start(), text).then_refused(Invalid, "$.text")


@pytest.mark.parametrize("text", ["x", "e\u0301", "\u4f60\u597d", "\U0001f44b", "?", "\u0e01\u0e33", "a\nb", "\ue000"])
def test_a_text_is_kept_as_it_was_sent(text: str) -> None:
    assert Log().start().send(text).text == text


def test_nul_leaves_a_text_and_nothing_else_does() -> None:
    assert Log().start().send(" a\0b\r\n\x07 ").text == " ab\r\n\x07 "


def test_a_text_has_32000_code_points_at_most() -> None:
    log = Log().start()
    assert log.send("\U0001f44b" * MAX_TEXT_CHARS).text == "\U0001f44b" * MAX_TEXT_CHARS
    sending(log, "x" * (MAX_TEXT_CHARS + 1)).then_refused(Invalid, "$.text")
    assert MAX_TEXT_CHARS == 32_000


@pytest.mark.parametrize("who", [BOB, Identity("human:alice"), Identity("human:alice", "acme", "human:boss")])
def test_a_stranger_learns_nothing(who: Identity) -> None:
    log = Log().start()
    closed = Log().start()
    closed.close()
    closed.step()
    for each in (log, closed, Log()):
        sending(each, who=who).then_refused(NotVisible)
        sending(each, "", who=who).then_refused(NotVisible)
        interrupting(each, who).then_refused(NotVisible)
        closing(each, who).then_refused(NotVisible)


def test_64_turns_wait_and_no_more() -> None:
    log = Log().start()
    for _ in range(MAX_WAITING_TURNS):
        log.send("hello")
    error = sending(log).then_refused(QueueFull)
    assert error.attributes["retryAfterMs"] > 0
    log.step()
    log.send("there is room again")
    sending(log).then_refused(QueueFull)
    assert MAX_WAITING_TURNS == 64


def test_what_nobody_sent_fills_no_queue() -> None:
    log = Log().start()
    for number in range(MAX_WAITING_TURNS):
        log.forge(id=f"{number}")
    log.send("hello")


def test_a_message_id_is_used_once() -> None:
    log = Log().start()
    log.send("one", message_id="m-1")
    sending(log, "two", message_id="m-1").then_refused(KeyReused)
    log.step()
    sending(log, "two", message_id="m-1").then_refused(KeyReused)
    log.end()
    sending(log, "two", message_id="m-1").then_refused(KeyReused)
    log.send("two", message_id="m-2")


def test_after_a_close_is_asked_for_everything_is_refused() -> None:
    log = Log().start()
    log.close()
    for _ in range(2):
        sending(log).then_refused(Sealed)
        interrupting(log).then_refused(Sealed)
        closing(log).then_refused(Sealed)
        log.step()


def test_a_request_to_interrupt_names_the_turn_that_it_stops() -> None:
    log = Log().start()
    interrupting(log).then_nothing()
    log.send("one")
    log.step()
    interrupting(log, turn=2).then_nothing()
    (envelope,) = log.interrupt(seen=7)
    assert (envelope.kind, envelope.turn, envelope.seen, envelope.text) == ("interrupt", 1, 7, UNSET)
    log.end("", "interrupted")
    interrupting(log).then_nothing()


def test_a_turn_that_is_about_to_begin_is_stopped_once() -> None:
    log = Log().start()
    log.send("one")
    interrupting(log, turn=2).then_nothing()
    (envelope,) = log.interrupt()
    assert envelope.turn == 1
    interrupting(log).then_nothing()


def test_a_turn_is_stopped_so_many_times_and_no_more() -> None:
    log = Log().start()
    log.send("one")
    log.step()
    for _ in range(MAX_STOPS):
        assert log.interrupt()
    interrupting(log).then_nothing()


def test_a_clock_that_was_set_back_issues_nothing_dead() -> None:
    log = Log().start()
    log.state = replace(log.state, floor=milliseconds(NOON))
    envelope = log.later(hours=-1).send("hello")
    assert envelope.iat == milliseconds(NOON) + 1
    assert not log.state.queue[0].is_suspect


def test_milliseconds_are_exact_in_every_zone() -> None:
    at = datetime(2026, 3, 4, 12, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert milliseconds(at) == 1772605800999
    assert milliseconds(at.astimezone(timezone(timedelta(hours=-9)))) == milliseconds(at)


def test_senders_add_only_so_many_classes() -> None:
    log = Log().start()
    for number in range(MAX_LIVE_CLASSES // 16):
        log.turn("hello", classes=tuple(f"c{number}-{each}" for each in range(16)))
    sending(log, classes=("one-more",)).then_refused(Invalid, "$.classes")
    log.send("hello", classes=("c0-1",))
    log.send("hello")
