"""A conversation under anything that people, forgers, runners and crashes do to it keeps what it promises."""

from __future__ import annotations

import json
from collections import Counter as Tally
from datetime import timedelta
from typing import Any

import msgspec
from conversation_scenes import ALICE, BOB, CONVERSATION, RING, Log, Ring
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from minutebook.domain.conversations.commands import AddParticipant, RemoveParticipant
from minutebook.domain.conversations.events import (
    ContextDecided,
    ConversationClosed,
    EnvelopeReceived,
    ParticipantRemoved,
    ReplyRecorded,
    Unsigned,
    UserRecorded,
)
from minutebook.domain.conversations.evolve import INITIAL, evolve
from minutebook.domain.conversations.fit import Fitted, Sized, fit_to_window
from minutebook.domain.conversations.judge import Bad, Good, judge
from minutebook.domain.conversations.participants import add_participant, remove_participant
from minutebook.domain.conversations.prompt import Asked, assemble, fixed_texts, told, turn_texts
from minutebook.domain.conversations.state import MAX_WINDOW_TURNS, ROTATE_TURNS, Conversation
from minutebook.domain.conversations.turns import (
    NewSummary,
    Outcome,
    Shown,
    accept,
    close_up,
    end_turn,
    keep_summary,
    next_step,
    record_summary,
    reject,
    reject_good,
)
from minutebook.domain.decisions import Decision
from minutebook.domain.errors import MinutebookError
from msgspec.structs import replace

WINDOW = 1500


class Moody:
    """A counter that counts something else each time that it is made."""

    per_message = 3

    def __init__(self, characters: int) -> None:
        self.characters = characters

    def count(self, text: str) -> int:
        """Tokens of so many characters."""
        return len(text) // self.characters


def words_at(log: Log, seq: int) -> str:
    """The text of a record."""
    return json.loads(log.rows[seq - 1].payload).get("text", "")


def shown_to(log: Log, state: Conversation, question: str, counter: Moody) -> Shown | None:
    """A verdict as a runner makes it; None where the prompt does not fit."""
    window = [
        told(turn, Asked(turn.asker, words_at(log, turn.user_seq)), words_at(log, turn.reply_seq))
        for turn in state.window
    ]
    sized = [
        Sized(turn.user_ord, turn.tokens, turn_texts(each)) for turn, each in zip(state.window, window, strict=True)
    ]
    asked = Asked(ALICE, question)
    fitted = fit_to_window(WINDOW, 20, fixed_texts("sys", [], None, asked), sized, counter)
    if fitted is None:
        return None
    kept = [each for each in window if each.ord in fitted.kept]
    prompt = assemble(RING, CONVERSATION, "sys", None, kept, asked)
    assert [message.role for message in prompt.messages] == [*(["user", "assistant"] * len(kept)), "user"]
    summary = 0 if state.summary is None else state.summary.number
    return Shown(fitted, 20, summary, "p", "s", "t", "scripted")


class ConversationMachine(RuleBasedStateMachine):
    """Refusals are taken as they come. A decision that came too late is one that was made on an older state."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.sent: set[str] = set()
        self.out: set[int] = set()

    @initialize(barge_in=st.sampled_from(["queue", "interrupt"]), mode=st.sampled_from(["owner", "shared"]))
    def start(self, barge_in: str, mode: str) -> None:
        self.log.start(barge_in=barge_in, mode=mode)

    @rule(is_added=st.booleans())
    def change(self, is_added: bool) -> None:
        """Bob comes, or goes."""
        state = self.log.state
        try:
            decision = (
                add_participant(state, AddParticipant("human:bob"), self.log.received())
                if is_added
                else remove_participant(state, RemoveParticipant("human:bob"), self.log.received())
            )
        except MinutebookError:
            assert state.mode == "owner" or state.is_closing or state.state == "closed"
            return
        self.log.append(decision)
        assert self.log.state.may_speak(BOB) == is_added
        if not is_added:
            self.out |= {each.seq for each in self.log.state.queue if each.asker == BOB}

    @rule(
        text=st.sampled_from(["hello", "x" * 300, "\u4f60" * 500, "y" * 5000]),
        who=st.sampled_from([ALICE] * 3 + [BOB]),
        message_id=st.sampled_from([None] * 4 + ["m-1", "m-2"]),
        edit_of=st.sampled_from([None] * 3 + [1, 2, 3, 7]),
    )
    def send(self, text: str, who: Any, message_id: str | None, edit_of: int | None) -> None:
        said: dict[str, Any] = {"message_id": message_id, "edit_of": edit_of}
        may_speak = self.log.state.may_speak(who)
        try:
            envelope = self.log.send(text, who, **{name: each for name, each in said.items() if each is not None})
        except MinutebookError:
            return
        assert may_speak
        self.sent.add(envelope.id)

    @rule()
    def interrupt(self) -> None:
        try:
            self.log.interrupt()
        except MinutebookError:
            assert self.log.state.is_closing or self.log.state.state == "closed"

    @precondition(lambda self: len(self.log.rows) > 30)
    @rule()
    def close(self) -> None:
        try:
            self.log.close()
        except MinutebookError:
            assert self.log.state.is_closing or self.log.state.state == "closed"

    @precondition(lambda self: not self.log.is_sealed)
    @rule(number=st.integers(0, 3))
    def forge(self, number: int) -> None:
        self.log.forge(id=f"{number}")

    @precondition(lambda self: not self.log.is_sealed)
    @rule(place=st.integers(0, 60), change=st.sampled_from([{}, {}, {"text": "obey"}, {"turn": 1}, {"mac": "0"}]))
    def copy(self, place: int, change: dict[str, Any]) -> None:
        """A writer in the database repeats any event, as it is or touched."""
        row = self.log.rows[place % len(self.log.rows)]
        self.log.put(row.type, json.loads(row.payload) | change, row.actor)

    @rule(minutes=st.sampled_from([1, 4, 90, -30]))
    def clock(self, minutes: int) -> None:
        self.log.later(minutes=minutes)

    @rule(characters=st.integers(1, 9), is_gone=st.sampled_from([False] * 5 + [True]))
    def take(self, characters: int, is_gone: bool) -> None:
        """What a runner does next; the question may not fit, and the agent may be gone."""
        step = next_step(self.log.state)
        if step.name == "take":
            assert step.waiting is not None
            judged = self.log.judged(step.waiting)
            if isinstance(judged, Good):
                shown = shown_to(self.log, self.log.state, str(judged.envelope.text), Moody(characters))
                if is_gone or shown is not None:
                    decision = accept(self.log.state, judged, None if is_gone else shown)
                else:
                    decision = reject_good(self.log.state, judged, "prompt-too-large")
                self.log.append(decision)
                return
        self.log.step()

    @precondition(lambda self: self.log.state.running is not None)
    @rule(
        status=st.sampled_from(["completed", "interrupted", "failed"]),
        text=st.sampled_from(["", "fine", "z" * 900]),
        acknowledged=st.sampled_from([None, 0, 2, 5000]),
    )
    def end(self, status: Any, text: str, acknowledged: int | None) -> None:
        running = self.log.state.running
        assert running is not None
        outcome = Outcome(status, text, acknowledged=acknowledged, sent=len(text))
        decision = end_turn(self.log.state, running.turn, outcome)
        self.log.append(decision)
        assert end_turn(self.log.state, running.turn, outcome) == Decision(), "another runner ends nothing"

    @rule(
        texts=st.lists(st.sampled_from(["hello", "x" * 300, "\u4f60" * 500]), min_size=1, max_size=4),
        characters=st.integers(1, 9),
    )
    def work(self, texts: list[str], characters: int) -> None:
        """A runner that keeps up: whatever waits comes to its end."""
        for text in texts:
            self.send(text, ALICE, None, None)
        for _ in range(12):
            if self.log.state.running is not None:
                self.end("completed", "fine", None)
            self.take(characters, False)

    @precondition(lambda self: bool(self.log.state.evicted) and not self.log.is_sealed)
    @rule(text=st.sampled_from(["", "So far so good."]), through=st.integers(0, 9), is_failed=st.booleans())
    def summarize(self, text: str, through: int, is_failed: bool) -> None:
        state = self.log.state
        decision = (
            keep_summary(state, "model-error") if is_failed else record_summary(state, NewSummary(text, 4, through))
        )
        self.log.append(decision)

    @precondition(lambda self: next_step(self.log.state).name in ("take", "idle") and len(self.log.rows) > 20)
    @precondition(lambda self: not self.log.is_sealed)
    @rule()
    def rotate(self) -> None:
        self.log.state = replace(self.log.state, generation_turns=ROTATE_TURNS)
        assert self.log.step() in ("rotate", "idle")
        place = max((row.seq for row in self.log.rows if row.type == "conversation_rotated"), default=1)
        assert self.log.folded(after=place - 1) == self.log.state, "the carry is the whole state"

    @invariant()
    def the_state_is_bounded(self) -> None:
        state = self.log.state
        assert len(state.window) <= MAX_WINDOW_TURNS
        assert not (state.is_closing and next_step(state).name == "take")
        msgspec.json.decode(msgspec.json.encode(state), type=Conversation)

    def teardown(self) -> None:
        """What the whole log says."""
        if not self.log.rows:
            return
        assert self.log.folded() == self.log.state
        assert self.log.folded(ring=Ring(k2=b"2" * 32, **RING.keys)) == self.log.state
        check_records(self.log)
        check_envelopes(self.log, self.sent)
        check_removed(self.log, self.out)
        check_replay(self.log)


def check_records(log: Log) -> None:
    """Ords without gap, one reply a turn, never two turns at once, nothing behind the close."""
    records = log.events(UserRecorded, ReplyRecorded)
    assert [record.ord for record in records] == list(range(1, len(records) + 1))
    assert log.state.next_ord == len(records) + 1
    running = 0
    turns: list[int] = []
    for record in records:
        if isinstance(record, ReplyRecorded):
            assert record.turn == running
            running = 0
        elif record.status == "accepted":
            assert not running, "two turns run"
            running = record.turn
            turns.append(record.turn)
        else:
            assert not running, "a message was taken up while a turn ran"
            assert record.turn == 0
    assert turns == list(range(1, len(turns) + 1))
    assert (log.state.running.turn if log.state.running else 0) == running
    assert log.is_sealed == (log.state.state == "closed") == bool(log.events(ConversationClosed))


def check_envelopes(log: Log, sent: set[str]) -> None:
    """Every message that was taken in waits or has one record; nothing else is ever accepted."""
    records = log.events(UserRecorded)
    waiting = [each.seq for each in log.state.queue]
    assert len(waiting) == len(set(waiting))
    assert max(Tally(record.envelope_seq for record in records).values(), default=1) == 1
    assert not {record.envelope_seq for record in records} & set(waiting)
    named = Tally(record.id for record in records if record.id is not msgspec.UNSET)
    assert max(named.values(), default=1) == 1, "an id has two outcomes"
    left = {each.id for each in log.state.queue if not each.is_suspect}
    assert sent <= set(named) | left, "a message was lost"
    accepted = {record.id for record in records if record.status == "accepted"}
    assert accepted <= sent, "what nobody sent was accepted"


def check_removed(log: Log, out: set[int]) -> None:
    """What waited while its asker was taken out is no turn, whoever comes back; a running turn of theirs knows."""
    accepted = {each.envelope_seq for each in log.events(UserRecorded) if each.status == "accepted"}
    assert not accepted & out
    running = log.state.running
    if running is not None and not log.state.may_speak(running.asker):
        assert any(log.rows[seq - 1].type == ParticipantRemoved.type for seq in running.interrupts)


def check_replay(log: Log) -> None:
    """The runner's decisions, made once more from each prefix of the log: the counter and the clock are others, the
    verdicts and times are the log's, and every event comes out as it was recorded."""
    state = INITIAL
    events = [log.read(row) for row in log.rows]
    for place, recorded in enumerate(events):
        event = recorded.event
        if isinstance(event, UserRecorded):
            verdict = events[place + 1].event if place + 1 < len(events) else None
            again = decided_again(log, state, event, verdict if isinstance(verdict, ContextDecided) else None)
            assert again == [bare(event)] + ([bare(verdict)] if isinstance(verdict, ContextDecided) else [])
        if isinstance(event, ConversationClosed):
            request = next(each for each in state.queue if each.kind == "close" and not each.is_suspect)
            good = judge(state, request, log.stored(request.seq), RING)
            assert isinstance(good, Good)
            assert [bare(new.event) for new in close_up(state, good, place).events][-1] == bare(event)
        state = evolve(state, recorded)
    assert isinstance(events[0].event, Unsigned | EnvelopeReceived) is False


def decided_again(log: Log, state: Conversation, event: UserRecorded, verdict: ContextDecided | None) -> list[Any]:
    """What the runner's decision was, from the state before it."""
    waiting = next(each for each in state.queue if each.seq == event.envelope_seq)
    judged = judge(state, waiting, log.stored(waiting.seq), RING)
    if isinstance(judged, Bad):
        return [bare(new.event) for new in reject(state, judged).events]
    if event.status == "rejected":
        assert event.reason == "prompt-too-large"
        return [bare(new.event) for new in reject_good(state, judged, "prompt-too-large").events]
    shown = None
    if verdict is not None:
        fitted = Fitted(
            verdict.kept,
            verdict.kept_tokens,
            verdict.evicted,
            verdict.counted,
            verdict.tokens,
            verdict.parts,  # pyright: ignore[reportArgumentType]
            verdict.summary_dropped,
        )
        shown = Shown(fitted, 20, verdict.summary, "p", "s", "t", "scripted")
    return [bare(new.event) for new in accept(state, judged, shown).events]


def bare(event: Any) -> Any:
    """An event without its MAC."""
    return replace(event, kid="", mac="")


TestConversationMachine = ConversationMachine.TestCase
TestConversationMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_the_clock_of_a_replay_is_another() -> None:
    """A conversation that is folded a year later is what it was."""
    log = Log().start()
    log.turn("one")
    log.send("two")
    before = log.state
    log.now += timedelta(days=365)
    assert log.folded() == before
    assert log.step() == "accepted"
