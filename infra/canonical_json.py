"""The RFC 8785 form of JSON values: bytes equal to the rfc8785 library's, at a tenth of the cost for what is common."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

import msgspec
import rfc8785

EXACT = 2**53
"""Below it, every integer is a double of its own."""

_quote = json.encoder.encode_basestring
"""A text with the escapes of RFC 8785, and no others."""


def canonical(value: Any) -> bytes:
    """The canonical form of JSON-ready data: None, booleans, numbers, texts, lists, tuples and mappings by text.

    A number has one form however it was written, since the log keeps 1e20 as an integer of 21 digits: an integer that
    is a double's shortest decimal form has that double's. Any other one beyond 2**53, which RFC 8785 does not know, is
    written with all its digits. Raises ValueError or TypeError for what has no form, such as a lone surrogate or NaN.
    """
    # Where all names are ASCII and no number is a double or a large one, sorted compact JSON is that form.
    if _is_plain(value):
        return msgspec.json.encode(value, order="sorted")
    parts: list[str] = []
    _write(value, parts.append)
    return "".join(parts).encode()


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return all(name.isascii() and _is_plain(inner) for name, inner in members.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, cast("Sequence[Any]", value)))
    if isinstance(value, int):
        return -EXACT < value < EXACT
    return value is None or isinstance(value, str)


def _write(value: Any, put: Callable[[str], None]) -> None:
    if isinstance(value, str):
        put(_quote(value))
    elif isinstance(value, Mapping):
        _write_members(cast("Mapping[str, Any]", value), put)
    elif isinstance(value, list | tuple):
        put("[")
        for place, each in enumerate(cast("Sequence[Any]", value)):
            if place:
                put(",")
            _write(each, put)
        put("]")
    elif isinstance(value, int) and not isinstance(value, bool):
        put(_integer(value))
    else:
        put(rfc8785.dumps(value).decode())


def _write_members(members: Mapping[str, Any], put: Callable[[str], None]) -> None:
    put("{")
    for place, name in enumerate(sorted(members, key=_utf16)):
        if place:
            put(",")
        put(f"{_quote(name)}:")
        _write(members[name], put)
    put("}")


def _utf16(name: str) -> bytes:
    """What RFC 8785 orders names by."""
    return name.encode("utf-16-be")


def _integer(number: int) -> str:
    if -EXACT < number < EXACT:
        return str(number)
    try:
        double = float(number)
    except OverflowError:
        return str(number)
    return rfc8785.dumps(double).decode() if Decimal(repr(double)) == number else str(number)
