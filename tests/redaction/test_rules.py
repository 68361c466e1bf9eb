"""The shipped rules do to their examples what those say, alone and together, and a second time nothing."""

from __future__ import annotations

import json
import math

import pytest
from minutebook.infra.redaction.engine import Redactor
from minutebook.infra.redaction.rules import (
    CompiledRule,
    Rule,
    RuleError,
    check_examples,
    check_rules,
    compile_rules,
    entropy,
    marked,
    parse_rules,
    shipped_rules,
)

RULES = shipped_rules()
REDACTOR = Redactor(RULES)

POSITIVE = [pytest.param(rule, each, id=f"{rule.id} {n}") for rule in RULES for n, each in enumerate(rule.positive)]
NEGATIVE = [pytest.param(each, id=f"{rule.id} {n}") for rule in RULES for n, each in enumerate(rule.negative)]

NAMED = {
    *("github-token", "github-fine-grained-token", "gitlab-token", "aws-access-key-id", "aws-secret-access-key"),
    *("google-api-key", "slack-token", "slack-webhook", "stripe-key", "openai-key", "anthropic-key", "npm-token"),
    *("pypi-token", "azure-key", "url-password", "jwt", "private-key", "authorization-header"),
    *("password-assignment", "secret-assignment"),
}
"""What rooms.md asks for at least."""


def plain(example: str) -> str:
    """An example's text."""
    return marked(example)[0].decode()


def test_no_kind_that_was_asked_for_is_missing() -> None:
    assert {rule.id for rule in RULES} >= NAMED


@pytest.mark.parametrize("rule", [pytest.param(each, id=each.id) for each in RULES])
def test_each_rule_does_what_its_examples_say(rule: Rule) -> None:
    assert rule.negative, "a rule without a negative example was never asked what it must leave alone"
    check_examples(CompiledRule(rule, 1))


@pytest.mark.parametrize(("rule", "example"), POSITIVE)
def test_all_rules_together_leave_nothing_of_a_secret_and_a_second_time_change_nothing(
    rule: Rule, example: str
) -> None:
    text, spans = marked(example)
    once, redactions = REDACTOR.text(text.decode())
    assert redactions
    for start, end in spans:
        assert text[start:end].decode() not in once
    assert REDACTOR.text(once) == (once, [])
    assert REDACTOR.text(f"{once} {once}") == (f"{once} {once}", [])


@pytest.mark.parametrize("example", NEGATIVE)
def test_what_one_rule_leaves_alone_no_other_takes(example: str) -> None:
    assert REDACTOR.text(plain(example)) == (plain(example), [])


MARKERS = ["gitleaks:allow", "pragma: allowlist secret", "nosec", "nosemgrep", "trufflehog:ignore", "noqa"]


@pytest.mark.parametrize("marker", MARKERS)
def test_a_marker_that_asks_to_skip_is_ignored(marker: str) -> None:
    token = "ghp_" + "aB3" * 12
    assert REDACTOR.text(f"token = {token}  # {marker}") == (
        f"token = [REDACTED:github-token]  # {marker}",
        ["github-token"],
    )


def test_a_mask_that_somebody_types_is_no_redaction() -> None:
    typed = "he wrote [REDACTED:jwt] and password=[REDACTED:password-assignment]"
    assert REDACTOR.text(typed) == (typed, [])


PLAIN = [
    "commit 3f786850e387550fdab836ed7e6dc881de23001b fixes it",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV and 550e8400-e29b-41d4-a716-446655440000",
    "call_abcdefghijklmnopqrstuvwx toolu_01A09q90qw90lq917835lq9",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg",
    "prompt_tokens: 1234, completion_tokens: 5678, total_tokens=6912",
    "git@forge.example:a/b.git https://forge.example/a/b/pull/12#discussion_r1234567890",
    "def authenticate(user: str, password: str, *, token: str | None = None) -> Session:",
    "Passwords must have 12 characters; see the secret santa list, and the bearer of this note.",
    "🙂 größer als — 中文文本",
    "-----BEGIN CERTIFICATE-----",
]


@pytest.mark.parametrize("text", PLAIN)
def test_text_without_secrets_comes_back_as_it_is(text: str) -> None:
    assert REDACTOR.text(text) == (text, [])
    assert REDACTOR.value({"text": text, "list": [text, {"a": text}]}) == (
        {"text": text, "list": [text, {"a": text}]},
        [],
    )


@pytest.mark.parametrize(("rule", "example"), POSITIVE)
def test_masking_inside_a_json_text_keeps_it_json(rule: Rule, example: str) -> None:
    text = plain(example)
    for whole in (json.dumps({"a": text, "b": 1}), json.dumps([json.dumps([text, "z"])])):
        json.loads(REDACTOR.text(whole)[0])


def test_entropy_is_shannons() -> None:
    assert entropy(b"aaaa") == 0
    assert entropy(b"abcd") == 2
    assert math.isclose(entropy(b"aab"), -(2 / 3 * math.log2(2 / 3) + 1 / 3 * math.log2(1 / 3)))


@pytest.mark.parametrize(("value", "is_taken"), [("aB3dE5gH7jK9mN1p", True), ("aB3aB3aB3aB3aB3a", False)])
def test_the_threshold_of_entropy_decides(value: str, *, is_taken: bool) -> None:
    assert bool(REDACTOR.text(f"api_key={value}")[1]) is is_taken


GOOD = """
[[rules]]
id = "corp"
description = "ours"
keywords = ["corp_"]
pattern = "corp_[a-z]{4}"
positive = ["a corp_abcd"]
negative = ["corp_"]
"""


def refusal(old: str, new: str) -> str:
    """Why the good rule is refused with that in it."""
    assert old in GOOD
    with pytest.raises(RuleError) as caught:
        check_rules(parse_rules(GOOD.replace(old, new), "x.toml"))
    return str(caught.value)


def test_a_good_rule_is_taken() -> None:
    rules = parse_rules(GOOD, "x.toml")
    check_examples(compile_rules([*rules, *RULES])[0])
    assert Redactor([*rules, *RULES]).text("a corp_abcd") == ("a [REDACTED:corp]", ["corp"])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("corp_[a-z]{4}", "corp_(", ["corp", "cannot be used", "missing )"]),
        ("corp_[a-z]{4}", "corp_[", ["corp", "cannot be used"]),
        ("corp_[a-z]{4}", "^corp_[a-z]{4}", ["corp", "anywhere in a text"]),
        ("corp_[a-z]{4}", "(?=corp_)", ["corp", "cannot be used"]),
        ("corp_[a-z]{4}", "corp_[a-z]{4,5000}", ["corp", "repetition"]),
        ("corp_[a-z]{4}", "(?:corp_[a-z]{4})?", ["corp", "empty text"]),
        ("corp_[a-z]{4}", "corp_[0-9]{4}", ["corp", "positive example 1"]),
        ('negative = ["corp_"]', 'negative = ["corp_zzzz"]', ["corp", "negative example 1"]),
        ('"a corp_abcd"', '"a corp_«abcd»"', ["corp", "positive example 1", "«"]),
        ('keywords = ["corp_"]', 'keywords = ["Corp_"]', ["corp", "keyword"]),
        ('id = "corp"', 'id = "jwt"', ["jwt", "taken"]),
        ('id = "corp"', 'id = "configured-secret"', ["configured-secret", "taken"]),
        ('id = "corp"', 'id = "Corp"', ["x.toml", "id"]),
        ('keywords = ["corp_"]', "keywords = []", ["x.toml", "keywords"]),
        ('positive = ["a corp_abcd"]\n', "", ["x.toml", "positive"]),
        ('negative = ["corp_"]', 'negatives = ["corp_"]', ["x.toml", "negatives"]),
        ("[[rules]]", "[[rules", ["x.toml", "not TOML"]),
    ],
)
def test_a_bad_rule_is_refused_by_name(old: str, new: str, words: list[str]) -> None:
    said = refusal(old, new)
    assert all(word in said for word in words), said
