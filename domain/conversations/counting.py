"""Tokens without a tokenizer: more than most have for Chinese, Japanese and emoji, about as many for English."""

from __future__ import annotations

from typing import Protocol

PER_MESSAGE = 4
"""What a message costs beside its text: role and separators."""


class Counter(Protocol):
    """Counts the tokens of a text. per_message: what each message costs beside it."""

    @property
    def per_message(self) -> int:
        """Tokens of role and separators."""
        ...

    def count(self, text: str) -> int:
        """Tokens of the text, at least 0."""
        ...


class HeuristicCounter:
    """A quarter token an ASCII character, rounded up; one for every other code point. Needs nothing, counts fast."""

    per_message = PER_MESSAGE

    def count(self, text: str) -> int:
        """Tokens of the text."""
        # The length in UTF-8 would count the others by their bytes; dropping them counts the rest at once.
        plain = len(text) if text.isascii() else len(text.encode("ascii", errors="ignore"))
        return -(-plain // 4) + len(text) - plain
