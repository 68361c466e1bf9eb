"""Where a text may be cut, and what of it can be kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minutebook.domain.conversations.wording import cut, is_legible, repaired

ASTRONAUT = "\U0001f469\u200d\U0001f680"
THUMB = "\U0001f44d\U0001f3fd"
FLAGS = "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7"
WALES = "\U0001f3f4\U000e0067\U000e0062\U000e007f"


@pytest.mark.parametrize(
    ("text", "most", "kept"),
    [
        ("abc", 2, "ab"),
        ("abc", 0, ""),
        ("abc", -1, ""),
        ("abc", 3, "abc"),
        ("abc", 250, "abc"),
        ("ae\u0301b", 2, "a"),
        ("ae\u0301b", 3, "ae\u0301"),
        (f"a{ASTRONAUT}b", 2, "a"),
        (f"a{ASTRONAUT}b", 3, "a"),
        (f"a{ASTRONAUT}b", 4, f"a{ASTRONAUT}"),
        (f"a{THUMB}b", 2, "a"),
        ("a\u2764\ufe0fb", 2, "a"),
        (f"a{FLAGS}", 2, "a"),
        (f"a{FLAGS}", 3, f"a{FLAGS[:2]}"),
        (f"a{FLAGS}", 4, f"a{FLAGS[:2]}"),
        (f"a{WALES}b", 3, "a"),
        ("a\r\nb", 2, "a"),
        ("a\u1112\u1161\u11abb", 3, "a"),
        ("\u0301\u0301", 1, ""),
    ],
)
def test_a_cut_leaves_whole_characters(text: str, most: int, kept: str) -> None:
    assert cut(text, most) == kept


@given(
    st.text(alphabet=st.sampled_from([*"ab\r\n\u0301\u200d", *ASTRONAUT, *FLAGS, *THUMB]), max_size=12),
    st.integers(-2, 14),
)
def test_a_cut_is_a_beginning_and_cuts_nothing_more_the_second_time(text: str, most: int) -> None:
    kept = cut(text, most)
    assert text.startswith(kept)
    assert len(kept) <= max(0, most)
    assert cut(text, len(kept)) == kept


@given(st.text(alphabet=st.characters(), max_size=20))
def test_whatever_a_model_said_can_be_kept(text: str) -> None:
    kept = repaired(text)
    kept.encode()
    assert "\0" not in kept
    if "\0" not in text and text.isascii():
        assert kept == text


def test_halves_that_meet_are_one_character() -> None:
    assert repaired("\ud83d\udc4b \ud83d") == "\U0001f44b \ufffd"


def test_something_to_read_is_anything_but_marks_and_space() -> None:
    assert is_legible("\u2764\ufe0f")
    assert is_legible("\U0001fae8"), "what this version of Unicode does not know may still be read"
    assert is_legible("\U000f0000"), "private use"
    assert not is_legible("\ufe0f\u200d \u0301")
