"""What may stand in a conversation as text: rules for what people send, and where a text may be cut."""

from __future__ import annotations

import unicodedata

from ..errors import Invalid
from ..jsontext import repair_text
from .commands import MAX_TEXT_CHARS

_INVISIBLE = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Mn", "Mc", "Me"})
_JOINER = "\u200d"
_HANGUL_JAMO = range(0x1100, 0x1200)


def checked_text(text: str, path: str = "$.text", most: int = MAX_TEXT_CHARS) -> str:
    """The text of a turn as it is stored: without NUL, which the log cannot keep, and otherwise as it was sent.

    Raises Invalid where it is empty, has nothing but white space, combining marks and invisible characters, has a lone
    surrogate, or is longer than `most` code points.
    """
    stored = text.replace("\0", "")
    if len(stored) > most:
        raise Invalid.at(path, f"must be at most {most} characters")
    if any("\ud800" <= char <= "\udfff" for char in stored):
        raise Invalid.at(path, "must not contain lone surrogates")
    if not is_legible(stored):
        raise Invalid.at(path, "must not be empty, or white space or combining marks alone")
    return stored


def is_legible(text: str) -> bool:
    """Whether there is anything in it to read."""
    return any(unicodedata.category(char) not in _INVISIBLE for char in text)


def cut(text: str, most: int) -> str:
    """At most the first `most` code points, less where that would part what is read as one character.

    Combining marks, variation selectors, skin tones, joined emoji, flags, Hangul syllables and CR LF stay whole.
    """
    end = max(0, min(most, len(text)))
    if end == len(text):
        return text
    while end > 0 and _joins(text, end):
        end -= 1
    return text[:end]


def _joins(text: str, place: int) -> bool:
    """Whether the characters before and at `place` belong together."""
    before, here = text[place - 1], text[place]
    if _JOINER in (before, here) or (before == "\r" and here == "\n"):
        return True
    if (
        unicodedata.category(here) in ("Mn", "Mc", "Me")
        or 0x1F3FB <= ord(here) <= 0x1F3FF
        or 0xE0020 <= ord(here) <= 0xE007F
    ):
        return True
    if _is_regional(here):
        run = place
        while run > 0 and _is_regional(text[run - 1]):
            run -= 1
        return (place - run) % 2 == 1
    return ord(before) in _HANGUL_JAMO and ord(here) in _HANGUL_JAMO


def _is_regional(char: str) -> bool:
    return 0x1F1E6 <= ord(char) <= 0x1F1FF


def repaired(text: str) -> str:
    """What a model or a tool said, as the log can keep it: lone surrogates become U+FFFD, NUL goes."""
    return repair_text(text).replace("\0", "")
