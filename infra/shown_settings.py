"""Settings as an operator may see them: each value under its key, what is set and what is a default, no secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import msgspec
from msgspec import Meta

from .settings import Settings
from .settings_section import Section, is_secret

HIDDEN = "***"

_URL = re.compile(r"[a-z][a-z+]*://")
_USER = re.compile(r"(?<=://)[^/?#\s]*@")
_QUERY = re.compile(r"(?<=\?).+", re.DOTALL)
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Shown(NamedTuple):
    """One value. path: the names of its tables and its own. value: as JSON has it, None for unset; `***` for a
    secret. is_set: in the file, the environment or on the command line."""

    path: tuple[str, ...]
    value: Any
    is_set: bool

    @property
    def key(self) -> str:
        """The dotted key, as TOML writes it."""
        return ".".join(_name(each) for each in self.path)


def shown(settings: Settings, tree: Mapping[str, Any]) -> Iterator[Shown]:
    """Every value in the order of the types. tree: what is set (settings_load.load_told)."""
    yield from _section(settings, tree, ())


def toml(value: Any) -> str:
    """A value as TOML writes it on one line; what is None in a table is left out."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return "{ " + ", ".join(f"{_name(name)} = {toml(each)}" for name, each in members if each is not None) + " }"
    if isinstance(value, list):
        return f"[{', '.join(toml(each) for each in cast('list[Any]', value))}]"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def plain_value(value: Any) -> Any:
    """A value of the settings as JSON has it; what is None in a table is left out. Secrets within it are hidden, also
    whom a URL names and what it asks for."""
    if isinstance(value, msgspec.Struct):
        named = ((field, getattr(value, field.name)) for field in msgspec.structs.fields(value))
        return {field.encode_name: _leaf(each, field.type) for field, each in named if each is not None}
    if isinstance(value, dict):
        return {str(name): plain_value(each) for name, each in cast("dict[Any, Any]", value).items()}
    if isinstance(value, tuple | list):
        return [plain_value(each) for each in cast("tuple[Any, ...]", value)]
    if isinstance(value, str):
        return _QUERY.sub(HIDDEN, _USER.sub(f"{HIDDEN}@", value)) if _URL.match(value) else value
    return str(value) if isinstance(value, Path) else value


def _section(section: Section, tree: Any, path: tuple[str, ...]) -> Iterator[Shown]:
    table = cast("dict[str, Any]", tree) if isinstance(tree, dict) else {}
    for field in msgspec.structs.fields(section):
        value, here = getattr(section, field.name), (*path, field.encode_name)
        given = table.get(field.encode_name)
        tables = _tables(value)
        if isinstance(value, Section):
            yield from _section(value, given, here)
        elif tables is not None:
            inner = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
            for name, each in tables.items():
                yield from _section(each, inner.get(name), (*here, name))
        elif any(isinstance(part, Meta) for part in get_args(field.type)):
            yield Shown(here, _leaf(value, field.type), field.encode_name in table)


def _tables(value: Any) -> dict[str, Section] | None:
    """Tables whose names the operator chooses; None for anything else, an empty one among it."""
    if not isinstance(value, dict) or not value:
        return None
    named = cast("dict[str, Any]", value)
    return named if all(isinstance(each, Section) for each in named.values()) else None


def _leaf(value: Any, kind: Any) -> Any:
    return _hidden(value) if is_secret(kind) else plain_value(value)


def _hidden(value: Any) -> Any:
    """As many as there are, and nothing of any."""
    if isinstance(value, dict):
        return dict.fromkeys(cast("dict[str, Any]", value), HIDDEN)
    if isinstance(value, tuple):
        return [HIDDEN for _ in cast("tuple[Any, ...]", value)]
    return None if value is None else HIDDEN


def _name(name: str) -> str:
    return name if _BARE.fullmatch(name) else msgspec.json.encode(name).decode().replace("\x7f", "\\u007f")
