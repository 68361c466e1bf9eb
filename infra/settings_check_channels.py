"""What cannot be in `[channels.<name>]`, `[authorization]` and `[delivery]`, alone or together.

A configuration that would silently let nobody or everybody in stops the start (delivery.md, Authorization).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..commands.channels.ends import TOKEN_CHANNEL
from .settings import Settings, SettingsError, is_canonical
from .settings_channels import Allowlist, AllowRule, ChannelSettings, TargetRule, rules_in
from .settings_check_channel_kinds import check_kind, secret_bytes
from .settings_check_conversations import CALLABLE, ECHO
from .settings_check_linking import can_be_linked
from .settings_conversations import MIN_KEY_BYTES, key_bytes
from .settings_section import parse_duration

MAX_DEPTH = 8
"""Of rules in rules."""

PLAIN_TARGETS = ("originating", "active", "all_linked", "none")
PLAIN_LISTS = ("inherit", "open")

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_MEMBERS = ("nativeIds", "claim", "anyOf", "allOf", "python")


def check_channels(settings: Settings) -> None:
    """Raises SettingsError with the key and what to do."""
    _check_payload_keys(settings)
    if settings.authorization.allowlist is not None:
        _check_allowlist("authorization.allowlist", settings.authorization.allowlist)
        if "inherit" in rules_in(settings.authorization.allowlist):
            raise SettingsError("authorization.allowlist is what others inherit: set it to open or to a rule.")
    for name, channel in settings.channels.items():
        key = f"channels.{name}"
        if _NAME.fullmatch(name) is None:
            raise SettingsError(f"{key}: a name is a to z, 0 to 9, - and _, begins with a letter, at most 64.")
        if name == TOKEN_CHANNEL:
            raise SettingsError(f"{key}: this name is taken by those who speak with a token; choose another.")
        _check_words(key, channel)
        _check_times(key, channel)
        check_kind(key, channel)
        _check_agent(key, channel, settings)
        _check_allowlist(f"{key}.allowlist", channel.allowlist)
        _check_policy(key, channel, settings)
        _check_target(key, channel, settings)
    _check_secrets_differ(settings)


def agent_of(name: str, settings: Settings) -> str | None:
    """The agent of a channel; None where nothing says which one it is."""
    declared = settings.channels[name].agent
    if declared is not None:
        return declared
    if not settings.agents:
        return ECHO if settings.is_development else None
    return next(iter(settings.agents)) if len(settings.agents) == 1 else None


def effective_allowlist(channel: ChannelSettings, settings: Settings) -> Allowlist:
    """The allowlist of a receiving channel; `inherit` inside of rules still stands for that of [authorization]."""
    inherited = settings.authorization.allowlist
    return inherited if channel.allowlist == "inherit" and inherited is not None else channel.allowlist


def _check_payload_keys(settings: Settings) -> None:
    delivery = settings.delivery
    held = {
        "payloadKey": (delivery.payload_key,) if delivery.payload_key else (),
        "previousPayloadKeys": delivery.previous_payload_keys,
    }
    for name, texts in held.items():
        for text in texts:
            try:
                is_right = len(key_bytes(text)) == MIN_KEY_BYTES
            except ValueError:
                is_right = False
            if not is_right:
                raise SettingsError(
                    f"delivery.{name} must be the base64 of {MIN_KEY_BYTES} bytes, such as `openssl rand -base64"
                    f" {MIN_KEY_BYTES}` gives (its value is not shown)."
                )
    if delivery.previous_payload_keys and delivery.payload_key is None:
        raise SettingsError("delivery.payloadKey is missing: previousPayloadKeys only decrypt; set it, too.")


def _check_words(key: str, channel: ChannelSettings) -> None:
    words = {"tenant": (channel.tenant,), "tier": (channel.tier,) if channel.tier else ()}
    for name, texts in {**words, "clearance": channel.clearance}.items():
        if not all(is_canonical(text) for text in texts):
            raise SettingsError(f"{key}.{name} must not be empty, have white space around it or control characters.")


def _check_times(key: str, channel: ChannelSettings) -> None:
    bounds = {
        "attemptTimeout": (channel.attempt_timeout, 1, 60, "1s to 60s"),
        "expiry": (channel.expiry, 60, 30 * 86_400, "1m to 30d"),
        "retry.from": (channel.retry.first, 1, 86_400, "1s to 24h"),
        "retry.to": (channel.retry.last, 1, 86_400, "1s to 24h"),
    }
    for name, (text, least, most, words) in bounds.items():
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            raise SettingsError(f"{key}.{name} {error}.") from None
        if not least <= seconds <= most:
            raise SettingsError(f"{key}.{name} must be {words}.")
    if channel.retry.first_s > channel.retry.last_s:
        raise SettingsError(f"{key}.retry.from must not exceed retry.to.")


def _check_agent(key: str, channel: ChannelSettings, settings: Settings) -> None:
    names = {*settings.agents, *((ECHO,) if settings.is_development else ())}
    if channel.agent is not None and channel.agent not in names:
        raise SettingsError(f"{key}.agent: there is no agent {channel.agent}; declare it, or correct or remove this.")
    if channel.receives and agent_of(key.partition(".")[2], settings) is None:
        raise SettingsError(f"{key}.agent is missing: the channel receives, so name the agent that answers.")


def _check_allowlist(key: str, allowlist: Allowlist, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise SettingsError(f"{key}: rules are at most {MAX_DEPTH} deep; make it flatter.")
    if isinstance(allowlist, str):
        if allowlist not in PLAIN_LISTS:
            raise SettingsError(f"{key} must be {', '.join(PLAIN_LISTS)}, or a table such as {{ nativeIds = [...] }}.")
        return
    members = (allowlist.native_ids, allowlist.claim, allowlist.any_of, allowlist.all_of, allowlist.python)
    if sum(each is not None for each in members) != 1:
        raise SettingsError(f"{key}: a rule has exactly one of {', '.join(_MEMBERS)}.")
    if (allowlist.claim is None) != (allowlist.values is None):
        raise SettingsError(f"{key}: claim and values go together.")
    if allowlist.python is not None and CALLABLE.fullmatch(allowlist.python) is None:
        raise SettingsError(f"{key}.python must be module:function, such as my_module:may_write.")
    for name, inner in (("anyOf", allowlist.any_of), ("allOf", allowlist.all_of)):
        for each in inner or ():
            _check_allowlist(f"{key}.{name}", each, depth + 1)


def _check_policy(key: str, channel: ChannelSettings, settings: Settings) -> None:
    if not channel.receives:
        _refuse_receiving_keys(key, channel)
        return
    effective = effective_allowlist(channel, settings)
    if "inherit" in rules_in(effective) and settings.authorization.allowlist is None:
        raise SettingsError(
            f"{key}.allowlist is inherit, and there is no authorization.allowlist: nobody could write; set either to"
            " open or to a rule."
        )
    held = [*rules_in(effective)]
    if "inherit" in held:
        held += rules_in(settings.authorization.allowlist)
    signs_in = _people_sign_in(channel, settings)
    if signs_in and can_be_linked(key.partition(".")[2], settings, by_token=True):
        return
    for each in held:
        if isinstance(each, AllowRule) and each.claim is not None and each.claim not in channel.emitted_claims():
            if signs_in:
                raise SettingsError(
                    f"{key}.allowlist asks for the claim {each.claim}, and linking.policy lets nobody link it by"
                    " signing in; correct that rule, the policy or the tiers."
                )
            raise SettingsError(
                f"{key}.allowlist asks for the claim {each.claim}, which nothing verifies: a channel of kind"
                f" {channel.kind} does not; correct or remove that rule, or give an issuer of the tenant its oidc."
            )


def _people_sign_in(channel: ChannelSettings, settings: Settings) -> bool:
    """Whether somebody of the channel's tenant can link it by a sign-in, whose claims count as verified."""
    return any(
        issuer.oidc is not None and (issuer.tenant_claim is not None or channel.tenant in issuer.tenants)
        for issuer in settings.issuers.values()
    )


def _refuse_receiving_keys(key: str, channel: ChannelSettings) -> None:
    defaults = ChannelSettings(kind=channel.kind)
    given = {
        "requireLink": channel.require_link,
        "allowlist": isinstance(channel.allowlist, AllowRule),
        "conversationScope": channel.conversation_scope != defaults.conversation_scope,
        "acceptInGroup": channel.accept_in_group != defaults.accept_in_group,
        "background": channel.background,
        "responseTarget": channel.response_target != defaults.response_target,
        "authservId": channel.authserv_id is not None,
        "workspace": channel.workspace is not None,
        "botName": channel.bot_name is not None,
    }
    for name, is_given in given.items():
        if is_given:
            raise SettingsError(
                f"{key}.{name} is for a channel that receives, and this one has no proof of what comes in: set"
                f" inboundSecret, or remove {name}."
                if channel.kind != "web"
                else f"{key}.{name} is not for kind web, which is this server's own inbox: remove it."
            )


def _check_target(key: str, channel: ChannelSettings, settings: Settings) -> None:
    target = channel.response_target
    at = f"{key}.responseTarget"
    if isinstance(target, str):
        if target not in PLAIN_TARGETS:
            raise SettingsError(f"{at} must be one of {', '.join(PLAIN_TARGETS)}, or a table.")
    else:
        _check_members(at, target)
        count = len({*(target.channels or ()), *(target.identities or ())})
        if count > settings.delivery.fan_out:
            raise SettingsError(f"{at} names {count} destinations, more than delivery.fanOut: name fewer.")
        for name in _named(target):
            other = settings.channels.get(name)
            if other is None or other.tenant != channel.tenant:
                raise SettingsError(f"{at}: there is no channel {name} of tenant {channel.tenant}; correct or add it.")
            if not other.pushes:
                raise SettingsError(f"{at}: channel {name} cannot send; correct it, or tell {name} where to.")
    kind = target if isinstance(target, str) else target.kind
    if channel.receives and not channel.pushes and kind == "originating" and channel.kind != "webhook":
        raise SettingsError(
            f"{key} receives and cannot answer: set its {'smtp' if channel.kind == 'email' else 'token'}, or another"
            " responseTarget."
        )


def _check_members(at: str, target: TargetRule) -> None:
    given = {"channel": target.channel, "channels": target.channels, "identities": target.identities}
    for name, value in given.items():
        if (value is not None) != (target.kind == name):
            raise SettingsError(f"{at}: {name} and kind = {name} go together.")


def _named(target: TargetRule) -> Iterator[str]:
    if target.channel is not None:
        yield target.channel
    yield from target.channels or ()
    yield from (each.channel for each in target.identities or ())


def _check_secrets_differ(settings: Settings) -> None:
    """What we send must not verify as what comes in, nor one channel's inbound message as another's."""
    outbound = {
        "launcher.secret": settings.launcher.secret,
        "notify.secret": settings.notify.secret,
        **{f"channels.{name}.secret": each.secret for name, each in settings.channels.items()},
        **{f"channels.{name}.token": each.token for name, each in settings.channels.items()},
    }
    seen = {secret_bytes(secret): key for key, secret in outbound.items() if secret is not None}
    for name, each in settings.channels.items():
        if each.inbound_secret is None:
            continue
        key, secret = f"channels.{name}.inboundSecret", secret_bytes(each.inbound_secret)
        if secret in seen:
            raise SettingsError(
                f"{key} must not be {seen[secret]}: what was made with the one would verify with the other."
            )
        seen[secret] = key
