"""What each kind of channel needs, and what makes no sense for it."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from .settings import SettingsError, is_loopback
from .settings_channels import ChannelKind, ChannelSettings, SmtpSettings
from .settings_check_outward import check_target, check_webhook_secret, webhook_key

MEMBERS: dict[ChannelKind, frozenset[str]] = {
    "web": frozenset(),
    "webhook": frozenset({"url", "secret", "inbound_secret", "allow_loopback"}),
    "telegram": frozenset({"token", "inbound_secret", "base_url", "allow_loopback", "bot_name"}),
    "slack": frozenset({"token", "inbound_secret", "base_url", "allow_loopback", "bot_name", "workspace"}),
    "email": frozenset({"inbound_secret", "authserv_id", "sender", "smtp", "allow_loopback"}),
}
"""Of the keys that are not for every kind, those of each."""

PARTICULAR = frozenset[str]().union(*MEMBERS.values())

_BOT_TOKEN = re.compile(r"[A-Za-z0-9:_-]{1,256}")
_SECRET_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,256}")
_BOT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{2,63}")
_SLACK_ID = re.compile(r"[A-Z][A-Z0-9]{2,31}")
_MAILBOX = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,253}[A-Za-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,253}[A-Za-z0-9])?|[0-9a-fA-F:]*:[0-9a-fA-F:.]*")


def check_kind(key: str, channel: ChannelSettings) -> None:
    """Raises SettingsError with the key and what to do."""
    for field in msgspec.structs.fields(channel):
        if field.name in PARTICULAR - MEMBERS[channel.kind] and getattr(channel, field.name) != field.default:
            raise SettingsError(f"{key}.{field.encode_name} is not for kind {channel.kind}: remove it.")
    for name, secret in (("token", channel.token), ("inboundSecret", channel.inbound_secret)):
        if secret is not None and not (secret.isascii() and secret.isprintable() and " " not in secret):
            raise SettingsError(f"{key}.{name} must be visible ASCII (its value is not shown).")
    if (check := _CHECKS.get(channel.kind)) is not None:
        check(key, channel)
    if not (channel.receives or channel.pushes):
        raise SettingsError(f"{key} can neither receive nor send: {_NEEDS[channel.kind]}.")


_NEEDS: dict[ChannelKind, str] = {
    "web": "",
    "webhook": "set inboundSecret, or url and secret",
    "telegram": "set token, inboundSecret, or both",
    "slack": "set token, inboundSecret, or both",
    "email": "set inboundSecret and authservId, or from and smtp",
}


def secret_bytes(secret: str) -> bytes:
    """What a secret is compared by: two spellings of one key are one."""
    return webhook_key(secret) or secret.encode()


def _check_webhook(key: str, channel: ChannelSettings) -> None:
    if (channel.url is None) != (channel.secret is None):
        raise SettingsError(f"{key}.secret: set both url and secret, or neither: every call is signed.")
    if channel.url is not None:
        check_target(f"{key}.url", channel.url, allow_loopback=channel.allow_loopback)
    for name, secret in (("secret", channel.secret), ("inboundSecret", channel.inbound_secret)):
        if secret is not None:
            check_webhook_secret(f"{key}.{name}", secret)


def _check_base_url(key: str, channel: ChannelSettings) -> None:
    check_target(f"{key}.baseUrl", channel.service_url, allow_loopback=channel.allow_loopback, may_ask=False)


def _check_telegram(key: str, channel: ChannelSettings) -> None:
    _check_base_url(key, channel)
    if channel.token is not None and _BOT_TOKEN.fullmatch(channel.token) is None:
        raise SettingsError(f"{key}.token must be a bot's token, letters, digits, :, - and _ (its value is not shown).")
    if channel.inbound_secret is not None and _SECRET_TOKEN.fullmatch(channel.inbound_secret) is None:
        raise SettingsError(
            f"{key}.inboundSecret must be 1 to 256 letters, digits, - and _, as setWebhook takes it (its value is not"
            " shown)."
        )
    if channel.bot_name is not None and _BOT_NAME.fullmatch(channel.bot_name) is None:
        raise SettingsError(f"{key}.botName must be the bot's user name without @.")


def _check_slack(key: str, channel: ChannelSettings) -> None:
    _check_base_url(key, channel)
    for name, text in (("botName", channel.bot_name), ("workspace", channel.workspace)):
        if text is not None and _SLACK_ID.fullmatch(text) is None:
            raise SettingsError(f"{key}.{name} must be an id of Slack's, such as U0123ABCD.")


def _check_email(key: str, channel: ChannelSettings) -> None:
    if (channel.inbound_secret is None) != (channel.authserv_id is None):
        raise SettingsError(
            f"{key}.authservId: set both inboundSecret and authservId, or neither: mail counts only by its DMARC pass."
        )
    if channel.authserv_id is not None and re.fullmatch(r"[!-~]{1,255}", channel.authserv_id) is None:
        raise SettingsError(f"{key}.authservId must be visible ASCII, such as mx.example.")
    if (channel.smtp is None) != (channel.sender is None):
        raise SettingsError(f"{key}.from: set both from and smtp, or neither.")
    if channel.sender is not None and _MAILBOX.fullmatch(channel.sender) is None:
        raise SettingsError(f"{key}.from must be one address, such as agent@mail.example.")
    if channel.smtp is not None:
        _check_smtp(f"{key}.smtp", channel.smtp, allow_loopback=channel.allow_loopback)


def _check_smtp(key: str, smtp: SmtpSettings, *, allow_loopback: bool) -> None:
    if _HOST.fullmatch(smtp.host) is None:
        raise SettingsError(f"{key}.host must be a host name or an address.")
    place = key.rpartition(".")[0]
    if is_loopback(smtp.host) and not allow_loopback:
        raise SettingsError(f"{key}.host is on this machine: set {place}.allowLoopback = true, or correct it.")
    if smtp.tls == "none" and not allow_loopback:
        raise SettingsError(f"{key}.tls must be starttls or tls, unless {place}.allowLoopback = true.")
    if (smtp.user is None) != (smtp.password is None):
        raise SettingsError(f"{key}.password: set both user and password, or neither.")
    for name, text in (("user", smtp.user), ("password", smtp.password)):
        if text is not None and not text.isprintable():
            raise SettingsError(f"{key}.{name} must have no control characters (its value is not shown).")


_CHECKS: dict[ChannelKind, Callable[[str, ChannelSettings], None]] = {
    "webhook": _check_webhook,
    "telegram": _check_telegram,
    "slack": _check_slack,
    "email": _check_email,
}
