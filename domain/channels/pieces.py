"""Cuts a text to the length of a platform's messages."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from itertools import accumulate

from .messages import Outgoing

EMPTY = "(no text)"
"""Stands for an answer without a visible character; platforms refuse an empty message."""

_BREAKS = ("\n\n", "\n", " ")
_JOINERS = frozenset("\u200d\ufe0e\ufe0f")


def worded(outgoing: Outgoing) -> str:
    """The text of a part; a line before it says where it is from, or that it was asked, where that is so."""
    heads: list[str] = []
    if isinstance(outgoing.label, str):
        heads.append(f"From {outgoing.label}:")
    if outgoing.kind == "echo":
        heads.append("Asked:")
    return "\n".join([*heads, outgoing.text])


def pieces(text: str, limit: int, width: Callable[[str], int] = lambda _: 1) -> list[str]:
    """A text in pieces of at most `limit`, which joined are the text. width: what one character counts, at most limit.

    A cut is behind a blank line, else a line, else a word where one stands in the second half of a piece; it never
    parts a character from its accents, unless those alone are longer than a piece.
    """
    ends = [0, *accumulate(map(width, text))]
    found: list[str] = []
    begin = 0
    while ends[-1] - ends[begin] > limit:
        end = _last(ends, begin, limit)
        cut = _cut(text, begin, end)
        found.append(text[begin:cut])
        begin = cut
    return [*found, text[begin:]]


def visible(parts: list[str]) -> list[str]:
    """Those that show something; EMPTY where none does."""
    return [part for part in parts if part.strip()] or [EMPTY]


def utf16_units(char: str) -> int:
    """Of one character."""
    return 2 if ord(char) > 0xFFFF else 1


def _last(ends: list[int], begin: int, limit: int) -> int:
    low, high = begin + 1, len(ends) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if ends[middle] - ends[begin] <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _cut(text: str, begin: int, end: int) -> int:
    half = begin + (end - begin) // 2
    for mark in _BREAKS:
        at = text.rfind(mark, half, end)
        if at >= 0:
            return at + len(mark)
    at = end
    while at > begin + 1 and _belongs_together(text[at - 1], text[at]):
        at -= 1
    return at if at > begin + 1 else end


def _belongs_together(left: str, right: str) -> bool:
    return unicodedata.combining(right) != 0 or right in _JOINERS or left == "\u200d"
