"""The settings of receiving channels as rules, and what their callables say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from in_loop import in_loop
from minutebook.domain.channels.allowlist import AllOf, AnyOf, Asked, Asks, ClaimValues, NativeIds, Open
from minutebook.domain.channels.messages import ChannelIdentity
from minutebook.infra.channels.rules import AllowCallables, rules_of
from minutebook.infra.settings import SettingsError
from minutebook.infra.settings_load import load

TELEGRAM = """
[channels.tg]
kind = "telegram"
token = "77:token"
inboundSecret = "telegram-secret-token"
agent = "echo"
"""

MODULE = """
import asyncio
import threading

seen = []
release = threading.Event()

def says(asked):
    seen.append(asked)
    return asked["claims"].get("word", ("none",))[0]

async def later(asked):
    await asyncio.sleep(0)
    return "allow"

def hangs(asked):
    release.wait(10)
    return "allow"

def raises(asked):
    raise LookupError("canary")

async def nested(asked):
    return later(asked)

def two(asked, more):
    return "allow"

words = "none"
"""

ANN = ChannelIdentity("acme", "tg", "7", {"email": ("ann@acme.example",)})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "rules_of_tests.py").write_text(MODULE)
    yield tmp_path
    module = sys.modules.pop("rules_of_tests", None)
    if module is not None:
        module.release.set()
    sys.path[:] = [each for each in sys.path if each != str(tmp_path)]


def rules(folder: Path, toml: str) -> AllowCallables:
    (folder / "minutebook.toml").write_text(toml)
    return AllowCallables(rules_of(load(folder, {})), folder, 0.1)


def test_rules_are_those_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "minutebook.toml").write_text(
        "[authorization]\nallowlist = { nativeIds = ['1'] }\n"
        + TELEGRAM
        + "requireLink = true\nacceptInGroup = 'all'\n"
        "conversationScope = 'per_user'\nbackground = true\nallowlist = { anyOf = ['inherit', { allOf = ['open',"
        " { python = 'm:f' }] }] }\n[channels.out]\nkind = 'telegram'\ntoken = '78:token'\n"
    )
    found = rules_of(load(tmp_path, {}))
    assert set(found) == {"tg"}
    made = found["tg"]
    assert made.allowlist == AnyOf((NativeIds(frozenset("1")), AllOf((Open(), Asks("m:f")))))
    assert (made.agent, made.require_link, made.accept, made.scope) == ("echo", True, "all", "per_user")
    assert (made.tells_errors, made.background) == (False, True)


def test_mail_may_be_asked_for_its_address(tmp_path: Path) -> None:
    (tmp_path / "minutebook.toml").write_text(
        "[channels.mail]\nkind = 'email'\ninboundSecret = 'relay'\nauthservId = 'mx.example'\nresponseTarget = 'none'\n"
        "allowlist = { claim = 'email', values = ['ann@acme.example'] }\n"
    )
    assert rules_of(load(tmp_path, {}))["mail"].allowlist == ClaimValues("email", frozenset({"ann@acme.example"}))


@in_loop
async def test_a_callable_is_asked_who_it_is(folder: Path) -> None:
    desk = rules(folder, TELEGRAM + "allowlist = { python = 'rules_of_tests:says' }\n")
    asks = Asks("rules_of_tests:says")
    assert await desk.ask(asks, Asked(ANN, {"word": ("deny",)})) == {"rules_of_tests:says": "deny"}
    assert sys.modules["rules_of_tests"].seen == [
        {
            "tenant": "acme",
            "channel": "tg",
            "nativeId": "7",
            "attributes": {"email": ["ann@acme.example"]},
            "claims": {"word": ["deny"]},
        }
    ] or sys.modules["rules_of_tests"].seen[0]["claims"] == {"word": ("deny",)}


@pytest.mark.parametrize(("name", "answer"), [("later", "allow"), ("hangs", None), ("raises", None), ("nested", None)])
@in_loop
async def test_what_is_late_or_fails_says_nothing(folder: Path, name: str, answer: str | None) -> None:
    desk = rules(folder, TELEGRAM + f"allowlist = {{ python = 'rules_of_tests:{name}' }}\n")
    full = f"rules_of_tests:{name}"
    assert await desk.ask(Asks(full), Asked(ANN)) == {full: answer}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rules_of_tests:two", "must take one argument"),
        ("rules_of_tests:words", "has no callable"),
        ("rules_of_tests:missing", "has no callable"),
        ("not_there:at_all", "cannot be imported"),
    ],
)
def test_authorization_misconfiguration(folder: Path, name: str, words: str) -> None:
    """A callable that there is not stops the start."""
    with pytest.raises(SettingsError, match=words):
        rules(folder, TELEGRAM + f"allowlist = {{ python = '{name}' }}\n")
