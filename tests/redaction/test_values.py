"""JSON values: every string and every member name at any depth, and nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minutebook.domain.redaction import KeyCollision
from minutebook.infra.redaction.engine import Redactor
from minutebook.infra.redaction.rules import shipped_rules

REDACTOR = Redactor(shipped_rules())
TOKEN = "ghp_" + "aB3" * 12
JWT = "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiJodW1hbjphIn0." + "c2lnbmF0dXJlLWluLWJhc2U2NA"


def deep(value: Any, levels: int) -> Any:
    """The value under so many lists and objects."""
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("levels", [0, 1, 2, 40, 63])
def test_strings_at_any_depth(levels: int) -> None:
    fresh, redactions = REDACTOR.value(deep(f"x {TOKEN} y {JWT}", levels))
    assert fresh == deep("x [REDACTED:github-token] y [REDACTED:jwt]", levels)
    assert redactions == ["github-token", "jwt"]


def test_member_names_are_texts_too() -> None:
    assert REDACTOR.value({"a": {f"for {TOKEN}": 1, "b": 2}}) == (
        {"a": {"for [REDACTED:github-token]": 1, "b": 2}},
        ["github-token"],
    )


def test_the_rules_are_listed_once_and_sorted() -> None:
    assert REDACTOR.value([JWT, TOKEN, {"a": JWT}, TOKEN])[1] == ["github-token", "jwt"]


@pytest.mark.parametrize(
    "members",
    [
        {TOKEN: 1, TOKEN[:-1] + "4": 2},
        {TOKEN: 1, "[REDACTED:github-token]": 2},
        {"[REDACTED:github-token]": 2, TOKEN: 1},
    ],
)
@pytest.mark.parametrize(("place", "path"), [(lambda m: m, "$"), (lambda m: {"a": [0, m]}, "$.a[1]")])
def test_names_that_become_one_are_a_collision(members: dict[str, int], place: Any, path: str) -> None:
    with pytest.raises(KeyCollision) as caught:
        REDACTOR.value(place(members))
    assert caught.value.attributes["errors"][0]["path"] == path
    assert caught.value.code == "invalid"


def test_the_path_of_a_collision_holds_no_secret() -> None:
    with pytest.raises(KeyCollision) as caught:
        REDACTOR.value({TOKEN: {TOKEN: 1, TOKEN[:-1] + "4": 2}})
    assert caught.value.attributes["errors"][0]["path"] == "$.[REDACTED:github-token]"
    assert TOKEN not in str(caught.value)


def test_a_member_name_says_what_its_value_is() -> None:
    value = {
        "password": "kq9!xv2Z",
        "Authorization": "Bearer mF_9.B5f",
        "headers": {"authorization": ["Basic YWxhZGRpbjpvcGVu"]},
        "apiKey": "aB3dE5gH7jK9mN1p",
        "name": "kq9!xv2Z",
        "token": "changeme",
        "max_tokens": 4096,
    }
    assert REDACTOR.value(value) == (
        {
            "password": "[REDACTED:password-assignment]",
            "Authorization": "Bearer [REDACTED:authorization-header]",
            "headers": {"authorization": ["Basic [REDACTED:authorization-header]"]},
            "apiKey": "[REDACTED:secret-assignment]",
            "name": "kq9!xv2Z",
            "token": "changeme",
            "max_tokens": 4096,
        },
        ["authorization-header", "password-assignment", "secret-assignment"],
    )


def test_json_within_json_within_json() -> None:
    for levels in range(4):
        text: Any = {"password": "kq9!xv2Z", "t": TOKEN, "h": f"x\n{TOKEN}", "a": "x\nAKIA" + "IOSFODNN7EXAMPLE"}
        for _ in range(levels):
            text = json.dumps(text)
        shown = json.dumps(REDACTOR.value({"args": text})[0])
        for secret in ("kq9!xv2Z", TOKEN, "IOSFODNN7EXAMPLE"):
            assert secret not in shown, (levels, shown)


def test_the_value_itself_is_not_changed() -> None:
    value = {"a": [TOKEN, {TOKEN: TOKEN}], "b": None, "c": 1.5, "d": True}
    before = copy.deepcopy(value)
    fresh, _ = REDACTOR.value(value)
    assert value == before
    assert (fresh["b"], fresh["c"], fresh["d"]) == (None, 1.5, True)


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-9, 9)
        | st.text(max_size=5)
        | st.sampled_from([TOKEN, JWT, f"k={TOKEN}"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=12,
    )
)
def test_no_secret_is_left_and_all_else_stays(value: Any) -> None:
    fresh, redactions = REDACTOR.value(value)
    shown = json.dumps(fresh)
    assert TOKEN not in shown
    assert JWT not in shown
    assert bool(redactions) == ("[REDACTED:" in shown)
    expected = json.dumps(value).replace(TOKEN, "[REDACTED:github-token]").replace(JWT, "[REDACTED:jwt]")
    assert json.loads(shown) == json.loads(expected)


def test_what_was_cut_for_an_answer_shows_no_beginning_of_a_secret() -> None:
    assert REDACTOR.cut_text(f"$.{JWT[:30]}…: no such field") == "$.…: no such field"
    assert REDACTOR.cut_text(f"a {TOKEN[:20]}…") == "a …"
    assert REDACTOR.cut_text(f"a {TOKEN} b") == "a [REDACTED:github-token] b"
    assert REDACTOR.cut_text("nothing to hide … here") == "nothing to hide … here"
