"""Every key of the settings, as the loader and the reference page need it."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from .settings import ENV_PREFIX, Settings
from .settings_section import Section, is_secret

LIST = "[]"
"""Ends the name of a list of tables."""


class SettingDoc(NamedTuple):
    """One key for the reference page: dotted name; type, default, variable as a reader sees them; a sentence.

    `env` is None where no variable sets the key (tables whose names the operator chooses).
    """

    key: str
    type: str
    default: str
    env: str | None
    doc: str
    secret: bool = False


class Leaf(NamedTuple):
    """One key as the loader needs it: `kind` is the annotated type, `default` may be msgspec.NODEFAULT."""

    key: str
    kind: Any
    default: Any
    env: str | None

    @property
    def meta(self) -> Meta:
        """The documentation and bounds that stand next to the field."""
        return next(part for part in get_args(self.kind) if isinstance(part, Meta))

    @property
    def is_secret(self) -> bool:
        """Whether the value may be `env:NAME` and is never shown."""
        return is_secret(self.kind)


def describe() -> list[SettingDoc]:
    """Every key in the order of the types, for the generated reference page."""
    return [
        SettingDoc(
            leaf.key,
            _type_text(leaf.kind),
            _default_text(leaf),
            leaf.env,
            leaf.meta.description or "",
            leaf.is_secret,
        )
        for leaf in leaves()
    ]


def leaves() -> Iterator[Leaf]:
    """Every key that holds a value, with the variable that sets it."""
    yield from _leaves(Settings, "", ENV_PREFIX)


def _leaves(kind: type[Section], key: str, env: str | None) -> Iterator[Leaf]:
    for field in msgspec.structs.fields(kind):
        name = f"{key}.{field.encode_name}" if key else field.encode_name
        variable = f"{env}{field.name.upper()}" if env else None
        entry = _section_of(get_args(field.type)[1]) if get_origin(field.type) is dict else None
        if (section := _section_of(field.type)) is not None:
            yield from _leaves(section, name, f"{variable}_" if variable else None)
        elif entry is not None:
            yield from _leaves(entry, f"{name}.<name>", None)
        elif (item := item_of(field.type)) is not None:
            yield from _leaves(item, f"{name}{LIST}", None)
        elif any(isinstance(part, Meta) for part in get_args(field.type)):
            default = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            is_table = get_origin(plain(field.type)) is dict
            yield Leaf(name, field.type, default, None if is_table else variable)


def _section_of(kind: Any) -> type[Section] | None:
    kind = plain(kind)
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def item_of(kind: Any) -> type[Section] | None:
    """The table that a list of tables is made of; None where it is no such list."""
    kind = plain(kind)
    return _section_of(get_args(kind)[0]) if get_origin(kind) is tuple else None


def plain(kind: Any) -> Any:
    """The type without Annotated and without None."""
    if get_origin(kind) is Annotated:
        return plain(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return plain(next(part for part in get_args(kind) if part is not type(None)))
    return kind


def _type_text(kind: Any) -> str:
    if any(isinstance(part, type) and issubclass(part, msgspec.Struct) for part in _alternatives(kind)):
        return "string or table"
    kind = plain(kind)
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return "list of strings"
    if get_origin(kind) is dict:
        return "table"
    return {str: "string", int: "integer", bool: "boolean", Path: "path"}[kind]


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The parts of a union; none where it is not one."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return get_args(bare) if get_origin(bare) in (Union, types.UnionType) else ()


def _default_text(leaf: Leaf) -> str:
    if leaf.key == "dataDir":
        return "the user's data directory"
    match leaf.default:
        case msgspec.NODEFAULT:
            return "required"
        case None:
            return "unset"
        case bool() as flag:
            return str(flag).lower()
        case other:
            return msgspec.json.encode(other).decode()
