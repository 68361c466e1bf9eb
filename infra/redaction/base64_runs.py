"""Secrets in Base64: which runs of a text may be one, and what they say."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator

from .linear import Span

RUN_CHARS = "[A-Za-z0-9+/_-]"
"""Both alphabets of Base64."""

MIN_RUN_CHARS = 20
"""Shorter runs hold no secret that a rule knows by its form."""

MIN_CORE_CHARS = 3
"""Less of an encoded word stands in too many texts to be looked for."""

ALIGNMENTS = 3
"""Where the bytes of a word may begin within a group of Base64."""

RUN_BEGINNING = f"{RUN_CHARS}+={{0,2}}"
"""What a stream must wait for the end of."""

_GROUP = 4
_RUN = re.compile(rb"[A-Za-z0-9+/_-]*={0,2}")
_CHARS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-")
_STANDARD = bytes.maketrans(b"-_", b"+/")
_STRINGS = re.compile(rb"[\x20-\x7e\t\r\n]{12,}")
"""What reads as text in decoded bytes: noise does not for that long."""


def runs_around(text: bytes, cores: Iterable[Span]) -> Iterator[Span]:
    """Where a run stands that may be Base64 and has one of these within it; each once, from left to right."""
    last = 0
    for core, core_end in cores:
        if core_end <= last:
            continue
        start = core
        while start > last and text[start - 1] in _CHARS:
            start -= 1
        found = _RUN.match(text, start)
        last = start if found is None else found.end()
        if last - start >= MIN_RUN_CHARS:
            yield start, last


def readings(run: bytes) -> Iterator[bytes]:
    """The texts that a run holds, decoded from each of its first characters: it may be glued to what stands before."""
    chars = run.rstrip(b"=").translate(_STANDARD)
    for first in range(_GROUP):
        rest = chars[first:]
        rest = rest[: len(rest) - (len(rest) % _GROUP == 1)]  # a single last character stands for no byte
        yield from _STRINGS.findall(base64.b64decode(rest + b"=" * (-len(rest) % _GROUP)))


def cores_of(data: bytes, least_chars: int = MIN_CORE_CHARS) -> Iterator[str]:
    """What stays the same of the data's Base64 whatever stands before and behind it, at each alignment."""
    for offset in range(ALIGNMENTS):
        first = -(-8 * offset // 6)
        last = 8 * (offset + len(data)) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            core = encode(bytes(offset) + data).decode()[first:last]
            if len(core) >= least_chars:
                yield core


def cores_of_words(words: Iterable[str], *, ignores_case: bool) -> set[str]:
    """The cores of words; where their case counts for nothing, in the three ways that people write them."""
    found: set[str] = set()
    for word in words:
        for form in {word, word.lower(), word.upper(), word.capitalize()} if ignores_case else {word}:
            found |= set(cores_of(form.encode()))
    return found
