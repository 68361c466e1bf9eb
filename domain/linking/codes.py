"""One-time codes: how they are made and read, and how often somebody may be wrong (delivery.md, Linking).

A code itself is in no event and no log line, and in no row but the payload that brings it to a chat: the log has its
keyed hash, and only whoever began has the code.
"""

from __future__ import annotations

import re
from datetime import datetime

from msgspec import Struct

from ..deliveries.retry import after
from ..times import stamp

CODE_CHARS = 8

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's 32 characters: those that look like each other are one, whichever of them is typed."""

MAX_TYPED_CHARS = 32
"""Of a code with the white space and hyphens that people put into it."""

CODE_TTL_S = 600.0
"""From the beginning of a link to its confirmation."""

MAX_WRONG = 5
"""Codes that fail, of one presenting end, until it must wait."""

WRONG_TTL_S = 3600.0
"""How long it waits, and how long a failure counts."""

MAX_SEEN = 64
"""Words of one message that are looked up as codes."""

_FOLDED = str.maketrans("OIL", "011")
_CODE = re.compile(f"[{ALPHABET}]{{{CODE_CHARS}}}")
# Behind a look-ahead, since of `meet ABCD 2345` both `meet ABCD` and `ABCD 2345` may be one.
_WORD = re.compile(r"(?<![0-9A-Za-z])(?=([0-9A-Za-z]{4}[- ]?[0-9A-Za-z]{4})(?![0-9A-Za-z]))")


def code_of(entropy: int) -> str:
    """A code from the low 40 bits of `entropy`, which the caller draws."""
    return "".join(ALPHABET[(entropy >> shift) & 31] for shift in range(35, -1, -5))


def read_code(text: str) -> str | None:
    """The one form of a code as people type it: in any case, with a hyphen or a space, O for 0, I and L for 1.

    None for what is no code.
    """
    if len(text) > MAX_TYPED_CHARS or not text.isascii():
        return None
    folded = "".join(char for char in text if char not in "- \t").upper().translate(_FOLDED)
    return folded if _CODE.fullmatch(folded) else None


def codes_in(text: str) -> list[str]:
    """What may be codes in a message, each once and in their order, MAX_SEEN at most."""
    found: dict[str, None] = {}
    for match in _WORD.finditer(text):
        code = read_code(match[1])
        if code is not None:
            found[code] = None
        if len(found) == MAX_SEEN:
            break
    return list(found)


class Wrongs(Struct, frozen=True):
    """Failures of one presenting end. until: when they are forgotten, as times.py writes it; empty for none.

    A code that works changes nothing here: else whoever guesses would clear their failures with a link of their own.
    """

    count: int = 0
    until: str = ""

    def is_blocked(self, now: datetime) -> bool:
        """Whether every code of this end fails now, whatever it is."""
        return self.count >= MAX_WRONG and stamp(now) < self.until

    def another(self, now: datetime) -> Wrongs:
        """After one more failure. What fails while the end waits makes the wait no longer."""
        if self.is_blocked(now):
            return self
        count = self.count if stamp(now) < self.until else 0
        return Wrongs(count + 1, after(now, WRONG_TTL_S))
