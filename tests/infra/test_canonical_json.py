"""The canonical form is RFC 8785's, byte for byte, and the same for a value that has been in the log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st
from minutebook.infra.canonical_json import EXACT, canonical

TEXTS = st.text(st.characters(codec="utf-8")) | st.text('"\\\n\t\x00\x1f\x7f\u2028é\ue000𐀀x')
NUMBERS = st.integers(-EXACT + 1, EXACT - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)
LARGE = [10**15 + 1, EXACT, EXACT + 1, 2**60, 2**63, 10**20, 10**21, 10**22 + 1, 10**300, 7 * 10**400]
FLOATS = [0.0, -0.0, 1.0, 1e16, 1.5e16, 2.0**60, 1e20, 1e21, 1.25e21, 1e300, 1e-6, 1e-7, 5e-324, 0.1, -1e22, 1 / 3]


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_it_is_the_libraries_form_byte_for_byte(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)
    assert canonical(json.loads(canonical(value))) == canonical(value)


def test_names_are_ordered_by_utf_16_and_a_tuple_is_a_list() -> None:
    names = {"\ue000": 1, "𐀀": 2, "é": 3, "b": (4, (), {}), "a": True}
    assert canonical(names) == '{"a":true,"b":[4,[],{}],"é":3,"𐀀":2,"\ue000":1}'.encode()


@settings(max_examples=200, deadline=None)
@given(st.integers() | st.sampled_from(LARGE), st.integers())
def test_numbers_that_differ_have_forms_that_differ(one: int, other: int) -> None:
    for number in (other, one + 1, -one):
        assert (canonical(one) == canonical(number)) == (one == number)


def test_a_number_keeps_its_form_in_the_log(database: Any) -> None:
    """The log writes 1e20 as an integer of 21 digits."""
    values = [*FLOATS, *(number for number in LARGE if number < 2**64), *(float(number) for number in LARGE[:-1])]
    with database.connect("app") as app:
        text = msgspec.json.encode(values).decode()
        row = app.execute("SELECT (%s::jsonb)::text", (text,)).fetchone()
    stored = msgspec.json.decode(row[0])
    assert [canonical(value) for value in stored] == [canonical(value) for value in values]
    assert any(type(value) is not type(before) for value, before in zip(stored, values, strict=True))


@pytest.mark.parametrize(
    "value",
    [
        "\ud800",
        {"\udfff": 1},
        [1.5, "\udc00"],
        {"\ue000": "\udc00"},
        float("nan"),
        float("-inf"),
        [b"x"],
        {1, 2},
        object(),
    ],
    ids=range(9),
)
def test_what_has_no_form_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        canonical(value)


def test_a_long_text_costs_a_fraction_of_what_the_library_takes() -> None:
    """It is done on the event loop, for every message."""
    value = {"text": 'say "grün"\n🌱\\' * 2460}

    def fastest(work: Callable[[Any], object]) -> float:
        times: list[float] = []
        for _ in range(10):
            began = time.perf_counter()
            work(value)
            times.append(time.perf_counter() - began)
        return min(times)

    assert fastest(canonical) < fastest(rfc8785.dumps) / 3
