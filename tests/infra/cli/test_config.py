"""`minutebook config`: what is set, what holds, what follows; no secret, and no database."""

from __future__ import annotations

import base64
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from minutebook.infra.effective import effective
from minutebook.infra.redaction.setup import secrets_of
from minutebook.infra.setting_keys import leaves
from minutebook.infra.settings_load import load
from minutebook.infra.shown_settings import HIDDEN
from verbs import Done, verb


def whsec(char: str) -> str:
    return "whsec_" + base64.b64encode(char.encode() * 32).decode()


SECRETS = {
    "OUT": whsec("o"),
    "IN": whsec("i"),
    "TG": "77:canary-token",
    "TG_IN": "canary-inbound",
    "KEY": base64.b64encode(b"canary" + b"k" * 26).decode(),
    "OLD": base64.b64encode(b"canary" + b"l" * 26).decode(),
    "DB": "postgresql://app:canary-password@127.0.0.1:1/nowhere",
    "SMTP": "canary-smtp",
    "CLIENT": "canary-client",
    "MCP": "canary-mcp-token",
    "TALK": base64.b64encode(b"canary" + b"t" * 26).decode(),
}

TOML = """
[server]
port = 8123

[authorization]
allowlist = { nativeIds = ["7"] }

[database]
url = "env:DB"

[delivery]
payloadKey = "env:KEY"
previousPayloadKeys = ["env:OLD"]
payloadTtl = "2h"

[linking]
policy = "pairs"
pairs = { low = ["high"], high = ["low", "high"] }

[channels.hook]
kind = "webhook"
tenant = "acme"
tier = "high"
clearance = ["staff"]
url = "https://hook.example/in?key=canary-query"
secret = "env:OUT"

[channels.tg]
kind = "telegram"
tenant = "acme"
tier = "low"
token = "env:TG"
inboundSecret = "env:TG_IN"
allowlist = { anyOf = ["inherit", { claim = "team", values = ["ops"] }] }
responseTarget = { kind = "channel", channel = "hook" }
agent = "helper"

[channels.box]
kind = "web"
tenant = "acme"
tier = "high"

[channels.mail]
kind = "email"
tenant = "acme"
from = "agent@mail.example"
smtp = { host = "smtp.example", user = "u", password = "env:SMTP" }

[conversations]
key = "env:TALK"

[agents.helper]
provider = "scripted"

[tools."odd.name"]
dataClass = "staff"

[tools.files.mcp]
command = ["files", "--stdio"]
environment = { TOKEN = "env:MCP" }

[issuers.corp]
issuer = "https://id.example"
audience = "minutebook"
jwksUrl = "https://id.example/jwks"
kind = "human"
tenants = ["acme"]

[issuers.corp.oidc]
clientId = "minutebook"
clientSecret = "env:CLIENT"
authorizeUrl = "https://id.example/authorize"
tokenUrl = "https://id.example/token"
redirectUrl = "https://minutebook.example/v1/links/oidc/corp/callback"
claimsTtl = "12h"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "minutebook.toml").write_text(TOML, encoding="utf-8")
    return tmp_path


def printed(folder: Path, *options: str) -> Done:
    done = verb("config", "--data-dir", folder, *options, env=SECRETS)
    assert done.code == 0, done
    for secret in SECRETS.values():
        assert secret not in done.out
    assert "canary" not in done.out
    return done


def test_only_what_is_set_is_printed_and_it_is_toml(folder: Path) -> None:
    found = tomllib.loads(printed(folder).out)
    given = tomllib.loads(TOML)
    given["database"]["url"] = given["delivery"]["payloadKey"] = HIDDEN
    given["delivery"]["previousPayloadKeys"] = [HIDDEN]
    given["channels"]["hook"] |= {"secret": HIDDEN, "url": f"https://hook.example/in?{HIDDEN}"}
    given["channels"]["tg"] |= {"token": HIDDEN, "inboundSecret": HIDDEN}
    given["conversations"]["key"] = HIDDEN
    given["tools"]["files"]["mcp"]["environment"] = {"TOKEN": HIDDEN}
    given["channels"]["mail"]["smtp"]["password"] = HIDDEN
    given["issuers"]["corp"]["oidc"]["clientSecret"] = HIDDEN
    target = given["channels"]["tg"]["responseTarget"]
    given["channels"]["tg"]["responseTarget"] = {**target, "echoInput": False}
    assert found == given
    assert printed(folder, "--json").json == {"settings": found}


def test_the_environment_is_part_of_what_is_set(folder: Path) -> None:
    done = verb("config", "--data-dir", folder, "--json", env={**SECRETS, "MINUTEBOOK_SERVER_WORKERS": "3"})
    assert done.json["settings"]["server"] == {"port": 8123, "workers": 3}


def test_effective_has_every_setting_with_its_value(folder: Path) -> None:
    settings = printed(folder, "--effective", "--json").json["settings"]
    assert settings["server"]["host"] == "127.0.0.1"
    assert settings["database"]["ownerUrl"] is None
    assert settings["channels"]["tg"]["retry"] == {"attempts": 8, "from": "1s", "to": "1h"}
    assert settings["delivery"]["deadPayloadTtl"] == "14d"
    for leaf in leaves():
        if "<name>" not in leaf.key and "[]" not in leaf.key:
            table: Any = settings
            for name in leaf.key.split("."):
                assert name in table, leaf.key
                table = table[name]
    lines = printed(folder, "--effective").out.splitlines()
    assert "# database.ownerUrl is unset" in lines
    assert "# server.metricsPort is unset" in lines
    assert 'tools."odd.name".dataClass = "staff"' in lines
    assert tomllib.loads("\n".join(lines))["server"]["workers"] == 1


def test_what_follows_is_below(folder: Path) -> None:
    follows = printed(folder, "--effective", "--json").json["effective"]
    tg = follows["channels"]["tg"]
    rule = {"anyOf": [{"nativeIds": ["7"]}, {"claim": "team", "values": ["ops"]}]}
    assert tg == {
        "kind": "telegram",
        "tenant": "acme",
        "tier": "low",
        "clearance": [],
        "receives": True,
        "pushes": True,
        "receiving": {
            "agent": "helper",
            "allowlist": rule,
            "requireLink": False,
            "conversationScope": "per_user_per_conversation",
            "acceptInGroup": "mention_only",
            "responseTarget": {"kind": "channel", "channel": "hook", "echoInput": False},
            "background": False,
        },
    }
    assert follows["channels"]["hook"]["receiving"] is None
    assert follows["linking"] == {
        "policy": "pairs",
        "isSet": True,
        "reach": [
            {
                "tenant": "acme",
                "channel": "token",
                "tier": "high",
                "mayLink": ["tg"],
                "answeredOn": ["hook", "tg", "box"],
            },
            {
                "tenant": "acme",
                "channel": "tg",
                "tier": "low",
                "mayLink": ["token"],
                "answeredOn": ["hook", "tg", "box"],
            },
        ],
    }
    assert follows["ttls"]["delivery.payloadTtl"] == "2h"
    assert follows["ttls"]["linking.relinkWait"] == "7d"
    assert follows["ttls"]["issuers.corp.oidc.claimsTtl"] == "12h"
    text = printed(folder, "--effective").out
    for line in (
        "# channel tg: telegram of tenant acme; receives and pushes",
        f"#   agent helper; who may write: {msgspec.json.encode(rule).decode()}; linked or not",
        "# link policy: pairs",
        "#   acme: tg (low) may be linked with token; is answered on hook, tg, box",
        "#   linking.challengeTtl 10m",
    ):
        assert line in text.splitlines(), text


def test_what_applies_where_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "minutebook.toml").write_text("[channels.box]\nkind = 'web'\n")
    found = effective(load(tmp_path, {}))
    assert (found.linking.policy, found.linking.is_set) == ("allow_all", False)
    (one,) = found.linking.reach
    assert (one.channel, one.may_link, one.answered_on) == ("token", [], ["box"])
    said = verb("config", "--data-dir", tmp_path, "--effective").out
    assert "# link policy: allow_all, since linking.policy is not set" in said


def test_what_the_redactor_knows_as_a_secret_is_not_shown(folder: Path) -> None:
    secrets = {secret for _, secret in secrets_of(load(folder, SECRETS))}
    assert secrets >= {SECRETS["OUT"], SECRETS["MCP"], SECRETS["CLIENT"]}
    for options in (["--effective"], ["--effective", "--json"]):
        text = printed(folder, *options).out
        assert not [secret for secret in secrets if secret in text]


def test_settings_that_stop_the_start_stop_it_here(folder: Path) -> None:
    done = verb("config", "--data-dir", folder, env={**SECRETS, "MINUTEBOOK_LINKING_POLICY": "deny_all"})
    assert done.code == 2
    assert "linking.pairs is for linking.policy = pairs" in done.said
