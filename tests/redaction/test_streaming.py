"""The same result however a text was cut into chunks (rules.md, law 28)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from minutebook.infra.redaction.engine import Redactor
from minutebook.infra.redaction.known import forms_of
from minutebook.infra.redaction.rules import marked, shipped_rules
from minutebook.infra.redaction.stream import LOOK_EVERY_BYTES, MAX_HELD_BYTES

SECRET = 's3cr3t/+va"l\\ue==9'
REDACTOR = Redactor(shipped_rules(), forms_of(SECRET))

EXAMPLES = [marked(each)[0].decode() for rule in shipped_rules() for each in (*rule.positive, *rule.negative)]
FILLING = ["", " ", "\n", "\\n", "a", "9", "-", "é", "😀", "\u200b", "\ud83d", '"', "=", "://u:", "token: ", "password"]

texts = st.lists(
    st.one_of(
        st.sampled_from(EXAMPLES),
        st.sampled_from(FILLING),
        st.sampled_from(sorted(forms_of(SECRET))),
        st.tuples(st.sampled_from(EXAMPLES), st.integers(0, 60)).map(lambda pair: pair[0][: pair[1]]),
        st.text(max_size=8),
    ),
    max_size=6,
).map("".join)


def streamed(redactor: Redactor, text: str, cuts: list[int]) -> tuple[str, list[str]]:
    """The text in those pieces through a stream."""
    stream = redactor.stream()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    shown = "".join(stream.feed(text[start:end]) for start, end in pairwise(places)) + stream.finish()
    return shown, stream.redactions


@settings(max_examples=400, deadline=None)
@given(texts, st.lists(st.integers(0, 400), max_size=12))
@example("ghp_" + "a1" * 20, [2, 30])
@example("Authorization: Bearer abcdef123", [9, 15, 20])
def test_any_cuts_give_what_the_whole_text_gives(text: str, cuts: list[int]) -> None:
    assert streamed(REDACTOR, text, cuts) == REDACTOR.text(text)


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_comes_through_character_by_character(text: str) -> None:
    assert streamed(REDACTOR, text, list(range(len(text)))) == REDACTOR.text(text)


def test_what_cannot_become_a_secret_is_not_held_back() -> None:
    stream = REDACTOR.stream()
    assert stream.feed("A plain sentence of a model. ") == "A plain sentence of a model. "
    assert stream.feed("Then g") == "Then "
    assert stream.feed("hp") == ""
    assert stream.feed("ost ") == "ghpost "
    assert stream.finish() == ""


def test_a_secret_is_never_shown_while_it_comes() -> None:
    token = "ghp_" + "aB3" * 12
    stream = REDACTOR.stream()
    shown = [stream.feed(char) for char in f"use {token} now"]
    assert "".join(shown).startswith("use [REDACTED:github-token] ")
    assert not any(char in token for part in shown[4 : 4 + len(token)] for char in part)


LONG = "ghp_" + "aB3" * ((MAX_HELD_BYTES + 3 * LOOK_EVERY_BYTES) // 3)


@pytest.mark.parametrize("size", [1000, 4096, 70_000, len(LONG)])
@pytest.mark.parametrize("after", [" and on ghp_" + "aB3" * 12, "/.", ""])
def test_what_is_held_back_is_bounded_and_its_rest_goes_with_it(size: int, after: str) -> None:
    text = "see " + LONG + after
    one = REDACTOR.text(text)[0]
    assert "aB3" not in one
    assert one.startswith("see [REDACTED:github-token]")
    assert one.endswith({" ": "[REDACTED:github-token]"}.get(after[:1], "[REDACTED:github-token]"))
    stream = REDACTOR.stream()
    shown = ""
    for at in range(0, len(text), size):
        shown += stream.feed(text[at : at + size])
        assert stream.held_bytes <= MAX_HELD_BYTES + LOOK_EVERY_BYTES
    assert shown + stream.finish() == one


@settings(max_examples=25, deadline=None)
@given(texts, st.integers(0, 3 * LOOK_EVERY_BYTES), st.lists(st.integers(0, 90_000), max_size=5))
def test_long_texts_are_cut_at_the_same_places(text: str, length: int, cuts: list[int]) -> None:
    whole = text + LONG[: MAX_HELD_BYTES + length] + text + "é😀" * 100 + text
    assert streamed(REDACTOR, whole, cuts) == REDACTOR.text(whole)


@pytest.mark.parametrize("cut", [MAX_HELD_BYTES + 20, 70_000, 100])
def test_the_limit_is_looked_at_in_the_same_places_however_the_text_is_cut(cut: int) -> None:
    """The match is longer than the limit, but whole before the next look: no chunk's end may give it up."""
    text = "://u:" + "p7" * (MAX_HELD_BYTES // 2 + 30) + "@host"
    assert REDACTOR.text(text) == ("://u:[REDACTED:url-password]@host", ["url-password"])
    assert streamed(REDACTOR, text, [cut]) == REDACTOR.text(text)


@pytest.mark.parametrize("shift", range(0, 60, 12))
def test_what_begins_shortly_before_the_limit_is_not_given_up_with_the_rest(shift: int) -> None:
    token = "ghp_" + "aB3" * 12
    filling = MAX_HELD_BYTES + LOOK_EVERY_BYTES - 40 - shift
    text = "://u:" + "p" * filling + ":" + token + ":" + "p" * 20_000 + " " + token
    one, redactions = REDACTOR.text(text)
    assert redactions == ["github-token"]
    assert (token[:12] in one, one.count("[REDACTED:github-token]")) == (False, 2)
    assert streamed(REDACTOR, text, [100, filling, filling + 30]) == (one, redactions)
