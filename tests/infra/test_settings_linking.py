"""The link policy, and how long things are kept, as settings: defaults, bounds, and what stops the start."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from minutebook.domain.channels.link_policy import LinkPolicy, may_link, permits
from minutebook.http.answer_terms import answer_terms
from minutebook.http.delivery_terms import keep_of, terms_of
from minutebook.infra.channels.advice import advice
from minutebook.infra.link_policy import policy_of
from minutebook.infra.setting_keys import describe
from minutebook.infra.settings import Settings, SettingsError
from minutebook.infra.settings_check_kept import BOUNDS, Bound
from minutebook.infra.settings_load import load

WEB = "[channels.{name}]\nkind = 'web'\n"
TIERED = "".join(f"[channels.{name}]\nkind = 'web'\ntier = '{tier}'\n" for name, tier in (("a", "low"), ("b", "high")))
SIGN_IN = f"""
[conversations]
key = "{base64.b64encode(b"k" * 32).decode()}"
[agents.echo]
provider = "scripted"
[issuers.corp]
issuer = "https://id.example"
audience = "minutebook"
jwksUrl = "https://id.example/jwks"
kind = "human"
tenants = ["default"]
[issuers.corp.oidc]
clientId = "minutebook"
authorizeUrl = "https://id.example/authorize"
tokenUrl = "https://id.example/token"
redirectUrl = "https://minutebook.example/v1/links/oidc/corp/callback"
"""
PAIRS = "[linking]\npolicy = 'pairs'\npairs = { low = ['high'], high = ['high'] }\n"


def whsec(char: str) -> str:
    return "whsec_" + base64.b64encode(char.encode() * 32).decode()


def loaded(folder: Path, toml: str = "") -> Settings:
    (folder / "minutebook.toml").write_text(toml, encoding="utf-8")
    return load(folder, {})


def refusal(folder: Path, toml: str) -> str:
    with pytest.raises(SettingsError) as caught:
        loaded(folder, toml)
    return str(caught.value)


@pytest.mark.parametrize(
    ("toml", "kind"),
    [
        ("", "allow_all"),
        (WEB.format(name="a"), "allow_all"),
        (TIERED, "same_tier_only"),
        (TIERED + "[linking]\npolicy = 'allow_all'\n", "allow_all"),
        (TIERED + "[linking]\npolicy = 'same_tier_only'\n", "same_tier_only"),
        (TIERED + "[linking]\npolicy = 'deny_all'\n", "deny_all"),
        ("[linking]\npolicy = 'deny_all'\n", "deny_all"),
        (TIERED + PAIRS, "pairs"),
    ],
)
def test_the_policy_is_the_one_that_is_named_or_goes_by_the_tiers(tmp_path: Path, toml: str, kind: str) -> None:
    settings = loaded(tmp_path, toml)
    assert policy_of(settings).kind == kind
    assert answer_terms(settings).policy == policy_of(settings)


def test_pairs_have_a_direction(tmp_path: Path) -> None:
    policy = policy_of(loaded(tmp_path, TIERED + PAIRS))
    assert policy.pairs == {("low", "high"), ("high", "high")}
    assert permits(policy, "a", "b")
    assert not permits(policy, "b", "a")
    assert not may_link(policy, "a", "b")


def test_who_speaks_with_a_token_has_the_tier_of_the_tenant_s_inbox(tmp_path: Path) -> None:
    terms = answer_terms(loaded(tmp_path, "[channels.a]\nkind = 'web'\ntenant = 'acme'\ntier = 'low'\n"))
    assert permits(terms.policy_of("acme"), "token", "a")
    assert not permits(terms.policy_of("umbrella"), "token", "a")
    assert terms.policy_of("umbrella") == LinkPolicy("same_tier_only", {"a": "low"})


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[linking]\npolicy = 'anybody'", "linking.policy must be one of allow_all, same_tier_only, pairs, deny_all"),
        ("[linking]\npolicy = 'same_tier_only'", "linking.policy is same_tier_only, and no channel has a tier"),
        (TIERED + "[linking]\npolicy = 'pairs'", "linking.pairs is missing: with the policy pairs nobody could link"),
        (TIERED + "[linking]\npolicy = 'pairs'\npairs = {}", "linking.pairs is missing"),
        (TIERED + PAIRS.replace("policy = 'pairs'", ""), "linking.pairs is for linking.policy = pairs"),
        (TIERED + PAIRS.replace("'pairs'", "'deny_all'"), "linking.pairs is for linking.policy = pairs"),
        (TIERED + PAIRS.replace("low =", "lowest ="), "linking.pairs.lowest: no channel has the tier lowest"),
        (TIERED + PAIRS.replace("low = ['high']", "low = ['up']"), "linking.pairs.low: no channel has the tier up"),
        (TIERED + PAIRS.replace("low = ['high']", "low = []"), "linking.pairs.low is empty"),
        (TIERED + PAIRS.replace("low = ['high']", "low = 'high'"), "linking.pairs"),
        ("[delivery]\nattemptsTtl = '36h'", "delivery.attemptsTtl must be whole days"),
        ("[delivery]\ninboundTtl = '169h'", "delivery.inboundTtl must be whole days"),
        ("[delivery]\ndeadPayloadTtl = '6d'", "delivery.deadPayloadTtl must not be shorter than"),
        ("[delivery]\nreplayWindow = '15d'", "delivery.deadPayloadTtl must not be shorter than"),
        ("[linking]\ntombstoneTtl = '6d'", "linking.tombstoneTtl must not be shorter than linking.relinkWait"),
    ],
)
def test_what_stops_the_start(tmp_path: Path, toml: str, words: str) -> None:
    said = refusal(tmp_path, toml)
    assert said.startswith(words), said


HOOKS = "".join(
    f"[channels.{name}]\nkind = 'webhook'\ninboundSecret = '{whsec(name)}'\nallowlist = 'open'\n{{{name}}}"
    for name in ("a", "b")
)
LINKED = "requireLink = true\n"


@pytest.mark.parametrize(
    ("toml", "is_right"),
    [
        (HOOKS.format(a=LINKED, b=""), True),
        (HOOKS.format(a=LINKED, b="") + "[linking]\npolicy = 'deny_all'\n", False),
        (HOOKS.format(a="", b="") + "[linking]\npolicy = 'deny_all'\n", True),
        (HOOKS.format(a=LINKED, b="tier = 'low'\n"), False),
        (HOOKS.format(a=LINKED + "tier = 'low'\n", b="tier = 'low'\n"), True),
        (HOOKS.format(a=LINKED + "tier = 'low'\n", b="tier = 'high'\n"), False),
        (HOOKS.format(a=LINKED + "tier = 'low'\n", b="tier = 'low'\ntenant = 'other'\n"), False),
        (HOOKS.format(a=LINKED + "tier = 'low'\n", b="") + WEB.format(name="w") + "tier = 'low'\n", True),
        (HOOKS.format(a=LINKED + "tier = 'low'\n", b="tier = 'high'\n") + PAIRS, False),
        (HOOKS.format(a=LINKED + "tier = 'high'\n", b="tier = 'high'\n") + PAIRS.replace("low = ['high'], ", ""), True),
    ],
)
def test_a_channel_that_needs_a_link_can_be_linked(tmp_path: Path, toml: str, is_right: bool) -> None:
    """Else it would silently deny everybody."""
    if is_right:
        loaded(tmp_path, toml)
        return
    assert refusal(tmp_path, toml).startswith("channels.a.requireLink: linking.policy lets nobody link it")


@pytest.mark.parametrize(("policy", "is_right"), [("allow_all", True), ("deny_all", False), ("same_tier_only", False)])
def test_claims_of_a_sign_in_come_by_a_link(tmp_path: Path, policy: str, is_right: bool) -> None:
    rule = "allowlist = { claim = 'team', values = ['ops'] }\n"
    toml = HOOKS.format(a="tier = 'low'\n", b="").replace("allowlist = 'open'\n", rule, 1) + SIGN_IN
    toml += f"[linking]\npolicy = '{policy}'\n"
    if is_right:
        loaded(tmp_path, toml)
        return
    said = refusal(tmp_path, toml)
    assert said.startswith("channels.a.allowlist asks for the claim team, and linking.policy"), said


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.key)
def test_each_time_has_bounds_that_its_description_has_too(tmp_path: Path, bound: Bound) -> None:
    key = f"{bound.section}.{bound.key}"
    beside = {"replayWindow": "deadPayloadTtl = '90d'\n", "relinkWait": "tombstoneTtl = '365d'\n"}
    lower = {"deadPayloadTtl": "replayWindow = '1m'\n", "tombstoneTtl": "relinkWait = '1h'\n"}
    for text in (bound.least, bound.most):
        more = {**beside, **lower}.get(bound.key, "")
        settings = loaded(tmp_path, f"[{bound.section}]\n{bound.key} = '{text}'\n{more}")
        assert getattr(getattr(settings, bound.section), bound.name) == text
    past = f"{int(bound.most[:-1]) + 1}{bound.most[-1]}"
    for text in ("0s", past, "soon", "1.5h", ""):
        said = refusal(tmp_path, f"[{bound.section}]\n{bound.key} = '{text}'\n")
        assert said.startswith(f"{key} must be a duration from {bound.least} to {bound.most}"), said
    (doc,) = [each.doc for each in describe() if each.key == key]
    assert f"{bound.least} to {bound.most}." in doc


def test_the_defaults_are_those_of_the_design(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    assert {each.key: getattr(getattr(settings, each.section), each.name) for each in BOUNDS} == {
        "continuationTtl": "24h",
        "inboxTtl": "30d",
        "payloadTtl": "24h",
        "deadPayloadTtl": "14d",
        "attemptsTtl": "90d",
        "inboundTtl": "30d",
        "replayWindow": "7d",
        "orderWindow": "10m",
        "challengeTtl": "10m",
        "activeTtl": "30d",
        "tombstoneTtl": "30d",
        "relinkWait": "7d",
    }


def test_a_channel_that_is_gone_from_the_settings_has_the_same_windows(tmp_path: Path) -> None:
    toml = "[delivery]\nreplayWindow = '3d'\norderWindow = '30s'\nattemptsTtl = '5d'\npayloadTtl = '2h'\n"
    settings = loaded(tmp_path, toml + WEB.format(name="a"))
    for name in ("a", "gone"):
        terms = terms_of(settings)(name)
        assert (terms.policy.replay_s, terms.policy.order_s, terms.days) == (3 * 86_400, 30, 5)
    assert (keep_of(settings).payload_s, keep_of(settings).dead_s) == (7200, 14 * 86_400)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (WEB.format(name="a"), ""),
        (WEB.format(name="a") + "[linking]\npolicy = 'allow_all'\n", "linking.policy is allow_all"),
        (WEB.format(name="a") + WEB.format(name="b"), "linking.policy is allow_all"),
        (WEB.format(name="a") + WEB.format(name="b") + "tenant = 'acme'\n", ""),
        (TIERED, ""),
        (TIERED + PAIRS.replace(", high = ['high']", ""), "linking.pairs has no pair in both directions"),
        (TIERED + PAIRS, ""),
    ],
)
def test_doctor_is_told_of_a_policy_that_keeps_nothing_apart_or_lets_nobody_link(
    tmp_path: Path, toml: str, words: str
) -> None:
    said = [each for each in advice(loaded(tmp_path, toml)) if each.startswith("linking.")]
    assert [each[: len(words)] for each in said] == ([words] if words else [])
