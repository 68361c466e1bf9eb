"""The settings of channels: what holds without them, what is read, and what stops the start with its key."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from minutebook.infra.channels.advice import advice
from minutebook.infra.link_policy import policy_of, token_tiers_of
from minutebook.infra.redaction.setup import secrets_of
from minutebook.infra.settings import Settings, SettingsError
from minutebook.infra.settings_channels import AllowRule, TargetRule
from minutebook.infra.settings_check_channels import agent_of, effective_allowlist
from minutebook.infra.settings_load import load


def whsec(char: str) -> str:
    return "whsec_" + base64.b64encode(char.encode() * 32).decode()


OUT, IN = whsec("o"), whsec("i")
KEY = base64.b64encode(b"k" * 32).decode()
HOOK = f"[channels.hook]\nkind = 'webhook'\nurl = 'https://hook.example/in'\nsecret = '{OUT}'\n"
HOOK_IN = f"[channels.hook]\nkind = 'webhook'\ninboundSecret = '{IN}'\n"
OPEN = "[authorization]\nallowlist = 'open'\n"
TELEGRAM = "[channels.tg]\nkind = 'telegram'\ntoken = '12:abcdefgh'\ninboundSecret = 'telegram-secret-token'\n"
SLACK = "[channels.sl]\nkind = 'slack'\ntoken = 'xoxb-1234567890'\ninboundSecret = 'slack-signing-secret'\n"
TWO_TARGETS = "responseTarget = { kind = 'channels', channels = ['tg', 'hook'] }\n[delivery]\nfanOut = 1"
MAIL = (
    "[channels.mail]\nkind = 'email'\nfrom = 'agent@mail.example'\ninboundSecret = 'bearer-of-the-relay'\n"
    "authservId = 'mx.example'\nsmtp = { host = 'smtp.example', user = 'u', password = 'smtp-password' }\n"
)
CORP = """
[issuers.corp]
issuer = "https://id.example"
audience = "minutebook"
jwksUrl = "https://id.example/jwks"
kind = "human"
tenants = ["acme"]
"""


def loaded(folder: Path, toml: str = "", env: dict[str, str] | None = None) -> Settings:
    (folder / "minutebook.toml").write_text(toml, encoding="utf-8")
    return load(folder, env or {})


def refusal(folder: Path, toml: str) -> str:
    with pytest.raises(SettingsError) as caught:
        loaded(folder, toml)
    return str(caught.value)


def test_nothing_is_on_until_it_is_configured(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    assert settings.channels == {}
    assert settings.authorization.allowlist is None
    assert settings.delivery.payload_keys == ()


def test_the_example_of_the_design_is_read_and_the_defaults_are_its(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        "[channels.hook]\nkind = 'webhook'\nurl = 'http://127.0.0.1:9999/in'\nallowLoopback = true\n"
        f"secret = '{OUT}'\nallowlist = 'inherit'\n",
    )
    hook = settings.channels["hook"]
    assert (hook.receives, hook.pushes, hook.tenant, hook.tier, hook.clearance) == (False, True, "default", None, ())
    assert (hook.lanes, hook.rate_per_second, hook.attempt_timeout_s, hook.expiry_s) == (4, None, 10, 86_400)
    assert (hook.retry.attempts, hook.retry.first_s, hook.retry.last_s) == (8, 1, 3600)
    assert (hook.conversation_scope, hook.accept_in_group) == ("per_user_per_conversation", "mention_only")
    assert (hook.require_link, hook.background, hook.response_target) == (False, False, "originating")


def test_every_kind_is_read_with_its_members(tmp_path: Path) -> None:
    settings = loaded(tmp_path, OPEN + HOOK + TELEGRAM + SLACK + MAIL + "[channels.web]\nkind = 'web'\n")
    assert {name: (each.receives, each.pushes) for name, each in settings.channels.items()} == {
        "hook": (False, True),
        "tg": (True, True),
        "sl": (True, True),
        "mail": (True, True),
        "web": (False, True),
    }
    mail = settings.channels["mail"]
    assert mail.smtp is not None
    assert (mail.sender, mail.smtp.port, mail.smtp.tls) == ("agent@mail.example", 587, "starttls")
    assert settings.channels["tg"].service_url == "https://api.telegram.org"
    assert settings.channels["sl"].service_url == "https://slack.com/api"
    assert {name: agent_of(name, settings) for name in ("tg", "mail")} == {"tg": "echo", "mail": "echo"}


def test_an_allowlist_is_a_word_or_a_rule_of_rules(tmp_path: Path) -> None:
    rule = "{ anyOf = ['inherit', { nativeIds = ['7'] }, { allOf = ['open', { python = 'm:f' }] }] }"
    inherited = "[authorization]\nallowlist = { nativeIds = ['1', '2'] }\n"
    settings = loaded(tmp_path, f"{inherited}{TELEGRAM}allowlist = {rule}")
    expected = AllowRule(
        any_of=("inherit", AllowRule(native_ids=("7",)), AllowRule(all_of=("open", AllowRule(python="m:f"))))
    )
    assert effective_allowlist(settings.channels["tg"], settings) == expected
    settings = loaded(tmp_path, inherited + TELEGRAM)
    assert effective_allowlist(settings.channels["tg"], settings) == AllowRule(native_ids=("1", "2"))


def test_mail_verifies_addresses_and_so_may_ask_for_them(tmp_path: Path) -> None:
    rule = "allowlist = { claim = 'email', values = ['ann@acme.example'] }\n"
    assert loaded(tmp_path, MAIL.replace("smtp =", f"{rule}smtp =")).channels["mail"].receives
    said = refusal(tmp_path, TELEGRAM + rule)
    assert said.startswith("channels.tg.allowlist asks for the claim email, which nothing verifies")
    said = refusal(tmp_path, f"[authorization]\n{rule}{TELEGRAM}allowlist = {{ anyOf = ['inherit', 'open'] }}")
    assert said.startswith("channels.tg.allowlist asks for the claim email")


def test_a_target_names_channels_that_are_there(tmp_path: Path) -> None:
    target = "responseTarget = { kind = 'channels', channels = ['hook', 'tg'], echoInput = true }\n"
    settings = loaded(tmp_path, OPEN + HOOK + TELEGRAM + target)
    assert settings.channels["tg"].response_target == TargetRule(
        kind="channels", channels=("hook", "tg"), echo_input=True
    )
    assert refusal(tmp_path, OPEN + TELEGRAM + target).startswith(
        "channels.tg.responseTarget: there is no channel hook of tenant default"
    )
    elsewhere = HOOK + "tenant = 'other'\n"
    assert "no channel hook of tenant default" in refusal(tmp_path, OPEN + elsewhere + TELEGRAM + target)
    assert "channel hook cannot send" in refusal(tmp_path, OPEN + HOOK_IN + TELEGRAM + target)


def test_no_secret_is_printed_and_each_is_known_to_the_redactor(tmp_path: Path) -> None:
    settings = loaded(tmp_path, OPEN + HOOK + TELEGRAM + SLACK + MAIL + f"[delivery]\npayloadKey = '{KEY}'\n")
    secrets = {OUT, "12:abcdefgh", "telegram-secret-token", "xoxb-1234567890", "slack-signing-secret", KEY}
    secrets |= {"bearer-of-the-relay", "smtp-password"}
    assert not [secret for secret in secrets if secret in repr(settings)]
    assert secrets <= {secret for _, secret in secrets_of(settings)}


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        # The name, the tenant, the agent.
        ("[channels.Hook]\nkind = 'web'", "channels.Hook: a name is"),
        ("[channels.token]\nkind = 'web'", "channels.token: this name is taken"),
        ("[channels.a]\nkind = 'fax'", "channels.a.kind must be one of web, webhook, telegram, slack, email"),
        (HOOK + "tenant = ' a'", "channels.hook.tenant must not be empty"),
        (HOOK + "clearance = ['a', '']", "channels.hook.clearance"),
        (HOOK + "tier = 'a '", "channels.hook.tier"),
        (HOOK + "agent = 'ops'", "channels.hook.agent: there is no agent ops"),
        (CORP + OPEN + TELEGRAM, "channels.tg.agent is missing"),
        # Who may write.
        (TELEGRAM, "channels.tg.allowlist is inherit, and there is no authorization.allowlist"),
        (TELEGRAM + "allowlist = { anyOf = ['inherit'] }", "channels.tg.allowlist is inherit, and there is no"),
        (TELEGRAM + "allowlist = 'all'", "channels.tg.allowlist must be inherit, open, or a table"),
        (TELEGRAM + "allowlist = {}", "channels.tg.allowlist: a rule has exactly one of nativeIds, claim"),
        (TELEGRAM + "allowlist = { nativeIds = [] }", "channels.tg.allowlist"),
        (TELEGRAM + "allowlist = { nativeIds = ['a'], python = 'm:f' }", "channels.tg.allowlist: a rule has exactly"),
        (TELEGRAM + "allowlist = { claim = 'email' }", "channels.tg.allowlist: claim and values go together"),
        (TELEGRAM + "allowlist = { values = ['a'] }", "channels.tg.allowlist: a rule has exactly one"),
        (TELEGRAM + "allowlist = { python = 'm' }", "channels.tg.allowlist.python must be module:function"),
        (TELEGRAM + "allowlist = { anyOf = ['closed'] }", "channels.tg.allowlist.anyOf must be inherit, open"),
        (TELEGRAM + "allowlist = { nobody = true }", "channels.tg.allowlist: object contains unknown field"),
        ("[authorization]\nallowlist = 'inherit'", "authorization.allowlist is what others inherit"),
        ("[authorization]\nallowlist = { allOf = ['inherit'] }", "authorization.allowlist is what others inherit"),
        (HOOK + "requireLink = true", "channels.hook.requireLink is for a channel that receives"),
        (HOOK + "allowlist = { nativeIds = ['a'] }", "channels.hook.allowlist is for a channel that receives"),
        ("[channels.a]\nkind = 'web'\nbackground = true", "channels.a.background is not for kind web"),
        # Secrets.
        (OPEN + HOOK + f"inboundSecret = '{OUT}'", "channels.hook.inboundSecret must not be channels.hook.secret"),
        (
            OPEN + HOOK + f"[channels.b]\nkind = 'webhook'\ninboundSecret = '{OUT.removeprefix('whsec_')}'",
            "channels.b.inboundSecret must not be channels.hook.secret",
        ),
        (
            OPEN + HOOK_IN + HOOK_IN.replace("hook]", "b]"),
            "channels.b.inboundSecret must not be channels.hook.inboundSecret",
        ),
        (
            OPEN + HOOK_IN + f"[launcher]\nurl = 'https://l.example'\nsecret = '{IN}'",
            "channels.hook.inboundSecret must not be launcher.secret",
        ),
        (HOOK.replace(OUT, "short"), "channels.hook.secret must be whsec_"),
        (HOOK_IN.replace(IN, "short"), "channels.hook.inboundSecret must be whsec_"),
        # Members of the kinds.
        ("[channels.a]\nkind = 'web'\ntoken = 'x'", "channels.a.token is not for kind web"),
        (HOOK + "token = 'x'", "channels.hook.token is not for kind webhook"),
        (HOOK + "smtp = { host = 'a' }", "channels.hook.smtp is not for kind webhook"),
        (TELEGRAM + "url = 'https://a.example'", "channels.tg.url is not for kind telegram"),
        (MAIL.replace("smtp =", "token = 'x'\nsmtp ="), "channels.mail.token is not for kind email"),
        ("[channels.a]\nkind = 'webhook'", "channels.a can neither receive nor send: set inboundSecret, or url"),
        ("[channels.a]\nkind = 'telegram'", "channels.a can neither receive nor send: set token"),
        ("[channels.a]\nkind = 'webhook'\nurl = 'https://a.example'", "channels.a.secret: set both url and secret"),
        (HOOK.replace("https://hook", "http://hook"), "channels.hook.url must be https"),
        (HOOK.replace("hook.example", "localhost"), "channels.hook.url is on this machine"),
        (TELEGRAM + "baseUrl = 'http://127.0.0.1:1'", "channels.tg.baseUrl must be https"),
        (TELEGRAM.replace("12:abcdefgh", "12/abc"), "channels.tg.token must be a bot's token"),
        (TELEGRAM.replace("telegram-secret-token", "a.b"), "channels.tg.inboundSecret must be 1 to 256"),
        (TELEGRAM + "botName = '@bot'", "channels.tg.botName must be"),
        (SLACK + "workspace = 'acme'", "channels.sl.workspace must be an id"),
        (OPEN + "".join(SLACK.splitlines(True)[0:2] + SLACK.splitlines(True)[3:]), "channels.sl receives and cannot"),
        (MAIL.replace("authservId = 'mx.example'\n", ""), "channels.mail.authservId: set both"),
        (MAIL.replace("from = 'agent@mail.example'\n", ""), "channels.mail.from: set both from and smtp"),
        (MAIL.replace("agent@", "A <agent>@"), "channels.mail.from must be one address"),
        (MAIL.replace("user = 'u', ", ""), "channels.mail.smtp.password: set both"),
        (MAIL.replace("smtp.example", "127.0.0.1"), "channels.mail.smtp.host is on this machine"),
        (MAIL.replace("user = 'u'", "tls = 'none', user = 'u'"), "channels.mail.smtp.tls must be starttls or tls"),
        # Figures.
        (HOOK + "lanes = 0", "channels.hook.lanes"),
        (HOOK + "attemptTimeout = '2m'", "channels.hook.attemptTimeout must be 1s to 60s"),
        (HOOK + "expiry = '1s'", "channels.hook.expiry must be 1m to 30d"),
        (HOOK + "retry = { from = '2h' }", "channels.hook.retry.from must not exceed"),
        (HOOK + "retry = { to = '1x' }", "channels.hook.retry.to must be a whole number"),
        (HOOK + "retry = { attempts = 0 }", "channels.hook.retry.attempts"),
        # Targets.
        (OPEN + TELEGRAM + "responseTarget = 'nobody'", "channels.tg.responseTarget must be one of originating"),
        (OPEN + TELEGRAM + "responseTarget = { kind = 'channel' }", "channels.tg.responseTarget: channel and kind"),
        (
            OPEN + TELEGRAM + "responseTarget = { kind = 'none', channel = 'tg' }",
            "channels.tg.responseTarget: channel and kind = channel go together",
        ),
        (
            OPEN + HOOK + TELEGRAM + TWO_TARGETS,
            "channels.tg.responseTarget names 2 destinations, more than delivery.fanOut",
        ),
        # Keys of payloads.
        ("[delivery]\npayloadKey = 'short'", "delivery.payloadKey must be the base64 of 32 bytes"),
        (f"[delivery]\npayloadKey = '{base64.b64encode(b'k' * 33).decode()}'", "delivery.payloadKey must be"),
        (f"[delivery]\npreviousPayloadKeys = ['{KEY}']", "delivery.payloadKey is missing"),
    ],
)
def test_what_stops_the_start(tmp_path: Path, toml: str, words: str) -> None:
    said = refusal(tmp_path, toml)
    assert said.startswith(words), said
    assert not [secret for secret in (OUT, IN, "slack-signing-secret", "12/abc") if secret in said]


def test_doctor_is_told_of_open_channels_and_of_payloads_in_the_clear(tmp_path: Path) -> None:
    said = advice(loaded(tmp_path, OPEN + HOOK + TELEGRAM + SLACK))
    assert [each.partition(" is ")[0] for each in said] == [
        "channels.tg",
        "channels.sl",
        "channels.sl.workspace",
        "linking.policy",
        "delivery.payloadKey",
    ]
    closed = TELEGRAM + "allowlist = { nativeIds = ['7'] }\n"
    assert advice(loaded(tmp_path, f"{closed}[delivery]\npayloadKey = '{KEY}'\n")) == []


def test_the_link_policy_is_that_of_the_tiers_unless_it_is_named(tmp_path: Path) -> None:
    tiers = "[channels.low]\nkind = 'web'\ntier = 'l'\n[channels.high]\nkind = 'web'\ntenant = 'acme'\ntier = 'h'\n"
    assert policy_of(loaded(tmp_path, "")).kind == "allow_all"
    assert policy_of(loaded(tmp_path, tiers)).kind == "same_tier_only"
    named = policy_of(loaded(tmp_path, tiers + "[linking]\npolicy = 'pairs'\npairs = { l = ['h'] }\n"))
    assert (named.kind, named.pairs, dict(named.tiers)) == ("pairs", {("l", "h")}, {"low": "l", "high": "h"})
    assert token_tiers_of(loaded(tmp_path, tiers)) == {"default": "l", "acme": "h"}
