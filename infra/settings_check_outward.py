"""What cannot be in the sections of settings_outward.py together."""

from __future__ import annotations

import base64
import binascii
import importlib.util
from urllib.parse import urlsplit

from .settings import Settings, SettingsError, is_loopback
from .settings_outward import OutwardSection
from .settings_section import parse_duration
from .settings_telemetry import TelemetrySettings

MAX_TIMEOUT_S = 20
"""Longest wait for an answer; an attempt of a job is a little longer."""

MIN_SECRET_BYTES = 16
SECRET_PREFIX = "whsec_"  # noqa: S105 - the form of secrets, and none


def check_outward(settings: Settings) -> None:
    """Raises SettingsError with the key and what to do."""
    launcher, notify, verdicts = settings.launcher, settings.notify, settings.verdicts
    _check_timeout("launcher", launcher)
    _check_timeout("notify", notify)
    _check_timeout("verdicts", verdicts)
    _check_webhook("launcher", launcher.url, launcher.secret, launcher)
    _check_webhook("notify", notify.url, notify.secret, notify)
    if (notify.url is None) != (notify.public_url is None):
        raise SettingsError("notify.publicUrl: set both url and publicUrl, or neither: a notice has a link.")
    if notify.public_url is not None:
        split_url("notify.publicUrl", notify.public_url, may_ask=False)
    if notify.secret is not None and notify.secret == launcher.secret:
        raise SettingsError("notify.secret must not be launcher.secret: a notice would verify as a launch.")
    _check_telemetry(settings.telemetry)
    if (verdicts.base_url is None) != (verdicts.token is None):
        raise SettingsError("verdicts.token: set both baseUrl and token, or neither.")
    if verdicts.base_url is not None:
        check_target("verdicts.baseUrl", verdicts.base_url, allow_loopback=verdicts.allow_loopback, may_ask=False)
    if verdicts.token is not None and not _is_visible(verdicts.token):
        raise SettingsError("verdicts.token must be visible ASCII (its value is not shown).")


def _check_telemetry(telemetry: TelemetrySettings) -> None:
    _check_timeout("telemetry", telemetry)
    if telemetry.otlp_url is None:
        if telemetry.authorization is not None:
            raise SettingsError("telemetry.authorization: set otlpUrl as well, or neither.")
        return
    check_target("telemetry.otlpUrl", telemetry.otlp_url, allow_loopback=telemetry.allow_loopback)
    if importlib.util.find_spec("opentelemetry.exporter") is None:
        raise SettingsError("telemetry.otlpUrl needs the extra otlp: install minutebook[otlp].")
    if telemetry.authorization is not None and not _is_visible(telemetry.authorization):
        raise SettingsError("telemetry.authorization must be visible ASCII (its value is not shown).")


def _is_visible(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _check_timeout(name: str, section: OutwardSection | TelemetrySettings) -> None:
    try:
        timeout_s = parse_duration(section.timeout)
    except ValueError as error:
        raise SettingsError(f"{name}.timeout {error}.") from None
    if not 1 <= timeout_s <= MAX_TIMEOUT_S:
        raise SettingsError(f"{name}.timeout must be 1s to {MAX_TIMEOUT_S}s.")


def _check_webhook(name: str, url: str | None, secret: str | None, section: OutwardSection) -> None:
    if (url is None) != (secret is None):
        raise SettingsError(f"{name}.secret: set both url and secret, or neither: every call is signed.")
    if url is None or secret is None:
        return
    check_target(f"{name}.url", url, allow_loopback=section.allow_loopback)
    check_webhook_secret(f"{name}.secret", secret)


def check_webhook_secret(key: str, secret: str) -> None:
    """Raises SettingsError where it is no secret of Standard Webhooks."""
    if len(webhook_key(secret)) < MIN_SECRET_BYTES:
        raise SettingsError(
            f"{key} must be {SECRET_PREFIX} and the base64 of {MIN_SECRET_BYTES} bytes or more, such as"
            " `openssl rand -base64 32` gives (its value is not shown)."
        )


def webhook_key(secret: str) -> bytes:
    """The key that a secret of Standard Webhooks stands for; empty where it is none."""
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return b""


def check_target(key: str, url: str, *, allow_loopback: bool, may_ask: bool = True) -> None:
    """Raises SettingsError where a service cannot be called there. key: of the URL, beside its allowLoopback."""
    scheme, host = split_url(key, url, may_ask=may_ask)
    if allow_loopback:
        return
    place = key.rpartition(".")[0]
    if scheme != "https":
        raise SettingsError(f"{key} must be https; for a host on this machine set {place}.allowLoopback = true.")
    if is_loopback(host):
        raise SettingsError(f"{key} is on this machine: set {place}.allowLoopback = true, or correct it.")


def split_url(key: str, url: str, *, may_ask: bool, example: str = "path") -> tuple[str, str]:
    """Scheme and host of a URL without a user. Raises SettingsError. may_ask: it may have a query."""
    try:
        parts = urlsplit(url)
        host, has_port = parts.hostname, parts.port != 0
    except ValueError:
        host, has_port, parts = None, False, urlsplit("")
    if not host or not has_port or parts.scheme not in ("http", "https"):
        raise SettingsError(f"{key} must be a URL such as https://service.example/{example}.")
    if parts.username is not None or parts.fragment or (parts.query and not may_ask):
        raise SettingsError(f"{key} must be a URL without user{'' if may_ask else ', query'} or fragment.")
    return parts.scheme, host
