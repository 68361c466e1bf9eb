"""What an end is shown as to those who are asked whether it is theirs."""

from __future__ import annotations

import unicodedata

MAX_DISPLAY_CHARS = 64


def displayed(text: str) -> str:
    """A name that its bearer chose, on one line: without characters that turn, hide or break what stands around it, and
    MAX_DISPLAY_CHARS at most. Empty where nothing is left."""
    kept = (char if unicodedata.category(char)[0] not in "CZ" else _space(char) for char in text)
    return " ".join("".join(kept).split())[:MAX_DISPLAY_CHARS].rstrip()


def _space(char: str) -> str:
    return "" if unicodedata.category(char) in {"Cf", "Cs", "Co", "Cn"} else " "
