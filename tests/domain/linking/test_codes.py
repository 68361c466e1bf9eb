"""One-time codes as people type them, and how often somebody may be wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linking_samples import NOW
from minutebook.domain.linking.codes import ALPHABET, MAX_SEEN, MAX_WRONG, Wrongs, code_of, codes_in, read_code

HOUR = timedelta(hours=1)


@given(st.integers(0, 2**40 - 1))
def test_a_code_is_read_however_it_is_typed(entropy: int) -> None:
    code = code_of(entropy)
    assert len(code) == 8
    assert set(code) <= set(ALPHABET)
    typed = code.replace("0", "o").replace("1", "l")
    for form in (code, typed.lower(), f" {code[:4]}-{code[4:]} ", f"{code[:4]} {code[4:]}", code.replace("1", "I")):
        assert read_code(form) == code
        assert codes_in(f"my code:{form}.") == [code]


@given(st.integers(0, 2**40 - 1), st.integers(0, 2**40 - 1))
def test_codes_differ_where_their_entropy_does(one: int, other: int) -> None:
    assert (code_of(one) == code_of(other)) == (one == other)


@pytest.mark.parametrize(
    "text", ["", "ABCD234", "ABCD23456", "ABCD234U", "ABCD234ß", "ABCD234\u0131", "A" * 8 + "-" * 30]
)
def test_what_is_no_code_is_none(text: str) -> None:
    assert read_code(text) is None


def test_codes_are_found_among_words_and_no_more_than_so_many() -> None:
    assert "ABCD2345" in codes_in("meet ABCD 2345 here")
    assert codes_in("ABCD2345 abcd-2345 xABCD2345") == ["ABCD2345"]
    assert len(codes_in(" ".join(code_of(n * 7919) for n in range(500)))) == MAX_SEEN


@given(st.text(max_size=300))
def test_any_text_is_searched(text: str) -> None:
    assert all(read_code(code) == code for code in codes_in(text))


def test_five_wrong_codes_make_an_end_wait_an_hour() -> None:
    wrongs, now = Wrongs(), NOW
    for _ in range(MAX_WRONG):
        assert not wrongs.is_blocked(now)
        wrongs = wrongs.another(now)
        now += timedelta(minutes=1)
    assert wrongs.is_blocked(now)
    assert wrongs.another(now) == wrongs, "what fails meanwhile makes it no longer"
    now += HOUR
    assert not wrongs.is_blocked(now)
    assert wrongs.another(now).count == 1


@given(st.lists(st.integers(1, 5000), min_size=20, max_size=200))
def test_nobody_guesses_more_than_five_times_in_an_hour(gaps: list[int]) -> None:
    wrongs, now = Wrongs(), NOW
    tried = []
    for gap in gaps:
        now += timedelta(seconds=gap)
        if not wrongs.is_blocked(now):
            tried.append(now)
            wrongs = wrongs.another(now)
    for n, begin in enumerate(tried):
        assert sum(begin <= each < begin + HOUR for each in tried[n:]) <= MAX_WRONG
