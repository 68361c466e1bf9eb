"""How channels read what comes in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import msgspec

from ...commands.channels.ports import NotAuthentic
from ...domain.errors import Invalid, Malformed
from ...domain.jsontext import check_body

TOLERANCE = timedelta(minutes=5)
"""A signature that is older, or that much of the future, does not count."""

T = TypeVar("T")


def signed_at(text: str, now: datetime) -> datetime:
    """The moment that a request was signed at, from Unix seconds. Raises NotAuthentic where that is not now."""
    if not (text.isascii() and text.isdigit() and len(text) <= 11):
        raise NotAuthentic
    at = datetime.fromtimestamp(int(text), UTC)
    if abs(now - at) > TOLERANCE:
        raise NotAuthentic
    return at


def digest(*parts: str) -> str:
    """Of what proved a request, for the table of those that were seen: nothing can be made from it."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def decoded(body: bytes) -> dict[str, Any]:
    """A JSON object as it came. Raises Invalid where it is none; laws 20 and 21 hold for it."""
    try:
        check_body(body)
        value = msgspec.json.decode(body)
    except Malformed as error:
        raise Invalid.at("$", error.detail) from None
    if not isinstance(value, dict):
        raise Invalid.at("$", "must be an object")
    return cast("dict[str, Any]", value)


def shaped(value: Mapping[str, Any], shape: type[T]) -> T:
    """A decoded object in its shape. Raises Invalid with the path where it is not of it; no value stands in it."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `")
        raise Invalid.at(place.rstrip("`") or "$", said) from None
