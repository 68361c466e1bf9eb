"""Cutting a text: the pieces join to it, none is too long, and cuts stand where a reader would make them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minutebook.domain.channels.pieces import EMPTY, pieces, utf16_units, visible
from minutebook.domain.channels.verbs import MAX_ARGUMENT_CHARS, verb_in


def width(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@settings(max_examples=60)
@given(st.text(st.characters(codec="utf-8") | st.sampled_from("a \n\u0301\u200d😀"), max_size=200), st.integers(2, 50))
def test_the_pieces_join_to_the_text_and_none_is_too_long(text: str, limit: int) -> None:
    found = pieces(text, limit, utf16_units)
    assert "".join(found) == text
    assert all(width(piece) <= limit for piece in found)
    assert all(found) or found == [""]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("aaaa\n\nbbb ccc", ["aaaa\n\n", "bbb ccc"]),
        ("aaaaaa\nbb cc", ["aaaaaa\n", "bb cc"]),
        ("aaaaaaa bbbbbbbbb", ["aaaaaaa ", "bbbbbbbbb"]),
        ("a bbbbbbbbbbbbbb", ["a bbbbbbbb", "bbbbbb"]),
        ("aaaaaaaaae\u0301b", ["aaaaaaaaa", "e\u0301b"]),
    ],
)
def test_a_cut_stands_where_a_reader_would_make_it(text: str, found: list[str]) -> None:
    assert pieces(text, 10) == found


def test_what_shows_nothing_is_not_sent() -> None:
    assert visible(["a", " \n", "b"]) == ["a", "b"]
    assert visible([" "]) == [EMPTY]


def test_a_long_argument_is_cut_and_a_long_text_is_read_at_once() -> None:
    said = verb_in("/link " + "x" * 100_000)
    assert said is not None
    assert len(said.argument) == MAX_ARGUMENT_CHARS
    assert verb_in("/" + "link" * 100_000) is None
