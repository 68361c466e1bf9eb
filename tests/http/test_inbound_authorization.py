"""Who may speak over a channel, over a real socket: by native ids, by verified claims, by default nobody."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from channel_scenes import whsec
from inbound_scenes import Desk, inbound_desk
from link_world import Browser, LinkWorld
from link_world import config as link_config
from oidc_provider import OidcProvider
from outside import serving

BLAND = "not available to you"
GROUP = -200
ASKS, FIRST, LINKED, CLAIM = whsec("a"), whsec("f"), whsec("l"), whsec("c")

MODULE = """
import time

def may_write(asked):
    who = asked["nativeId"]
    if who == "slow":
        time.sleep(3)
    if who == "broken":
        raise LookupError("canary of the callable")
    return {"allowed": "allow", "denied": "deny", "abstained": "abstain", "yes": True, "true": "ALLOW"}.get(who)
"""

MORE = f"""
[channels.asks]
kind = "webhook"
tenant = "acme"
inboundSecret = "{ASKS}"
allowlist = {{{{ python = "allowlist_of_tests:may_write" }}}}
agent = "echo"

[channels.first]
kind = "webhook"
tenant = "acme"
url = "{{url}}/first"
secret = "{whsec("q")}"
inboundSecret = "{FIRST}"
allowLoopback = true
requireLink = true
allowlist = "open"
agent = "echo"

[channels.linked]
kind = "webhook"
tenant = "acme"
inboundSecret = "{LINKED}"
allowlist = {{{{ allOf = [{{{{ nativeIds = ["ann", "bob"] }}}}, {{{{ anyOf = ["inherit", "open"] }}}}] }}}}
agent = "echo"
"""

CLAIMED = f"""
[channels.claimed]
kind = "webhook"
tenant = "acme"
url = "{{url}}/claimed"
secret = "{whsec("s")}"
inboundSecret = "{CLAIM}"
allowLoopback = true
allowlist = {{{{ claim = "team", values = ["ops"] }}}}
agent = "echo"
"""


@pytest.fixture(scope="module")
def desk(new_data_dir: Callable[[], Path]) -> Iterator[Desk]:
    folder = new_data_dir()
    (folder / "allowlist_of_tests.py").write_text(MODULE)
    with inbound_desk(folder, more=MORE) as made:
        yield made
        assert "canary" not in made.server.logs()
        assert "Traceback" not in made.server.logs()


def outcome(desk: Desk, sender: str, name: str, secret: str, text: str = "hello") -> tuple[str, str]:
    """What a message comes to, and why."""
    answer = desk.hook(text, sender, name=name, secret=secret)
    assert answer.status_code == 202, answer.text
    event = desk.decided(answer.json()["id"])
    assert event["outcome"] == answer.json()["outcome"]
    return event["outcome"], event["reason"]


def test_authorization_native_ids(desk: Desk) -> None:
    """On every platform its own ids, exactly; each message anew."""
    desk.telegram("let in")
    assert desk.newest("tg")["outcome"] == "accepted"
    assert "details" not in desk.newest("tg")
    for user in (8, 77):
        desk.telegram("kept out", user=user)
        assert (desk.newest("tg")["outcome"], desk.newest("tg")["reason"]) == ("denied", "not_allowed")
    desk.slack("let in")
    assert desk.newest("sl")["outcome"] == "accepted"
    desk.slack("kept out", user="u7", chat="D9")
    assert desk.newest("sl")["outcome"] == "denied"
    assert outcome(desk, "ann", "linked", LINKED) == ("accepted", "allowed")
    assert outcome(desk, "eve", "linked", LINKED) == ("denied", "not_allowed")
    assert "conversation" not in desk.newest("linked"), "nothing is begun for who is kept out"


def test_authorization_default_deny(desk: Desk) -> None:
    """Who is not let in hears one bland sentence, once a day, and in a group nothing."""
    for text in ("hello", "/status", "/link", "/new", "/start"):
        desk.telegram(text, user=66)
        assert desk.newest("tg")["outcome"] == "denied"
    assert BLAND in desk.platforms.told("66", BLAND)
    desk.telegram("@minute_bot hello", user=67, chat=GROUP, entities=[{"type": "mention", "offset": 0, "length": 11}])
    event = desk.newest("tg")
    assert (event["outcome"], event["reason"], event["isGroup"]) == ("denied", "not_allowed", True)
    assert event["details"] == "before deny, after none", "for the audit log alone"
    desk.telegram("hello", user=67)
    desk.platforms.told("67", BLAND)
    assert desk.platforms.texts(str(GROUP)) == []
    assert len(desk.platforms.texts("66")) == 1
    assert desk.rows("SELECT count(*) FROM minutebook.ends WHERE native_id IN ('66', '67')") == [(0,)]


@pytest.mark.parametrize(
    ("sender", "expected"),
    [
        ("allowed", ("accepted", "allowed")),
        ("denied", ("denied", "not_allowed")),
        ("abstained", ("denied", "abstained")),
        ("yes", ("denied", "not_allowed")),
        ("true", ("denied", "not_allowed")),
        ("nobody", ("denied", "not_allowed")),
        ("broken", ("denied", "not_allowed")),
        ("slow", ("denied", "not_allowed")),
    ],
)
def test_a_callable_that_does_not_say_yes_says_no(desk: Desk, sender: str, expected: tuple[str, str]) -> None:
    assert outcome(desk, sender, "asks", ASKS) == expected


def test_who_must_link_first_is_told_so_and_may_do_nothing_else(desk: Desk) -> None:
    assert outcome(desk, "unlinked", "first", FIRST) == ("link_required", "no_link")
    assert outcome(desk, "unlinked", "first", FIRST, "/status") == ("link_required", "no_link")
    desk.platforms.told("unlinked", "send /link")
    assert outcome(desk, "unlinked", "first", FIRST, "/link") == ("accepted", "allowed")
    desk.platforms.told("unlinked", "Your code is")


@pytest.mark.parametrize(
    ("text", "entities", "accepted"),
    [
        ("among ourselves", [], False),
        ("@minute_bot hello", [{"type": "mention", "offset": 0, "length": 11}], True),
        ("/status", [{"type": "bot_command", "offset": 0, "length": 7}], False),
        ("/status@minute_bot", [{"type": "bot_command", "offset": 0, "length": 18}], True),
    ],
)
def test_in_a_group_the_agent_is_meant_where_it_is_named(
    desk: Desk, text: str, entities: list[dict[str, object]], accepted: bool
) -> None:
    desk.telegram(text, chat=GROUP - 1, entities=entities)
    event = desk.newest("tg")
    assert event["outcome"] == ("accepted" if accepted else "ignored")
    assert event["reason"] == ("allowed" if accepted else "not_addressed")


def test_a_group_and_a_private_chat_are_two_conversations_of_one_person(desk: Desk) -> None:
    desk.telegram("in private")
    private = desk.newest("tg")
    named = [{"type": "mention", "offset": 0, "length": 11}]
    desk.telegram("@minute_bot in a group", chat=GROUP - 2, entities=named)
    group = desk.newest("tg")
    assert private["account"] == group["account"]
    assert private["conversation"] != group["conversation"]
    assert desk.asked(group["conversation"]) == ["in a group"]


def test_every_decision_counts(desk: Desk) -> None:
    desk.telegram("hello")
    text = desk.http.get("/metrics").text
    assert 'minutebook_authz_decision_total{channel="tg",outcome="accepted",reason="allowed"}' in text


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("", "nobody could write"),
        ('allowlist = { claim = "group", values = ["x"] }', "which nothing verifies"),
        ('allowlist = { python = "not_there:at_all" }', "cannot be imported"),
    ],
)
def test_authorization_misconfiguration(tmp_path: Path, toml: str, words: str) -> None:
    """What would silently let everybody or nobody in stops the start."""
    (tmp_path / "minutebook.toml").write_text(
        '[channels.tg]\nkind = "telegram"\nagent = "echo"\ntoken = "77:t"\ninboundSecret = "of-a-bot"\n' + toml
    )
    result = subprocess.run(
        [sys.executable, "-m", "minutebook.infra.cli.main", "serve", "--data-dir", str(tmp_path), "--port", "0"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode != 0
    assert words in result.stderr, result.stderr


def test_authorization_verified_claims(new_data_dir: Callable[[], Path]) -> None:
    """Only what a sign-in has verified counts, for whoever is linked by it, and for as long as it does."""
    with serving(OidcProvider()) as provider:
        more = link_config(provider).partition("[authorization]")[0].replace("{", "{{").replace("}", "}}") + CLAIMED
        with inbound_desk(new_data_dir(), more=more) as desk:
            provider.sub, provider.claims = "ann", {"tenant": "acme", "team": ["ops"]}
            assert outcome(desk, "ann", "claimed", CLAIM) == ("denied", "abstained")
            assert outcome(desk, "ann", "claimed", CLAIM, "/link") == ("accepted", "allowed")
            found = re.search(r"http://\S+", desk.platforms.told("ann", "Sign in here"))
            assert found is not None
            browser = Browser(LinkWorld(desk.server, provider))
            asked = browser.go(found[0])
            assert browser.client.post(str(asked.url)).status_code == 200
            assert outcome(desk, "ann", "claimed", CLAIM) == ("denied", "abstained"), "nobody has confirmed"
            desk.hook("/confirm", "ann", name="claimed", secret=CLAIM)
            word = re.search(r"/confirm ([0-9a-f]{8})", desk.platforms.told("ann", "wants to be linked"))
            assert word is not None
            desk.hook(f"/confirm {word[1]}", "ann", name="claimed", secret=CLAIM)
            desk.platforms.told("ann", "are linked now")
            assert outcome(desk, "ann", "claimed", CLAIM) == ("accepted", "allowed")
            event = desk.newest("claimed")
            assert desk.owner(event["conversation"]) == "human:ann", "the person, by their account"
            assert outcome(desk, "eve", "claimed", CLAIM) == ("denied", "abstained")
            with desk.server.sql() as superuser:
                superuser.execute("UPDATE minutebook.claim_snapshots SET expires_at = now() - interval '1 second'")
            assert outcome(desk, "ann", "claimed", CLAIM) == ("denied", "abstained"), "its time is over"
            assert desk.newest("claimed")["details"] == "before abstain, after abstain"
            assert outcome(desk, "ann", "claimed", CLAIM, "/status") == ("denied", "abstained")
            for verb, said in (("/stop", "Nothing more is sent"), ("/unlink", "on its own again")):
                assert outcome(desk, "ann", "claimed", CLAIM, verb) == ("accepted", "allowed"), "consent stays"
                desk.platforms.told("ann", said)
            assert desk.rows("SELECT count(*) FROM minutebook.linked_identities WHERE holder IS NOT NULL") == [(0,)]
