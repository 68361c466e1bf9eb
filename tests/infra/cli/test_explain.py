"""`minutebook explain`: for people and scripts, for who is not cleared and for auditors."""

from __future__ import annotations

from typing import get_args

from live_server import LiveServer
from minutebook.domain.conversations.past import Rule
from minutebook.infra.cli.explain import RULES
from talks import history, reply, say, start
from verbs import verb


def test_whether_and_why(server: LiveServer) -> None:
    owner = server.client("human:ann", "agents-member", "sec")
    talk = start(owner, mode="shared", id="explained")
    assert owner.put(f"/v1/conversations/{talk}/participants/human:ben").status_code == 200
    say(owner, talk, "a secret", classes=["secret"])
    reply(owner, talk, 1)
    ben, auditor = server.token("human:ben"), server.token("human:audrey", "agents-auditor")
    here = ("--url", server.url, "--conversation", talk, "--ord", 1)
    assert history(server.client("human:ben"), talk)[0]["status"] == "restricted"
    assert verb("explain", *here, "--token", ben).out == "not shown\n"
    assert verb("explain", *here, "--token", ben, "--json").json == {"ord": 1, "shown": False}
    told = verb("explain", *here, "--viewer", "human:ben", "--token", auditor).out.splitlines()
    assert told == [
        "not shown",
        "because they are not cleared for all of its classes",
        "classes  secret",
        "missing  secret",
        "labels   -",
    ]
    own = server.token("human:ann", "agents-member", "sec")
    named = ("--url", server.url, "--token", own, "--conversation", "explained")
    assert verb("explain", *named, "--ord", 1).out == "shown\n"
    assert verb("explain", *named, "--ord", 0).code == 2
    assert verb("explain", *named, "--ord", 99).code == 2


def test_every_rule_has_its_words() -> None:
    assert set(RULES) == set(get_args(Rule))
