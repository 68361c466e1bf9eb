"""Reads the settings file and the environment into Settings, or stops with the name of the wrong key."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin

import msgspec
import platformdirs

from .redaction.rules import Rule, RuleError, check_rules, parse_rules
from .setting_keys import Leaf, item_of, leaves, plain
from .settings import ENV_PREFIX, Settings, SettingsError, is_loopback
from .settings_check_channels import check_channels
from .settings_check_clearance import check_clearance
from .settings_check_conversations import check_conversations
from .settings_check_issuers import check_issuers
from .settings_check_kept import check_kept
from .settings_check_linking import check_linking
from .settings_check_outward import check_outward
from .settings_conversations import resolved_counter
from .settings_section import Section, is_secret

CONFIG_NAME = "minutebook.toml"
CONFIG_VARIABLE = "MINUTEBOOK_CONFIG"
DATA_DIR_VARIABLE = "MINUTEBOOK_DATA_DIR"

_REFERENCE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|[0-9a-f:]*:[0-9a-f:.]*")
_ORIGIN = re.compile(r"https?://([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_BOOLEANS = {"true": True, "false": False}

S = TypeVar("S", bound=Section)


def load(data_dir: Path | None, env: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings from the file, the environment over it and `overrides` (dotted key to value) over both.

    The file is `minutebook.toml` in the data directory, or what MINUTEBOOK_CONFIG names (then it must exist).
    An override of None counts as not given. Raises SettingsError for an unknown key or variable, a wrong
    type or an impossible combination; the message has the dotted key or the variable, never a secret's value.
    """
    return load_told(data_dir, env, overrides)[0]


def load_told(
    data_dir: Path | None, env: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> tuple[Settings, Mapping[str, Any]]:
    """As load, with the keys that are set: tables in tables, as the file has them. Its values are not for showing."""
    resolved_dir = _data_dir(data_dir, env)
    tree, base_dir = _read_file(resolved_dir, env)
    origins = _overlay_environment(tree, env)
    for key, value in (overrides or {}).items():
        if value is not None:
            _place(tree, key, value)
            origins.pop(key, None)
    settings = _Builder(env, origins, base_dir).struct(
        Settings, tree, "", {"data_dir": resolved_dir, "config_dir": base_dir}
    )
    _check(settings)
    return settings, tree


def _data_dir(explicit: Path | None, env: Mapping[str, str]) -> Path:
    if explicit is not None:
        return explicit.expanduser().absolute()
    named = env.get(DATA_DIR_VARIABLE)
    if named is None:
        return Path(platformdirs.user_data_dir("minutebook", appauthor=False))
    if not named:
        raise SettingsError(f"{DATA_DIR_VARIABLE} is empty: name a directory or unset it.")
    return Path(named).expanduser().absolute()


def _read_file(data_dir: Path, env: Mapping[str, str]) -> tuple[dict[str, Any], Path]:
    named = env.get(CONFIG_VARIABLE)
    if named is not None and not named:
        raise SettingsError(f"{CONFIG_VARIABLE} is empty: name a file or unset it.")
    path = Path(named).expanduser().absolute() if named else data_dir / CONFIG_NAME
    label = f"{CONFIG_VARIABLE} ({path})" if named else str(path)
    try:
        return tomllib.loads(path.read_bytes().decode()), path.parent
    except FileNotFoundError:
        if named:
            raise SettingsError(f"{label}: there is no such file; correct or unset it.") from None
        return {}, path.parent
    except OSError as error:
        raise SettingsError(f"{label}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{label}: is not UTF-8; save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        # The cause may hold the whole document, secrets included: only its one line goes on.
        raise SettingsError(f"{label}: is not TOML: {error}.") from None
    except RecursionError:
        raise SettingsError(f"{label}: is nested too deeply.") from None


def _overlay_environment(tree: dict[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Puts MINUTEBOOK_* values into `tree`; returns which key came from which variable."""
    known = {leaf.env: leaf for leaf in leaves() if leaf.env is not None}
    reserved = (CONFIG_VARIABLE, DATA_DIR_VARIABLE)
    origins: dict[str, str] = {}
    others: list[str] = []
    for name in sorted(set(env).difference(reserved)):
        if (leaf := known.get(name)) is not None:
            _place(tree, leaf.key, _from_text(leaf, name, env[name]))
            origins[leaf.key] = name
        elif name.startswith(ENV_PREFIX):
            others.append(name)
    referenced = set(_referenced(tree))
    for name in others:
        if name not in referenced:
            hint = _suggestion(name, [*known, *reserved])
            raise SettingsError(f"{name} is not a setting{hint}: correct or unset it.")
    return origins


def _referenced(value: Any) -> Iterator[str]:
    """The variables that values anywhere in the tree refer to."""
    if isinstance(value, (dict, list)):
        inner = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
        for each in inner:
            yield from _referenced(each)
    elif isinstance(value, str) and (match := _REFERENCE.fullmatch(value)) is not None:
        yield match[1]


def _from_text(leaf: Leaf, name: str, text: str) -> Any:
    kind = plain(leaf.kind)
    if get_origin(kind) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if not text:
        raise SettingsError(f"{leaf.key} ({name}) is empty: give it a value or unset it.")
    if kind is bool:
        if text not in _BOOLEANS:
            raise SettingsError(f"{leaf.key} ({name}) must be true or false.")
        return _BOOLEANS[text]
    if kind is int:
        if _INTEGER.fullmatch(text) is None:
            raise SettingsError(f"{leaf.key} ({name}) must be a whole number.")
        return int(text)
    return text


def _place(tree: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    table = tree
    for depth, parent in enumerate(parents, 1):
        inner: Any = table.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise SettingsError(f"{'.'.join(parents[:depth])} must be a table.")
        table = cast("dict[str, Any]", inner)
    table[last] = value


def _suggestion(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), 1)
    return f" (did you mean {close[0]}?)" if close else ""


class _Builder:
    """Converts by the types, key by key, so that every refusal has the full name of its key."""

    def __init__(self, env: Mapping[str, str], origins: Mapping[str, str], base_dir: Path) -> None:
        self._env = env
        self._origins = origins
        self._base_dir = base_dir

    def struct(self, kind: type[S], raw: Any, key: str, fixed: Mapping[str, Any] | None = None) -> S:
        table = self._table(raw, key)
        values: dict[str, Any] = dict(fixed or {})
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind) if field.name not in values}
        for name in table:
            if name == "dataDir" and not key:
                raise SettingsError(f"dataDir cannot be set in the file: set {DATA_DIR_VARIABLE} instead.")
            if name not in fields:
                hint = _suggestion(name, fields)
                raise SettingsError(f"{_join(key, name)} is not a setting{hint}: correct or remove it.")
        for name, field in fields.items():
            if name in table:
                values[field.name] = self._value(field.type, table[name], _join(key, name))
            elif field.required:
                raise SettingsError(f"{_join(key, name)} is missing: set it.")
        return kind(**values)

    def _value(self, kind: Any, raw: Any, key: str) -> Any:
        bare = plain(kind)
        if isinstance(bare, type) and issubclass(bare, Section):
            return self.struct(bare, raw, key)
        if get_origin(bare) is dict:
            inner = get_args(bare)[1]
            if bare == dict[str, str] and isinstance(raw, list):
                raw = {str(name): name for name in cast("list[object]", raw)}
            return {name: self._value(inner, value, f"{key}.{name}") for name, value in self._table(raw, key).items()}
        if (item := item_of(kind)) is not None:
            tables = self._leaf(Annotated[list[Any], get_args(kind)[1]], raw, key)
            return tuple(self.struct(item, each, f"{key}[{place}]") for place, each in enumerate(tables))
        value = self._leaf(kind, raw, key)
        if is_secret(kind) and value is not None:
            return self._secret(value, key) if isinstance(value, str) else tuple(self._secret(x, key) for x in value)
        return self._with_file(value, key) if isinstance(value, str) else value

    def _with_file(self, value: str, key: str) -> Any:
        """The value, with the file that it names beside the settings file."""
        if key.endswith(".jwksFile"):
            return str(self._base_dir / value)
        if key.startswith("agents.") and key.endswith(".counter"):
            return resolved_counter(value, self._base_dir)
        return _rules_of(self._base_dir / value, self._named(key)) if key == "redaction.rules" else value

    def _leaf(self, kind: Any, raw: Any, key: str) -> Any:
        try:
            return msgspec.convert(raw, kind)
        except msgspec.ValidationError as error:
            if get_origin(plain(kind)) is Literal:
                raise SettingsError(f"{self._named(key)} must be one of {', '.join(get_args(plain(kind)))}.") from None
            expected, _, place = str(error).partition(" - at `$")
            # msgspec speaks of types and bounds here, never of the value.
            raise SettingsError(
                f"{self._named(key)}{place.rstrip('`')}: {expected[:1].lower()}{expected[1:]}."
            ) from None

    def _secret(self, value: str, key: str) -> str:
        match = _REFERENCE.fullmatch(value)
        if match is None:
            return value
        if not (resolved := self._env.get(match[1])):
            raise SettingsError(f"{self._named(key)} refers to the variable {match[1]}, which is not set: set it.")
        return resolved

    def _table(self, raw: Any, key: str) -> dict[str, Any]:
        if not isinstance(raw, dict):
            raise SettingsError(f"{self._named(key)} must be a table.")
        return cast("dict[str, Any]", raw)

    def _named(self, key: str) -> str:
        return f"{key} ({self._origins[key]})" if key in self._origins else key


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _check(settings: Settings) -> None:
    _check_server(settings)
    _check_database(settings)
    check_issuers(settings.issuers)
    _check_development(settings)
    check_clearance(settings)
    _check_redaction(settings)
    check_outward(settings)
    check_conversations(settings)
    check_kept(settings)
    check_linking(settings)
    check_channels(settings)
    limits = settings.limits
    if limits.text_bytes > limits.payload_bytes:
        raise SettingsError("limits.textBytes must not exceed limits.payloadBytes: such a text could not be stored.")


def _check_server(settings: Settings) -> None:
    server = settings.server
    for host in server.allowed_hosts:
        if _HOST.fullmatch(host) is None:
            raise SettingsError("server.allowedHosts must list host names in lower case, without scheme, port or *.")
    for origin in server.allowed_origins:
        if _ORIGIN.fullmatch(origin) is None:
            raise SettingsError(
                "server.allowedOrigins must list origins such as https://app.example, without path or *."
            )
    if server.metrics_port == server.port:
        raise SettingsError("server.metricsPort must differ from server.port: it is a port of its own.")
    if server.jobs_metrics_port is not None and server.jobs_metrics_port in (server.port, server.metrics_port):
        raise SettingsError("server.jobsMetricsPort must differ from server.port and server.metricsPort.")


def _check_database(settings: Settings) -> None:
    database = settings.database
    for field in msgspec.structs.fields(database):
        value = getattr(database, field.name)
        if not is_secret(field.type) or value is None:
            continue
        if not value.startswith(("postgresql://", "postgres://")):
            raise SettingsError(f"database.{field.encode_name} must start with postgresql:// (its value is not shown).")
        if database.url is None:
            raise SettingsError(f"database.{field.encode_name} needs database.url: set both, or neither.")


def _check_development(settings: Settings) -> None:
    if not settings.development:
        return
    if not is_loopback(settings.server.host):
        raise SettingsError("development must not be true while server.host is not a loopback address: remove it.")
    if settings.has_human_issuer:
        raise SettingsError("development must not be true beside an issuer for people: remove one of them.")


def _rules_of(path: Path, label: str) -> tuple[Rule, ...]:
    try:
        return parse_rules(path.read_bytes().decode(), f"{label}: {path}")
    except OSError as error:
        raise SettingsError(f"{label}: {path} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{label}: {path} is not UTF-8; save it as UTF-8.") from None
    except RuleError as error:
        raise SettingsError(str(error)) from None


def _check_redaction(settings: Settings) -> None:
    try:
        check_rules(settings.redaction.all_rules)
    except RuleError as error:
        raise SettingsError(f"redaction.rules: {error}") from None
