"""A text as somebody else reads it: without what shows nothing, or with its percent escapes decoded."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator

from .linear import Span
from .rules import Finding

ERRORS = "surrogatepass"
"""How texts become bytes: half a surrogate pair may end a chunk; what to do about it is not decided here."""

_INVISIBLE_RANGES = (
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x600, 0x605), (0x61C, 0x61C), (0x6DD, 0x6DD), (0x70F, 0x70F), (0x890, 0x891)),
    *((0x8E2, 0x8E2), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E)),
    *((0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB)),
    *((0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)),
    (0xE0000, 0xE0FFF),
)
INVISIBLE = "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in _INVISIBLE_RANGES) + "]"
"""Characters that show nothing (Unicode's format characters, fillers, variation selectors): a secret that is broken by
them is looked for without them too."""

ESCAPE = "%[0-9A-Fa-f]{2}"
"""A byte as URLs write it. No escape begins within another one."""

_INVISIBLE_RUN = re.compile(f"({INVISIBLE}+)")
_ESCAPE = re.compile(ESCAPE.encode())
_LAST_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})\Z")
_OPEN_ESCAPE = re.compile(rb"%[0-9A-Fa-f]?\Z")
_SPACES = (b" ", b"\n", b"\t", b"\r")
_SPACE = re.compile(rb"[ \n\t\r]")
_ESCAPE_BYTES = 3


class View:
    """Another reading of a text, and where each byte of it stood.

    pieces: what is read, and how many bytes of the text it stands for: as many, none, or several for one byte.
    """

    def __init__(self, pieces: Iterable[tuple[bytes, int]]) -> None:
        self._origins: list[int] = []
        self._places: list[int] = []
        self._widths: list[int] = []
        kept: list[bytes] = []
        at = length = 0
        for data, width in pieces:
            if data:
                self._origins.append(at)
                self._places.append(length)
                self._widths.append(width // len(data))
                kept.append(data)
                length += len(data)
            at += width
        self._length = at
        self.text = b"".join(kept)

    def place(self, at: int) -> int:
        """Where the byte at `at` stood; the end of the text for the end of the view."""
        return self._span_of(at)[0] if at < len(self.text) else self._length

    def placed(self, finding: Finding, by: int = 0) -> Finding:
        """A match in the view, as one in the text, which begins at `by` of a longer one."""
        secret = finding.secret
        start, end = self._span(finding.start, finding.end, by)
        return Finding(start, end, None if secret is None else self._span(*secret, by), finding.place)

    def _span(self, start: int, end: int, by: int) -> Span:
        return self.place(start) + by, self._span_of(end - 1)[1] + by

    def _span_of(self, at: int) -> Span:
        part = bisect.bisect_right(self._places, at) - 1
        width = self._widths[part]
        start = self._origins[part] + (at - self._places[part]) * width
        return start, start + width


def visible(text: bytes) -> View:
    """The text without its invisible characters."""
    return View(_visible_pieces(text))


def escaped_words(text: bytes) -> Iterator[Span]:
    """Where a word stands that has a percent escape in it: no secret that is written with them has a space in it."""
    last = 0
    for start, end in escapes(text):
        if start < last:
            continue
        start = max(last, *(text.rfind(space, last, start) + 1 for space in _SPACES))  # noqa: PLW2901 - of its word
        last = word_end(text, end)
        yield start, last


def word_end(text: bytes, start: int = 0) -> int:
    """Where the word that `start` stands in is over."""
    ends = _SPACE.search(text, start)
    return len(text) if ends is None else ends.start()


def unescaped(text: bytes) -> View:
    """The text with its percent escapes decoded, once."""
    return View(_unescaped_pieces(text))


def escapes(text: bytes) -> Iterator[Span]:
    """Where its percent escapes stand."""
    if b"%" in text:
        yield from (found.span() for found in _ESCAPE.finditer(text))


def last_escaped(text: bytes) -> bytes:
    """The byte that an escape at the end of the text stands for; nothing where none is there."""
    found = _LAST_ESCAPE.search(text)
    return b"" if found is None else bytes.fromhex(found[1].decode())


def without_open_escape(text: bytes) -> bytes:
    """The text without an escape at its end of which a part is still to come."""
    return text[: text.rindex(b"%")] if _OPEN_ESCAPE.search(text) else text


def _visible_pieces(text: bytes) -> Iterator[tuple[bytes, int]]:
    for number, piece in enumerate(_INVISIBLE_RUN.split(text.decode("utf-8", ERRORS))):
        data = piece.encode("utf-8", ERRORS)
        yield (b"" if number % 2 else data), len(data)


def _unescaped_pieces(text: bytes) -> Iterator[tuple[bytes, int]]:
    at = 0
    for start, end in escapes(text):
        yield text[at:start], start - at
        yield bytes.fromhex(text[start + 1 : end].decode()), _ESCAPE_BYTES
        at = end
    yield text[at:], len(text) - at
