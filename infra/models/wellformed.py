"""Text from models and tools as the log can keep it: repaired, never refused (rules.md, law 20)."""

from __future__ import annotations

import json
import math
import re
from typing import Any, cast

from ...domain.jsontext import MAX_DEPTH, repair_text

REPLACEMENT = "\ufffd"

UNREADABLE = "unreadableArguments"
"""The one argument of a call whose arguments were no JSON object: what the model wrote, for it to see its mistake."""

MAX_QUOTED_CHARS = 1000
"""Of unreadable arguments that are kept."""

MAX_INT = 2**63 - 1
"""Of signed 64 bits; what is beyond them the log does not take from anybody."""

MAX_DIGITS = 20

_HIGH = re.compile("[\ud800-\udbff]$")


def repaired(text: str) -> str:
    """The text with surrogate pairs joined; lone surrogates and NUL become U+FFFD."""
    return repair_text(text).replace("\0", REPLACEMENT)


class Joiner:
    """Repairs a text that comes in pieces, which may part a character."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can be told of the text so far and was not yet; half a character waits for its other half."""
        text = self._held + piece
        self._held = text[-1] if _HIGH.search(text) else ""
        return repaired(text[: len(text) - len(self._held)])

    def rest(self) -> str:
        """What still waited when the text ended."""
        held, self._held = self._held, ""
        return repaired(held)


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a tool call, as the model wrote them; nothing at all is no arguments.

    Where that is no JSON object, or holds what the log cannot keep, the answer has the
    member UNREADABLE alone: a turn does not fail by it, the model hears of it.
    """
    text = repaired(text).strip()
    if not text:
        return {}
    try:
        value: Any = json.loads(text, parse_constant=_refused, parse_int=_checked_int, parse_float=_checked_float)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not _is_shallow(value, MAX_DEPTH):
        return unreadable(text)
    return cast("dict[str, Any]", kept(value))


def unreadable(text: str) -> dict[str, Any]:
    """Arguments that say that these could not be read."""
    return {UNREADABLE: text[:MAX_QUOTED_CHARS]}


def kept(value: Any) -> Any:
    """A JSON value with all its texts repaired, names of members too."""
    if isinstance(value, str):
        return repaired(value)
    if isinstance(value, list):
        return [kept(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {repaired(name): kept(each) for name, each in cast("dict[str, Any]", value).items()}
    return value


def _is_shallow(value: Any, most: int) -> bool:
    if not isinstance(value, (dict, list)):
        return True
    inner = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
    return most > 0 and all(_is_shallow(each, most - 1) for each in inner)


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _checked_int(digits: str) -> int:
    number = int(digits) if len(digits) <= MAX_DIGITS else MAX_INT + 1
    if not -MAX_INT - 1 <= number <= MAX_INT:
        raise ValueError("too large")
    return number


def _checked_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("too large")
    return number
