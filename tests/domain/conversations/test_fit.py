"""What fits into a window, and what a token costs without a tokenizer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minutebook.domain.conversations.counting import PER_MESSAGE, HeuristicCounter
from minutebook.domain.conversations.fit import (
    CUT_MARK,
    MAX_CUT_CHARS,
    Fixed,
    Result,
    Sized,
    cut_result,
    cut_summary,
    fit_results,
    fit_to_window,
)
from minutebook.domain.conversations.state import MAX_WINDOW_TURNS
from msgspec import UNSET

HEURISTIC = HeuristicCounter()


class Words:
    """Counts a token a character, and remembers what it was asked to count. No message costs anything beside it."""

    per_message = 0

    def __init__(self) -> None:
        self.asked: list[str] = []

    def count(self, text: str) -> int:
        """Its length."""
        self.asked.append(text)
        return len(text)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("\u4f60\u597d", 2),
        ("abcd\u4f60", 2),
        ("\U0001f469\u200d\U0001f680", 3),
        ("\x00\x7f\x80", 2),
        ("\ud800", 1),
        ("e\u0301" * 4, 5),
    ],
)
def test_ascii_costs_a_quarter_and_all_else_one(text: str, tokens: int) -> None:
    assert HEURISTIC.count(text) == tokens
    assert PER_MESSAGE > 0


@given(st.text(max_size=60))
def test_a_count_is_what_its_rule_says(text: str) -> None:
    plain = sum(1 for char in text if ord(char) < 128)
    assert HEURISTIC.count(text) == (plain + 3) // 4 + len(text) - plain


FIXED = Fixed("s" * 10, "t" * 5, "p" * 20, ("m" * 6, "a" * 4))
"""45 tokens, 10 of them the summary's."""


def sized(*tokens: int) -> list[Sized]:
    """Turns of so many tokens, not counted yet, oldest first."""
    return [Sized(2 * place + 1, UNSET, ("x" * each,)) for place, each in enumerate(tokens)]


@pytest.mark.parametrize(
    ("window", "kept", "evicted"),
    [
        (145, (1, 3, 5), ()),
        (106, (1, 3, 5), ()),
        (105, (3, 5), (1,)),
        (75, (5,), (1, 3)),
        (74, (), (1, 3, 5)),
        (45, (), (1, 3, 5)),
    ],
)
def test_the_longest_newest_suffix_stays(window: int, kept: tuple[int, ...], evicted: tuple[int, ...]) -> None:
    fitted = fit_to_window(window + 7, 7, FIXED, sized(1, 30, 30), Words())
    assert fitted is not None
    assert (fitted.kept, fitted.evicted, fitted.summary_dropped) == (kept, evicted, False)
    assert fitted.tokens == sum(fitted.parts.values()) <= window
    assert fitted.parts == {"system": 10, "tools": 5, "summary": 10, "turns": sum(fitted.kept_tokens), "prompt": 20}


def test_it_stops_at_the_first_turn_that_does_not_fit() -> None:
    counter = Words()
    fitted = fit_to_window(95, 0, FIXED, sized(1, 1, 60, 20), counter)
    assert fitted is not None
    assert (fitted.kept, fitted.evicted) == ((7,), (1, 3, 5))
    assert fitted.counted == {"7": 20, "5": 60}
    assert counter.asked.count("x") == 0, "a turn behind the one that does not fit is never counted"


def test_what_was_counted_before_is_not_counted_again() -> None:
    counter = Words()
    turns = [Sized(1, 7), Sized(3, 8), Sized(5, UNSET, ("new", "words"))]
    fitted = fit_to_window(100, 0, FIXED, turns, counter)
    assert fitted is not None
    assert (fitted.kept, fitted.kept_tokens, fitted.counted) == ((1, 3, 5), (7, 8, 8), {"5": 8})
    assert [text for text in counter.asked if text not in (FIXED.system, FIXED.tools, FIXED.prompt)] == [
        *FIXED.summary,
        "new",
        "words",
    ]


def test_a_summary_that_alone_breaks_the_fit_is_left_out() -> None:
    fitted = fit_to_window(44, 0, FIXED, sized(9, 9), Words())
    assert fitted is not None
    assert (fitted.summary_dropped, fitted.parts["summary"], fitted.kept) == (True, 0, (3,))
    assert fitted.tokens == 44


def test_a_prompt_that_cannot_fit_alone_fits_not() -> None:
    assert fit_to_window(34, 0, FIXED, sized(1), Words()) is None
    fitted = fit_to_window(35, 0, FIXED, sized(1), Words())
    assert fitted is not None
    assert (fitted.tokens, fitted.kept) == (35, ())


def test_no_prompt_has_more_than_64_turns() -> None:
    fitted = fit_to_window(10_000, 0, FIXED, sized(*[1] * (MAX_WINDOW_TURNS + 2)), Words())
    assert fitted is not None
    assert len(fitted.kept) == MAX_WINDOW_TURNS
    assert fitted.evicted == (1, 3)


@given(
    st.integers(0, 200),
    st.integers(0, 30),
    st.lists(st.text(max_size=20), max_size=6),
    st.text(max_size=30),
    st.lists(st.text(max_size=20), max_size=2),
)
def test_any_fit_keeps_its_promises(
    window: int, reserve: int, texts: list[str], prompt: str, summary: list[str]
) -> None:
    fixed = Fixed("sys", "", prompt, tuple(summary))
    turns = [Sized(place, UNSET, (text, "ok")) for place, text in enumerate(texts)]
    fitted = fit_to_window(window, reserve, fixed, turns, HEURISTIC)
    alone = HEURISTIC.count("sys") + HEURISTIC.count(prompt) + 2 * PER_MESSAGE
    if fitted is None:
        assert alone > window - reserve
        return
    assert fitted.tokens <= window - reserve
    assert fitted.evicted + fitted.kept == tuple(range(len(texts)))
    if fitted.evicted:
        out = texts[fitted.evicted[-1]]
        assert fitted.tokens + HEURISTIC.count(out) + HEURISTIC.count("ok") + 2 * PER_MESSAGE > window - reserve


LONG, SHORT = "r" * 5000, "r" * 10
CUT = MAX_CUT_CHARS + len(CUT_MARK)


def test_the_oldest_results_are_cut_first() -> None:
    results = [Result("a", LONG), Result("b", SHORT), Result("c", LONG), Result("d", LONG)]
    whole = 3 * 5000 + 10
    assert fit_results(whole + 7, 7, results, (), Words()) == ()
    assert fit_results(whole + 6, 7, results, (), Words()) == ("a",)
    assert fit_results(whole - 5000 + CUT, 0, results, (), Words()) == ("a",)
    assert fit_results(whole - 5000 + CUT - 1, 0, results, (), Words()) == ("a", "c")
    assert fit_results(3 * CUT + 10, 0, results, (), Words()) == ("a", "c", "d")
    assert fit_results(3 * CUT + 9, 0, results, (), Words()) is None


def test_what_was_cut_stays_cut() -> None:
    results = [Result("a", LONG), Result("b", LONG)]
    assert fit_results(100_000, 0, results, ("b",), Words()) == ("b",)
    assert fit_results(2 * CUT, 0, results, ("b",), Words()) == ("a", "b")


def test_a_turn_without_results_fits_or_not() -> None:
    assert fit_results(7, 7, [], (), Words()) == ()
    assert fit_results(6, 7, [], (), Words()) is None


@given(st.text(max_size=20).map(lambda text: text * 100))
def test_a_cut_never_makes_longer(text: str) -> None:
    shown = cut_result(text)
    assert shown == text or (shown.endswith(CUT_MARK) and text.startswith(shown.removesuffix(CUT_MARK)))
    assert len(shown) <= len(text)
    assert cut_result(shown) == shown


def test_a_summary_has_a_quarter_of_the_window() -> None:
    counter = Words()
    assert cut_summary("x" * 100, 400, counter) == "x" * 100
    assert cut_summary("x" * 101, 400, counter) == "x" * 100
    assert cut_summary("x" * 100_000, 400, counter) == "x" * 100
    assert len(counter.asked) < 50
    assert cut_summary("x", 3, counter) == ""
