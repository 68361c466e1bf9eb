"""What was redacted once is redacted for good: another time, of a whole text or of a stream, changes nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from minutebook.domain.redaction import KeyCollision
from minutebook.infra.redaction.engine import Redactor
from minutebook.infra.redaction.known import forms_of
from minutebook.infra.redaction.rules import Rule, marked, mask, shipped_rules
from minutebook.infra.redaction.stream import MAX_HELD_BYTES, MAX_LOOKS

SECRET = 's3cr3t/+va"l\\ue==9'
REDACTOR = Redactor(shipped_rules(), forms_of(SECRET))
TOKEN = "ghp_" + "aB3" * 12
KEY = "dapi" + "0123456789abcdef" * 2
SENT = "SG" + ".AbCdEfGhIjKlMnOpQrStUv.AbCdEfGhIjKlMnOpQrStUvWxYz"

EXAMPLES = [marked(each)[0].decode() for rule in shipped_rules() for each in (*rule.positive, *rule.negative)]
JOINTS = [
    *(" ", "=", ":", '"', "\\n", "@", "@h", "/", "password=", "://u:", "token: ", "\u200b", "a", "\n", "-", "_", "é"),
    *("%3D", "%", "%2", "[", "]", "[REDACTED:", mask("jwt"), mask("github-token"), "\ud83d", SECRET),
]

texts = st.lists(
    st.one_of(
        st.sampled_from(EXAMPLES),
        st.sampled_from(JOINTS),
        st.tuples(st.sampled_from(EXAMPLES), st.integers(0, 60)).map(lambda pair: pair[0][: pair[1]]),
    ),
    max_size=7,
).map("".join)


def streamed(text: str, cuts: list[int]) -> str:
    """The text in those pieces through a stream."""
    stream = REDACTOR.stream()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return "".join(stream.feed(text[start:end]) for start, end in pairwise(places)) + stream.finish()


@settings(max_examples=250, deadline=None)
@given(texts, st.lists(st.integers(0, 400), max_size=6))
@example(KEY + SENT, [])
@example(f"://u:a{SECRET}b@host", [3, 9])
@example(f"://u:{mask('jwt')}{mask('jwt')}@host", [9, 20])
@example("//registry.example%2F%3A_authToken%3D0b2a7c1e-6c1f-4c1b-9a55-2f6b7c8d9e0f", [20, 33])
def test_a_second_time_changes_nothing_however_the_text_was_cut(text: str, cuts: list[int]) -> None:
    once = REDACTOR.text(text)[0]
    assert REDACTOR.text(once)[0] == once
    assert streamed(text, cuts) == once
    assert streamed(once, cuts) == once


values = st.recursive(
    st.sampled_from([1, None, TOKEN, "kq9!xv2Z", f"x {KEY}{SENT}", "plain"]) | texts.filter(str.isprintable),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["password", "text", "apiKey", f"token {TOKEN}", TOKEN]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(values)
@example({f"password {TOKEN}": {"a": "kq9!xv2Z"}})
def test_a_value_that_was_redacted_comes_back_as_it_is(value: Any) -> None:
    try:
        once, _ = REDACTOR.value(value)
    except KeyCollision:
        return
    assert REDACTOR.value(once)[0] == once


GLUED = f"://u:a{SECRET}b@host"
"""Of a password in a URL a known secret is a part, and has characters that no such password has."""


def test_what_comes_to_light_beside_a_mask_goes_too() -> None:
    assert REDACTOR.text(GLUED) == ("://u:[REDACTED:url-password]@host", ["configured-secret", "url-password"])


def test_a_long_text_is_looked_at_again_too() -> None:
    text = f"{GLUED} " + "plain words " * (MAX_HELD_BYTES // 10)
    once, redactions = REDACTOR.text(text)
    assert once.startswith("://u:[REDACTED:url-password]@host plain")
    assert redactions == ["configured-secret", "url-password"]
    assert REDACTOR.text(once) == (once, [])
    assert streamed(text, [10, 40, 70_000]) == once


# Masks

OWN = Rule(id="own", description="ours", keywords=("RED", "own"), pattern="RED[A-Z]+|own", positive=("own",))


def test_a_rule_that_reads_its_own_masks_comes_to_an_end() -> None:
    redactor = Redactor([OWN])
    assert redactor.text("my own REDS") == ("my [REDACTED:own] [REDACTED:own]", ["own"])
    assert redactor.text("[REDACTED:own]") == ("[REDACTED:own]", [])


def link(name: str, pattern: str) -> Rule:
    """A rule without an example of its own."""
    return Rule(id=name, description="a link", keywords=(name, "cut"), pattern=pattern, positive=("none",))


def test_what_reaches_into_a_mask_takes_all_of_it() -> None:
    redactor = Redactor([OWN, link("into", r"cut \[RED")])
    assert redactor.text("a cut [REDACTED:own] b") == ("a [REDACTED:into] b", ["into"])


@pytest.mark.parametrize("inside", [KEY, f"x-{KEY}", TOKEN.lower()])
def test_a_mask_of_no_rule_hides_nothing(inside: str) -> None:
    """Whoever types one around a secret does not keep it: only masks of known rules are masks."""
    assert inside not in REDACTOR.text(f"[REDACTED:{inside}]")[0] or inside == TOKEN.lower()
    assert "hunter2" not in REDACTOR.text("postgresql://u:[REDACTED:hunter2]@host")[0]


def test_what_always_finds_something_more_goes_from_there_to_its_end() -> None:
    """A text that only comes to light look by look: bounded, and the same in chunks."""
    chain = [link("link0", "link0")]
    chain += [link(f"link{n}", rf"\[REDACTED:link{n - 1}\] link{n}") for n in range(1, MAX_LOOKS + 3)]
    redactor = Redactor(chain)
    text = "so " + " ".join(f"link{n}" for n in range(len(chain))) + " and on"
    once, redactions = redactor.text(text)
    assert once == f"so [REDACTED:link{MAX_LOOKS - 1}]"
    assert redactions == [f"link{n}" for n in range(MAX_LOOKS)]
    stream = redactor.stream()
    assert "".join(stream.feed(char) for char in text) + stream.finish() == once
    assert stream.redactions == redactions
