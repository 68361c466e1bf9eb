"""The redactor of a server: the shipped rules, the operator's, and the secrets that its own settings hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
import structlog

from ..dev_issuer import DevelopmentIssuer
from ..server_key import server_key
from ..settings import Section, Settings
from ..settings_section import is_secret
from .engine import Redactor
from .known import MIN_SECRET_CHARS, forms_of, forms_of_key, is_usable
from .rules import shipped_rules

log = structlog.get_logger(__name__)


def redactor_of(settings: Settings) -> Redactor:
    """The redactor of this server; an operator's rules come before the shipped ones.

    Makes the server's keys on first use, as server_key and DevelopmentIssuer do. A secret that is too weak to be told
    from ordinary text is left out, with a warning that names its setting. Raises RuleError, SettingsError.
    """
    forms = forms_of_key(server_key(settings))
    if settings.is_development:
        forms |= forms_of_key(DevelopmentIssuer.open(settings.data_dir).key)
    for key, secret in secrets_of(settings):
        if is_usable(secret):
            forms |= forms_of(secret)
        else:
            log.warning("a secret is too weak to be redacted", setting=key, least_chars=MIN_SECRET_CHARS)
    return Redactor([*settings.redaction.all_rules, *shipped_rules()], forms)


def secrets_of(settings: Settings) -> Iterator[tuple[str, str]]:
    """Every secret in the settings with its dotted key: the values of the keys that are marked as secret.

    Of a database's URL only its passwords are secret: host and user stand in messages and manuals, and stay readable.
    """
    for key, value in _marked(settings, ""):
        if value.startswith(("postgresql://", "postgres://")):
            yield from ((key, password) for password in _passwords(value))
        else:
            # A key for signatures comes with a prefix that says so, and without.
            yield from ((key, each) for each in dict.fromkeys((value, value.removeprefix("whsec_"))))


def _marked(section: Section, key: str) -> Iterator[tuple[str, str]]:
    for field in msgspec.structs.fields(section):
        name = f"{key}.{field.encode_name}".lstrip(".")
        yield from _values(getattr(section, field.name), name, is_marked=is_secret(field.type))


def _values(value: Any, key: str, *, is_marked: bool) -> Iterator[tuple[str, str]]:
    if isinstance(value, Section):
        yield from _marked(value, key)
    elif isinstance(value, dict):
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _values(inner, f"{key}.{name}", is_marked=is_marked)
    elif is_marked and isinstance(value, (tuple, list)):
        yield from ((key, each) for each in cast("list[Any]", value) if isinstance(each, str))
    elif is_marked and isinstance(value, str):
        yield key, value


def _passwords(url: str) -> Iterator[str]:
    """The password of the authority, and those of the query, as written and decoded."""
    parts = urlsplit(url)
    written = parts.netloc.rpartition("@")[0].partition(":")[2]
    queried = [value for name in ("password", "sslpassword") for value in parse_qs(parts.query).get(name, [])]
    yield from dict.fromkeys(each for each in (written, unquote(written), *queried) if each)
