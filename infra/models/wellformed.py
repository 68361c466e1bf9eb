"""Text from models and tools as the log can keep it: repaired, never refused (rules.md, law 20)."""

from __future__ import annotations

import json
import re
from typing import Any, cast

REPLACEMENT = "\ufffd"

UNREADABLE = "unreadableArguments"
"""The one argument of a call whose arguments were no JSON object: what the model wrote, for it to see its mistake."""

MAX_QUOTED_CHARS = 1000
"""Of unreadable arguments that are kept."""

MAX_INT = 2**53 - 1
"""Integers beyond it are not the same number everywhere, and cannot be signed."""

_UNKEPT = re.compile("[\ud800-\udfff\0]")
_HIGH = re.compile("[\ud800-\udbff]$")


def repaired(text: str) -> str:
    """The text with surrogate pairs joined; lone surrogates and NUL become U+FFFD."""
    if _UNKEPT.search(text) is None:
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\0", REPLACEMENT)


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

    Where that is no JSON object, or holds a number that not every reader of JSON reads alike, the answer has the
    member UNREADABLE alone: a turn does not fail by it, the model hears of it.
    """
    text = repaired(text).strip()
    if not text:
        return {}
    try:
        value: Any = json.loads(text, parse_constant=_refused, parse_int=_checked_int)
    except (ValueError, RecursionError):
        value = None
    return unreadable(text) if not isinstance(value, dict) else cast("dict[str, Any]", kept(value))


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


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _checked_int(digits: str) -> int:
    number = int(digits) if len(digits) < 20 else MAX_INT + 1
    if abs(number) > MAX_INT:
        raise ValueError("too large")
    return number
