"""What a turn of a shared conversation is fed: only what its asker is cleared for, and never a piece of a turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from conversation_scenes import ALICE, BOB, Log
from hypothesis import given, settings
from hypothesis import strategies as st
from minutebook.domain.conversations import window
from minutebook.domain.conversations.decide import MAX_LIVE_CLASSES
from minutebook.domain.conversations.events import ContextDecided, ReplyRecorded, SummaryRecorded, UserRecorded
from minutebook.domain.conversations.fit import Fixed, Sized, fit_to_window
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.ledger import ledger_of
from minutebook.domain.conversations.state import Conversation, SummaryRef
from minutebook.domain.conversations.turns import NewSummary, Shown, record_summary
from minutebook.domain.conversations.window import class_sets, common_summary, slice_for, to_summarize
from minutebook.domain.errors import Invalid
from msgspec.structs import replace
from shared_talks import shared_log

CAROL = Identity("human:carol", "acme")
PEOPLE = (ALICE, BOB, CAROL)
LABELS = ("gold", "red", "sec")
TURN_TOKENS = 10

labels = st.frozensets(st.sampled_from(LABELS))


class Said:
    """What somebody asks. added: classes of the sender's. tools: of the tools that the answer called."""

    def __init__(self, who: Identity, added: frozenset[str], tools: frozenset[str], cleared: frozenset[str]) -> None:
        self.who, self.added, self.tools, self.cleared = who, added, tools, cleared

    def __repr__(self) -> str:
        said = ", ".join(str(sorted(each)) for each in (self.added, self.tools, self.cleared))
        return f"Said({self.who.actor}, {said})"


talks = st.lists(
    st.builds(Said, st.sampled_from(PEOPLE), labels, labels | st.just(frozenset()), labels), min_size=1, max_size=12
)


class Ten:
    """A counter by which every message is five tokens."""

    per_message = 0

    def count(self, text: str) -> int:
        """Half a turn's, whatever it says."""
        return TURN_TOKENS // 2 if text else 0


def answers_of(sets: frozenset[frozenset[str]], has: frozenset[str]) -> dict[frozenset[str], object]:
    """What a policy says of somebody with those labels."""
    return {each: each <= has for each in sets}


def shown_to(asker: Identity, has: frozenset[str], room: int = 64) -> Callable[[Conversation], Shown | None]:
    """A verdict as the runner makes it, of a model that holds so many turns beside its question."""

    def shown(state: Conversation) -> Shown | None:
        part = slice_for(state, asker, answers_of(class_sets(state, asker), has))
        texts = () if part.summary is None else ("summary", "noted")
        sized = [Sized(turn.user_ord, turn.tokens, ("question", "answer")) for turn in part.turns]
        fitted = fit_to_window(TURN_TOKENS * room + 5, 0, Fixed("", "", "prompt", texts), sized, Ten())
        assert fitted is not None
        number = 0 if part.summary is None or fitted.summary_dropped else part.summary.number
        return Shown(fitted, 0, number, "p", "s", "t", "scripted", part.hidden)

    return shown


def say(log: Log, said: Said, room: int = 64, **more: Any) -> tuple[UserRecorded, ContextDecided, ReplyRecorded]:
    """One turn, from its question to its reply."""
    log.send("hello", said.who, **({"classes": tuple(sorted(said.added))} if said.added else {}), **more)
    while (name := log.step(shown_to(said.who, said.cleared, room))) != "accepted":
        assert name == "rotate"
    log.end("fine", classes=tuple(sorted(said.tools)))
    return (
        log.events(UserRecorded)[-1],
        log.events(ContextDecided)[-1],
        log.events(ReplyRecorded)[-1],
    )


@given(talks, st.integers(0, 12))
@settings(max_examples=20, deadline=None)
def test_shared_mode_per_asker_context_holds_whole_turns_that_the_asker_is_cleared_for(
    talk: list[Said], room: int
) -> None:
    log = shared_log(BOB, CAROL)
    by_ord: dict[int, tuple[UserRecorded, ReplyRecorded]] = {}
    for said in talk:
        _, verdict, reply = say(log, said, room)
        for ord_ in verdict.kept:
            kept = by_ord[ord_][1]
            assert kept.asker == said.who or set(kept.classes) <= said.cleared
        for ord_ in verdict.hidden:
            question, hidden = by_ord[ord_]
            assert hidden.asker != said.who
            assert not set(hidden.classes) <= said.cleared
            assert set(question.classes) <= set(hidden.classes), "whole: what restricts the question restricts it all"
        open_to = [ord_ for ord_ in by_ord if ord_ not in verdict.hidden]
        assert verdict.kept == tuple(open_to[max(0, len(open_to) - room) :]), "the longest newest suffix of the slice"
        by_ord[verdict.ord] = (log.events(UserRecorded)[-1], reply)
    assert log.state == log.folded()


@given(talks, st.integers(1, 12))
@settings(max_examples=20, deadline=None)
def test_shared_mode_answers_and_questions_are_classified_by_all_that_fed_them(talk: list[Said], room: int) -> None:
    log = shared_log(BOB, CAROL)
    sources: dict[int, frozenset[str]] = {}  # by ord of the question: every label that may have reached its answer
    for said in talk:
        question, verdict, reply = say(log, said, room)
        context = said.added.union(*(sources[ord_] for ord_ in verdict.kept))
        assert set(question.classes) == context
        assert set(reply.classes) == context | said.tools
        sources[verdict.ord] = frozenset(reply.classes)


@given(talks, st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_shared_mode_window_evicts_by_age_only_and_no_restricted_turn_is_summarized(
    talk: list[Said], room: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "MAX_WINDOW_TURNS", 3)
        log = shared_log(BOB, CAROL)
        finished: list[tuple[int, tuple[str, ...]]] = []
        covered: set[int] = set()
        for said in talk:
            _, verdict, reply = say(log, said, room)
            assert verdict.evicted == ()
            finished.append((verdict.turn, reply.classes))
            assert [turn.turn for turn in log.state.window] == [turn for turn, _ in finished[-3:]]
            assert all(not turn.classes for turn in log.state.evicted), "dropped, not kept for later"
            plain = {turn for turn, classes in finished[:-3] if not classes}
            assert {turn.turn for turn in to_summarize(log.state)} == plain - covered
            if len(to_summarize(log.state)) == 2:
                log.append(record_summary(log.state, NewSummary("a summary", 5, to_summarize(log.state)[-1].turn)))
                covered = plain
        assert all(each.classes == () for each in log.events(SummaryRecorded))
        assert log.state.summary is None or log.state.summary.classes == ()


def test_shared_mode_what_is_too_large_for_one_asker_is_left_out_of_that_turn_only() -> None:
    log = shared_log(BOB)
    said = Said(ALICE, frozenset(), frozenset(), frozenset())
    for _ in range(4):
        say(log, said)
    log.state = replace(log.state, summary=SummaryRef(1, 2, 1, 5))
    narrow = say(log, Said(BOB, frozenset(), frozenset(), frozenset()), room=0)[1]
    assert (narrow.kept, narrow.evicted, narrow.summary, narrow.summary_dropped) == ((), (), 0, True)
    assert len(log.state.window) == 5
    wide = say(log, said)[1]
    assert (len(wide.kept), wide.summary, wide.summary_dropped) == (5, 1, False)


def test_shared_mode_the_counted_tokens_stay() -> None:
    log = shared_log(BOB)
    said = Said(ALICE, frozenset(), frozenset(), frozenset())
    say(log, said)
    assert say(log, said)[1].counted == {"1": TURN_TOKENS}
    assert say(log, replace_who(said, BOB))[1].counted == {"3": TURN_TOKENS}


def replace_who(said: Said, who: Identity) -> Said:
    """The same of somebody else."""
    return Said(who, said.added, said.tools, said.cleared)


def test_shared_mode_only_exactly_true_is_clearance_and_the_policy_is_asked_for_nothing_else() -> None:
    log = shared_log(BOB)
    say(log, Said(ALICE, frozenset(), frozenset({"sec", "red"}), frozenset()))
    say(log, Said(ALICE, frozenset(), frozenset(), frozenset(LABELS)))
    say(log, Said(BOB, frozenset({"gold"}), frozenset(), frozenset()))
    both = frozenset({"sec", "red"})
    assert class_sets(log.state, BOB) == {both}
    assert class_sets(log.state, ALICE) == {frozenset({"gold"})}
    for answer in (1, "yes", None, False, object(), [True]):
        assert slice_for(log.state, BOB, {both: answer}).hidden == (1, 3)
    assert slice_for(log.state, BOB, {}).hidden == (1, 3)
    assert slice_for(log.state, BOB, {frozenset({"sec"}): True, frozenset({"red"}): True}).hidden == (1, 3)
    assert slice_for(log.state, BOB, {both: True}).hidden == ()


def test_an_owner_only_conversation_hides_nothing_from_its_owner() -> None:
    log = Log().start()
    log.turn("one", "fine")
    state = replace(log.state, window=(replace(log.state.window[0], classes=("sec",), asker=BOB),))
    assert class_sets(state, ALICE) == frozenset()
    assert slice_for(state, ALICE, {}) == window.Slice(state.window, (), None)


def test_shared_mode_a_summary_with_classes_is_nobodys() -> None:
    log = shared_log(BOB)
    said = Said(ALICE, frozenset(), frozenset(), frozenset())
    for _ in range(2):
        say(log, said)
    tainted = replace(log.state, summary=SummaryRef(7, 2, 1, 5, ("sec",)), evicted=log.state.window)
    assert common_summary(tainted) is None
    for asker, has in itertools.product(PEOPLE, (frozenset[str](), frozenset(LABELS))):
        assert slice_for(tainted, asker, answers_of(class_sets(tainted, asker), has)).summary is None
    (new,) = record_summary(tainted, NewSummary("a summary", 5, 2)).events
    assert isinstance(new.event, SummaryRecorded)
    assert (new.event.number, new.event.classes) == (8, ())
    restricted = replace(tainted, evicted=tuple(replace(turn, classes=("sec",)) for turn in tainted.evicted))
    assert to_summarize(restricted) == ()
    assert record_summary(restricted, NewSummary("a summary", 5, 2)).events == ()


def test_shared_mode_an_edit_carries_the_classes_of_what_it_edits_though_it_does_not_fit() -> None:
    log = shared_log(BOB)
    say(log, Said(BOB, frozenset(), frozenset({"sec"}), frozenset()))
    said = Said(BOB, frozenset({"red"}), frozenset(), frozenset())
    question, verdict, reply = say(log, said, room=0, edit_of=1)
    assert verdict.kept == ()
    assert question.classes == reply.classes == ("red", "sec")


def test_shared_mode_a_rejected_question_keeps_only_what_its_sender_added() -> None:
    log = shared_log(BOB)
    say(log, Said(BOB, frozenset(), frozenset({"sec"}), frozenset()))
    log.send("edits nothing", BOB, edit_of=99, classes=("red",))
    assert log.step(shown_to(BOB, frozenset())) == "edit-invalid"
    assert log.events(UserRecorded)[-1].classes == ("red",)


def test_shared_mode_the_ledger_names_what_was_hidden_by_its_place_alone() -> None:
    log = shared_log(BOB)
    say(log, Said(ALICE, frozenset(), frozenset({"sec"}), frozenset()))
    say(log, Said(ALICE, frozenset(), frozenset(), frozenset({"sec"})))
    verdict = say(log, Said(BOB, frozenset(), frozenset(), frozenset()))[1]
    ledger = ledger_of(log.id, verdict, None, log.ring)
    assert ledger.hidden == (1, 3)
    assert verdict.kept == verdict.evicted == ledger.kept == ledger.evicted == ()
    assert verdict.counted == {}
    assert "sec" not in repr(verdict)


def test_shared_mode_the_bound_on_a_senders_classes_counts_nobody_elses() -> None:
    log = shared_log(BOB)
    for number in range(MAX_LIVE_CLASSES // 16):
        added = frozenset(f"c{number}-{each}" for each in range(16))
        say(log, Said(ALICE, added, frozenset(), frozenset()))
    log.send("hello", BOB, classes=("one-more",))
    with pytest.raises(Invalid):
        log.send("hello", ALICE, classes=("one-more",))
