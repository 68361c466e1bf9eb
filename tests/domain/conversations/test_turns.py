"""What the runner decides, from the log alone."""

from __future__ import annotations

from typing import Any

import pytest
from conversation_scenes import ALICE, NOON, Log, everything
from minutebook.domain.conversations.commands import MAX_REPLY_CHARS
from minutebook.domain.conversations.decide import milliseconds
from minutebook.domain.conversations.events import (
    ContextDecided,
    ConversationClosed,
    ConversationRotated,
    EnvelopesDropped,
    ReplyRecorded,
    SummaryRecorded,
    UserRecorded,
)
from minutebook.domain.conversations.judge import Bad, Good
from minutebook.domain.conversations.state import (
    MAX_EVICTED_TURNS,
    MAX_RECORDED_INVALID,
    MAX_WINDOW_TURNS,
    ROTATE_EVENTS,
    ROTATE_TURNS,
    Conversation,
)
from minutebook.domain.conversations.turns import (
    NewSummary,
    Outcome,
    accept,
    acknowledged_by,
    close_up,
    drop,
    end_turn,
    heard,
    keep_summary,
    next_step,
    record_summary,
    reject,
    reject_good,
    rotate,
)
from minutebook.domain.decisions import Decision
from minutebook.domain.principals import TURN_RUNNER
from msgspec import UNSET
from msgspec.structs import replace


def test_a_turn_is_one_question_one_verdict_and_one_reply() -> None:
    log = Log().start()
    envelope = log.send("hello", message_id="m-1")
    assert next_step(log.state).name == "take"
    assert log.step() == "accepted"
    assert next_step(log.state).name == "run"
    log.end("hi", usage={"input": 3, "output": 1}, attempts=2)
    assert next_step(log.state).name == "idle"
    assert [row.type for row in log.rows[2:]] == ["user_recorded", "context_decided", "reply_recorded"]
    (user,) = log.events(UserRecorded)
    (reply,) = log.events(ReplyRecorded)
    assert (user.ord, user.turn, user.generation, user.status) == (1, 1, 1, "accepted")
    assert (user.id, user.message_id, user.text, user.asker) == (envelope.id, "m-1", "hello", ALICE)
    assert (reply.ord, reply.turn, reply.status, reply.text, reply.asker) == (2, 1, "completed", "hi", ALICE)
    assert (reply.usage, reply.attempts) == ({"input": 3, "output": 1}, 2)
    assert log.state == log.folded()


def test_records_are_the_runners_and_are_found_by_their_ord() -> None:
    log = Log().start()
    log.send()
    judged = log.judged(log.state.queue[0])
    assert isinstance(judged, Good)
    record, verdict = accept(log.state, judged, everything(log.state)).events
    assert (record.actor, record.origin, record.caused_by) == (TURN_RUNNER, "broker", 2)
    assert (record.origin_client, record.origin_key) == ("ord", "1")
    assert (verdict.origin_client, verdict.origin_key) == (None, None)


def test_turns_are_taken_in_the_order_of_their_arrival() -> None:
    log = Log().start()
    for text in ("one", "two", "three"):
        log.send(text)
    for text in ("one", "two", "three"):
        assert log.step() == "accepted"
        assert log.events(UserRecorded)[-1].text == text
        log.end()


def test_what_the_state_has_overtaken_comes_to_nothing() -> None:
    log = Log().start()
    log.send("one")
    log.send("two")
    first, second = (log.judged(waiting) for waiting in log.state.queue)
    assert isinstance(first, Good)
    assert isinstance(second, Good)
    log.append(accept(log.state, first, None))
    nothing = Decision()
    assert accept(log.state, first, None) == nothing
    assert accept(log.state, second, None) == nothing, "a turn runs"
    assert reject_good(log.state, second, "prompt-too-large") == nothing
    assert end_turn(log.state, 2, Outcome("completed")) == nothing
    log.end()
    assert end_turn(log.state, 1, Outcome("completed")) == nothing
    assert accept(log.state, first, None) == nothing
    assert reject(log.state, Bad(first.seq, "stale", "", first.envelope)) == nothing
    assert drop(log.state, 9) == rotate(log.state) == close_up(log.state, first, 9) == nothing


def test_an_agent_that_is_gone_fails_the_turn_without_a_verdict() -> None:
    log = Log().start()
    log.send()
    judged = log.judged(log.state.queue[0])
    assert isinstance(judged, Good)
    log.append(accept(log.state, judged, None))
    reply = log.end("", "failed", reason="turn-failed", error_id="e-1")
    assert (reply.status, reply.reason, reply.error_id) == ("failed", "turn-failed", "e-1")
    assert log.events(ContextDecided) == []


def test_a_prompt_that_is_too_large_is_rejected_with_its_words() -> None:
    log = Log().start()
    log.send("long")
    judged = log.judged(log.state.queue[0])
    assert isinstance(judged, Good)
    log.append(reject_good(log.state, judged, "prompt-too-large"))
    (record,) = log.events(UserRecorded)
    assert (record.status, record.reason, record.turn, record.text) == ("rejected", "prompt-too-large", 0, "long")
    assert log.state.invalid == 0
    assert log.turn("short").turn == 1


def test_only_a_failed_reply_has_a_reason() -> None:
    log = Log().start()
    log.send()
    log.step()
    reply = log.end("", "completed", reason="model-error", error_id="e-1")
    assert (reply.reason, reply.error_id, reply.seen) == (UNSET, UNSET, UNSET)


@pytest.mark.parametrize(
    ("acknowledged", "sent", "seen"),
    [(None, 0, 0), (None, 3, 3), (2, 9, 2), (0, 9, 0), (250, 9, 10), (-1, 9, 0), (5, 0, 4), (6, 0, 4), (7, 0, 7)],
)
def test_an_interrupted_reply_says_what_was_received(acknowledged: int | None, sent: int, seen: int) -> None:
    log = Log().start()
    log.send()
    log.step()
    text = "and \U0001f469\u200d\U0001f680 go"[:10]
    assert heard(text, acknowledged, sent) == min(seen, len(text))
    reply = log.end(text, "interrupted", acknowledged=acknowledged, sent=sent)
    assert (reply.text, reply.seen) == (text, min(seen, len(text)))
    assert log.state.window[0].seen == reply.seen


def test_the_furthest_acknowledgement_of_that_turn_counts() -> None:
    log = Log().start()
    log.send()
    log.step()
    stops = [log.interrupt(seen=seen)[0] for seen in (4, 2)]
    assert acknowledged_by(stops, 1, 3) == 4
    assert acknowledged_by(stops, 1, 7) == 7
    assert acknowledged_by(stops, 1, None) == 4
    assert acknowledged_by(stops, 2, None) is None
    assert acknowledged_by([], 1, None) is None


def test_a_reply_is_cut_at_64_k_and_says_so() -> None:
    log = Log().start()
    reply = log.turn(reply="x" * MAX_REPLY_CHARS)
    assert not reply.truncated
    reply = log.turn(reply="x" * (MAX_REPLY_CHARS + 1))
    assert (len(reply.text), reply.truncated) == (MAX_REPLY_CHARS, True)


def test_what_the_log_cannot_keep_of_a_reply_is_repaired() -> None:
    reply = Log().start().turn(reply="a\ud800b\0c\ud83d\udc4b")
    assert reply.text == "a\ufffdbc\U0001f44b"
    assert not reply.truncated


def test_classes_of_the_context_flow_into_question_and_reply() -> None:
    log = Log().start()
    log.send("one", classes=("a",))
    log.step()
    assert log.end(classes=("tool",)).classes == ("a", "tool")
    log.turn("two", classes=("b",))
    assert log.events(UserRecorded)[-1].classes == ("a", "b", "tool")
    log.send("three", classes=("c",))
    log.step(lambda state: everything(state, evicted=(1, 3)))
    assert log.events(UserRecorded)[-1].classes == ("c",), "what is not shown gives nothing"
    log.end()
    assert record(log, "They greeted.").classes == ("a", "b", "tool")
    log.turn("four")
    assert log.events(UserRecorded)[-1].classes == ("a", "b", "c", "tool"), "the summary gives its own"


def test_an_edit_takes_the_classes_of_what_it_edits() -> None:
    log = Log().start()
    log.turn("one", classes=("a",))
    log.send("better", edit_of=1)
    log.step(lambda state: everything(state, evicted=(1,)))
    assert log.events(UserRecorded)[-1].classes == ("a",)


def test_a_verdict_evicts_for_good_and_its_counts_stay() -> None:
    log = Log().start()
    log.turn("one")
    log.turn("two")
    log.send("three")
    log.step(lambda state: everything(state, evicted=(1,)))
    (_, _, verdict) = log.events(ContextDecided)
    assert (verdict.kept, verdict.kept_tokens, verdict.evicted, verdict.counted) == ((3,), (10,), (1,), {"3": 10})
    assert log.state.running is not None
    assert log.state.running.context_seq == len(log.rows)
    assert [turn.user_ord for turn in log.state.window] == [3]
    assert [(turn.user_ord, turn.tokens) for turn in log.state.evicted] == [(1, 10)]
    assert log.state.window[0].tokens == 10
    log.end()
    log.send("four")
    log.step(lambda state: replace(everything(state), fitted=replace(everything(state).fitted, counted={"3": 99})))
    assert log.state.window[0].tokens == 10, "what was counted once is never counted again"


def test_the_window_has_64_turns_and_the_oldest_leaves() -> None:
    log = Log().start()
    for number in range(MAX_WINDOW_TURNS + 3):
        log.turn(f"{number}")
    assert len(log.state.window) == MAX_WINDOW_TURNS == 64
    assert [turn.turn for turn in log.state.evicted] == [1, 2, 3]
    assert log.state.window[0].turn == 4


def test_only_so_many_turns_wait_for_a_summary() -> None:
    log = Log().start()
    for number in range(MAX_EVICTED_TURNS + 3):
        log.send(f"{number}")
        while log.step(lambda state: everything(state, tuple(t.user_ord for t in state.window))) == "rotate":
            pass
        log.end()
    assert len(log.state.evicted) == MAX_EVICTED_TURNS
    assert log.state.evicted[0].turn == 3


def evicted_log(turns: int = 3) -> Log:
    """A conversation whose first turns have left the window."""
    log = Log().start()
    for number in range(turns):
        log.turn(f"{number}")
    log.send("last")
    log.step(lambda state: everything(state, tuple(turn.user_ord for turn in state.window)))
    log.end()
    return log


def record(log: Log, text: str, through: int = 99) -> Any:
    """A summary of what was evicted; answers its event."""
    return log.append(record_summary(log.state, NewSummary(text, 4, through)))[0]


def test_a_summary_replaces_what_it_covers_and_no_more() -> None:
    log = evicted_log()
    event = record(log, "They greeted.", through=2)
    assert (event.number, event.through_turn, event.outcome, event.text) == (1, 2, "replaced", "They greeted.")
    assert [turn.turn for turn in log.state.evicted] == [3]
    assert log.state.summary is not None
    assert (log.state.summary.number, log.state.summary.seq, log.state.summary.tokens) == (1, len(log.rows), 4)
    assert record(log, "And more.").number == 2
    assert log.state.evicted == ()
    assert record_summary(log.state, NewSummary("over nothing", 4, 99)) == Decision()


@pytest.mark.parametrize("text", ["", " \n "])
def test_an_empty_summary_changes_nothing(text: str) -> None:
    log = evicted_log()
    before = log.state
    event = record(log, text)
    assert (event.outcome, event.reason, event.text) == ("kept", "empty", UNSET)
    assert (log.state.summary, log.state.evicted) == (None, before.evicted)


def test_a_summary_that_failed_keeps_the_one_before() -> None:
    log = evicted_log()
    record(log, "They greeted.", through=1)
    before = log.state
    (event,) = log.append(keep_summary(log.state, "model-error"))
    assert (event.number, event.through_turn, event.outcome) == (1, 1, "kept")
    assert (log.state.summary, log.state.evicted) == (before.summary, before.evicted)
    assert len(log.events(SummaryRecorded)) == 2


def test_a_conversation_closes_after_what_waits_is_rejected() -> None:
    log = Log().start()
    log.send("one")
    assert log.step() == "accepted"
    log.send("two")
    log.forge()
    log.close()
    assert log.state.running is not None
    assert log.state.running.interrupts == (7,)
    assert next_step(log.state).name == "run"
    log.end("", "interrupted")
    assert [log.step(), log.step(), log.step()] == ["closed", "unauthenticated", "close"]
    assert log.is_sealed
    assert log.events(ConversationClosed)[0].envelope_seq == 7
    assert next_step(log.state).name == "idle"
    assert [record.reason for record in log.events(UserRecorded)] == [UNSET, "closed", "unauthenticated"]
    assert log.events(UserRecorded)[1].text == "two"


def test_a_close_comes_before_a_rotation_and_counts_what_was_dropped() -> None:
    log = Log().start()
    for _ in range(MAX_RECORDED_INVALID + 1):
        log.forge()
    log.close()
    log.state = replace(log.state, generation_turns=ROTATE_TURNS)
    while (name := log.step()) != "close":
        assert name == "unauthenticated"
    assert [row.type for row in log.rows[-2:]] == ["envelopes_dropped", "conversation_closed"]
    assert log.events(EnvelopesDropped)[0].count == 1


def test_a_close_that_is_not_good_is_rejected_and_the_conversation_goes_on() -> None:
    log = Log().start()
    log.close()
    log.rows[1] = replace(log.rows[1], at=NOON.replace(hour=13))
    step = next_step(log.state)
    assert (step.name, step.other) == ("close", None)
    assert log.step() == "stale"
    assert not log.state.is_closing
    assert log.turn("go on").turn == 1


def test_nothing_but_a_close_closes() -> None:
    log = Log().start()
    log.send("one")
    judged = log.judged(log.state.queue[0])
    assert isinstance(judged, Good)
    assert close_up(log.state, judged, 9) == Decision()


def test_nothing_closes_while_a_turn_runs_or_a_message_waits() -> None:
    log = Log().start()
    log.send("one")
    log.step()
    log.close()
    request = log.judged(log.state.queue[0])
    assert isinstance(request, Good)
    assert close_up(log.state, request, 9) == Decision(), "a turn runs"
    log.forge()
    log.end()
    assert close_up(log.state, request, 9) == Decision(), "somebody waits"
    assert log.step() == "unauthenticated"
    assert close_up(log.state, request, 9).seal


@pytest.mark.parametrize("said", [{"generation_turns": ROTATE_TURNS}, {"events": ROTATE_EVENTS}])
def test_a_new_generation_begins_between_turns(said: dict[str, int]) -> None:
    log = Log().start()
    log.send("one")
    log.step()
    log.state = replace(log.state, **said)
    assert next_step(log.state).name == "run"
    assert rotate(log.state) == Decision(), "a turn runs"
    log.end()
    log.send("two")
    log.state = replace(log.state, **said)
    assert log.step() == "rotate"
    assert (log.state.generation, log.state.events, log.state.generation_turns) == (2, 1, 0)
    assert log.events(ConversationRotated)[0].generation == 2
    assert log.step() == "accepted"
    record = log.events(UserRecorded)[-1]
    assert (record.ord, record.turn, record.generation) == (3, 2, 2)


def test_rotations_come_after_100_turns_or_1000_events() -> None:
    log = Log().start()
    for _ in range(201):
        log.turn()
    assert [row.seq for row in log.rows if row.type == "conversation_rotated"] == [403, 804]
    assert log.state.generation == 3
    assert (ROTATE_TURNS, ROTATE_EVENTS) == (100, 1000)
    assert milliseconds(NOON) > 0
    assert isinstance(log.state, Conversation)
