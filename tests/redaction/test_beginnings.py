"""The pattern of all beginnings of a pattern's matches, against languages that are small enough to be listed."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from minutebook.infra.redaction.linear import Pattern
from minutebook.infra.redaction.prefixes import UnsupportedPattern, beginnings_of

Language = tuple[str, frozenset[str]]
"""A pattern and every text that it matches."""

MOST_TEXTS = 300


def joined(one: Language, other: Language) -> Language:
    """One behind the other."""
    assume(len(one[1]) * len(other[1]) <= MOST_TEXTS)
    return one[0] + other[0], frozenset(map("".join, product(one[1], other[1])))


def either(one: Language, other: Language) -> Language:
    """One or the other."""
    return f"({one[0]}|{other[0]})", one[1] | other[1]


def repeated(one: Language, least: int, most: int) -> Language:
    """Between `least` and `most` times."""
    assume(len(one[1]) ** most <= MOST_TEXTS)
    texts = frozenset("".join(each) for count in range(least, most + 1) for each in product(one[1], repeat=count))
    sign = {(0, 1): "?", (2, 2): "{2}"}.get((least, most), f"{{{least},{most}}}")
    return f"{one[0]}{sign}" if len(one[0]) == 1 else f"(?:{one[0]}){sign}", texts


CHARS: list[Language] = [("a", frozenset("a")), ("b", frozenset("b")), ("[bc]", frozenset("bc"))]

languages = st.recursive(
    st.sampled_from(CHARS),
    lambda inner: st.one_of(
        st.builds(joined, inner, inner),
        st.builds(either, inner, inner),
        st.builds(repeated, inner, st.integers(0, 2), st.just(2)),
        st.builds(repeated, inner, st.just(0), st.just(1)),
    ),
    max_leaves=7,
)


@settings(max_examples=300, deadline=None)
@given(languages, st.text("abc", max_size=8))
def test_every_beginning_of_a_match_is_one_and_nothing_else_is(language: Language, other: str) -> None:
    pattern, texts = language
    beginnings = Pattern(f"(?:{beginnings_of(pattern)})")
    known = {text[:cut] for text in texts for cut in range(len(text) + 1)}
    assert all(beginnings.is_all(text.encode()) for text in known), pattern
    longer = {text + char for text in known for char in "abc"} | {other}
    assert not any(beginnings.is_all(text.encode()) for text in longer - known), pattern


@pytest.mark.parametrize(
    ("pattern", "text", "is_beginning"),
    [
        (r"\bab\b", "ab", True),
        (r"\bab\b", "a", True),
        (r"\bab\b", "b", False),
        (r"(?i)Ab", "aB", True),
        (r"(?:\b|\\n)ab", "\\", True),
        (r"(?:\b|\\n)ab", "\\na", True),
        ("é[ü-ÿ]{2}", "éü", True),
        (r"[\]x]y", "]", True),
        (r"\x{E9}\p{Lu}", "é", True),
        (r"a{0}b", "a", False),
        ("a(?:bc)*d", "abcb", True),
        ("a(?:bc)+d", "abcd", True),
        ("a(?:bc)+d", "ad", False),
        ("a[bc]*?d", "abcbc", True),
        ("a[bc]{2,}d", "abcbcb", True),
        ("a[bc]{2,}d", "abd", False),
    ],
)
def test_boundaries_flags_and_escapes(pattern: str, text: str, *, is_beginning: bool) -> None:
    assert Pattern(f"(?:{beginnings_of(pattern)})").is_all(text.encode()) is is_beginning


REFUSED = ["^a", "a$", r"\Aa", r"a\z", r"a\Bb", r"\Qa\E", "(?<!a)b", "a(?i)b", "(?m)a", "*a", "a**", "(a", "a)", "[a"]


@pytest.mark.parametrize("pattern", [*REFUSED, "(" * 60 + "a" + ")" * 60, r"a\1"])
def test_what_rules_may_not_use_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern):
        beginnings_of(pattern)
