"""What every part of the settings is made of."""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec
from msgspec import Meta

MAX_DURATION_DIGITS = 9
_DURATION = re.compile(rf"([0-9]{{1,{MAX_DURATION_DIGITS}}})([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> int:
    """`30s`, `15m`, `24h` or `90d` in seconds. Raises ValueError for anything else, white space included."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("must be a whole number with s, m, h or d after it, such as 24h")
    return int(match[1]) * _UNIT_S[match[2]]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Base of every table of the settings file."""


def is_secret(kind: Any) -> bool:
    """Whether the annotated type is marked as a secret."""
    return any(isinstance(part, Meta) and bool(part.extra) for part in get_args(kind))


class SecretSection(Section, frozen=True):
    """Base of those with secrets: printing one hides them."""

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({', '.join(shown)})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """Name and value of each field, `***` for a secret; msgspec would otherwise print it."""
        return [
            (field.name, "***" if value and is_secret(field.type) else value)
            for field, value in ((field, getattr(self, field.name)) for field in msgspec.structs.fields(self))
        ]
