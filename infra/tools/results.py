"""What tools answer, as data for a model: text or compact JSON, repaired and bounded."""

from __future__ import annotations

from typing import Any

import msgspec

from ...commands.conversations.ports import ToolResult
from ..models.wellformed import UNREADABLE, kept, repaired

MAX_OUTPUT_BYTES = 65_536
"""Of what a tool answers, in UTF-8, the mark of a cut included."""

CUT_MARK = "\n[cut: the output was longer]"

MAX_PROBLEM_CHARS = 1000
"""Of what is wrong with arguments, and of a tool's exception."""

NOT_AN_OBJECT = "the arguments are not a JSON object with numbers of at most 64 bits; send them again"


def answered(value: Any) -> ToolResult:
    """The result of a call that answered `value`. A value that is no JSON is an error that says so."""
    try:
        return ToolResult("ok", bounded(_as_text(value)))
    except (TypeError, ValueError, RecursionError, OverflowError):
        return ToolResult("error", f"the tool answered a {type(value).__name__}, which is no JSON")


def failed(words: str) -> ToolResult:
    """The result of a call that failed."""
    return ToolResult("error", repaired(words)[:MAX_PROBLEM_CHARS])


def unreadable(arguments: Any) -> str | None:
    """What is wrong with arguments that the provider could not read; None where it could."""
    return NOT_AN_OBJECT if UNREADABLE in arguments else None


def bounded(text: str) -> str:
    """The text, repaired, or as much of its beginning as there is room for, with a mark."""
    data = repaired(text).encode()
    if len(data) <= MAX_OUTPUT_BYTES:
        return data.decode()
    return data[: MAX_OUTPUT_BYTES - len(CUT_MARK.encode())].decode(errors="ignore") + CUT_MARK


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(kept(msgspec.to_builtins(value, str_keys=True))).decode()
