"""What a rule finds, it finds in Base64 and in a URL too; and in ordinary text it finds nothing (field fault B65)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from minutebook.infra.redaction.engine import Redactor
from minutebook.infra.redaction.rules import Rule, marked, mask, shipped_rules
from verbs import RUNS

REDACTOR = Redactor(shipped_rules())
TOKEN = "ghp_" + "aB3" * 12

NOT_IN_BASE64 = {"azure-key 3"}
"""Examples whose only keyword, Q~, is too short to be told from noise there (docs/redaction.md)."""

POSITIVE = [pytest.param(rule, n, id=f"{rule.id} {n}") for rule in shipped_rules() for n in range(len(rule.positive))]


IN_BASE64 = [each for each in POSITIVE if each.id not in NOT_IN_BASE64]


@pytest.mark.parametrize(("rule", "number"), IN_BASE64)
def test_each_example_is_found_in_base64_at_each_alignment(rule: Rule, number: int) -> None:
    text, secrets = marked(rule.positive[number])
    for before in (b"", b" ", b"a "):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            run = encode(before + text + b" and more").decode()
            shown, redactions = REDACTOR.text(f"see {run.rstrip('=')}, then")
            assert redactions
            assert shown.startswith("see [REDACTED:")
            assert shown.endswith("], then")
            for start, end in secrets:
                assert encode(text[start:end]).decode()[:12] not in shown


@pytest.mark.parametrize(("rule", "number"), POSITIVE)
def test_each_example_is_found_with_its_percent_escapes(rule: Rule, number: int) -> None:
    text, secrets = marked(rule.positive[number])
    whole = quote(text, safe="")
    for form in (whole, quote(text), re.sub("%..", lambda found: found[0].lower(), whole)):
        shown, redactions = REDACTOR.text(f"https://h.example/?q={form}")
        assert redactions
        for start, end in secrets:
            assert quote(text[start:end], safe="") not in shown


def test_only_the_escaped_secret_goes() -> None:
    assert REDACTOR.text("a=1&password%3Dkq9%21xv2Z%20b%3D2") == (
        "a=1&password%3D[REDACTED:password-assignment]%20b%3D2",
        ["password-assignment"],
    )
    assert REDACTOR.text("dsn=postgresql%3A%2F%2Fapp%3Ahunter2%40db.example%2Fm")[0] == (
        "dsn=postgresql%3A%2F%2Fapp%3A[REDACTED:url-password]%40db.example%2Fm"
    )


def test_a_run_of_base64_goes_whole_and_what_it_is_glued_to_with_it() -> None:
    run = base64.b64encode(f"user:{TOKEN}\n".encode()).decode()
    assert REDACTOR.text(f"Basic {run}.")[0] == "Basic [REDACTED:github-token]."
    assert REDACTOR.text(f"k=/{run} {run}")[0] == "k=[REDACTED:github-token] [REDACTED:github-token]"
    assert REDACTOR.value({"a": [run]}) == ({"a": ["[REDACTED:github-token]"]}, ["github-token"])
    assert REDACTOR.value({run: 1})[0] == {mask("github-token"): 1}


def test_base64_of_something_else_stays() -> None:
    texts = ["a plain sentence that speaks of a password and of ghp_ tokens", "\0\1\2" * 30, "https://a.example/b?c=d"]
    for text in (base64.b64encode(each.encode()).decode() for each in texts):
        assert REDACTOR.text(f"see {text}") == (f"see {text}", [])


def strings(value: Any) -> Iterator[str]:
    """Every string and member name of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


@pytest.mark.skipif(not RUNS.is_dir(), reason="the recorded runs (../shared/data/agent-runs) are not here")
def test_recorded_runs_come_through_byte_by_byte() -> None:
    """The negative corpus: what agents really read and write holds no secret, in any dress."""
    seen = 0
    for path in sorted(RUNS.glob("*.traj")):
        run = json.loads(path.read_text("utf-8"))
        assert REDACTOR.value(run) == (run, []), path.name
        for text in strings(run):
            seen += len(text)
            assert REDACTOR.text(text) == (text, []), path.name
    assert seen > 500_000
