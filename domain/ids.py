"""Identifier grammars: parse or refuse, one canonical form each (rules.md, law 22)."""

from __future__ import annotations

import re
import unicodedata

from .errors import Invalid, Malformed

ROOM_ID = re.compile(r"[a-z2-7]{8}")
"""Ids of rooms, runs and tasks: 8 characters of the lower-case base32 alphabet (rooms.md)."""

CONVERSATION_ID = re.compile(r"[a-z2-7]{26}")
"""Ids of conversations: 26 characters of the same alphabet, 130 bits that nobody can guess."""

MAX_NAME_BYTES = 255
"""Longest identifier that a person or an identity provider chooses, in UTF-8 bytes."""

MAX_KEY_CHARS = 255
"""Longest idempotency key, in visible ASCII characters (http.md)."""

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


def is_room_id(text: str) -> bool:
    """Whether `text` has the grammar of a room, run or task id."""
    return ROOM_ID.fullmatch(text) is not None


def is_conversation_id(text: str) -> bool:
    """Whether `text` has the grammar of a conversation's id."""
    return CONVERSATION_ID.fullmatch(text) is not None


def long_id(entropy: int) -> str:
    """An id of 26 base32 characters from the low 130 bits of `entropy`."""
    return "".join(_BASE32[(entropy >> shift) & 31] for shift in range(125, -1, -5))


def short_id(entropy: int) -> str:
    """An id of 8 base32 characters from the low 40 bits of `entropy`, which the caller draws."""
    return "".join(_BASE32[(entropy >> shift) & 31] for shift in range(35, -1, -5))


def canonical_name(text: str, path: str = "$") -> str:
    """A chosen identifier in its one canonical form.

    NFC, no control or format characters, no surrogates, no surrounding white space, at most 255 bytes.
    Raises Invalid with `path` otherwise; it never repairs, so that two spellings can never mean one thing.
    """
    if not text or text != text.strip():
        raise Invalid.at(path, "must not be empty or have white space around it")
    if any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} for char in text):
        raise Invalid.at(path, "must not contain control, format or unassigned characters")
    if unicodedata.normalize("NFC", text) != text:
        raise Invalid.at(path, "must be in Unicode normalization form NFC")
    if len(text.encode()) > MAX_NAME_BYTES:
        raise Invalid.at(path, f"must be at most {MAX_NAME_BYTES} bytes")
    return text


def idempotency_key(text: str) -> str:
    """An `Idempotency-Key` header: 1 to 255 visible ASCII characters, compared byte by byte (http.md).

    Raises Malformed otherwise (field fault B48 asks for a 400).
    """
    if _KEY.fullmatch(text) is None:
        raise Malformed(f"Idempotency-Key must be 1 to {MAX_KEY_CHARS} visible ASCII characters.")
    return text
