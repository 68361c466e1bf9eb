"""Counters of tokens, as the settings name them."""

from __future__ import annotations

from ..commands.conversations.ports import TokenCounter
from .settings import SettingsError
from .settings_conversations import TIKTOKEN

PER_MESSAGE = 4
"""Tokens that a message costs beside its text: its role and what separates it."""


class Heuristic:
    """Needs no tokenizer: a quarter token per ASCII character, rounded up; every other code point one token."""

    per_message = PER_MESSAGE

    def count(self, text: str) -> int:
        """Tokens of the text; for no tokenizer in use much less than it counts (fault B52)."""
        ascii_chars = len(text.encode("ascii", "ignore"))
        return -(-ascii_chars // 4) + len(text) - ascii_chars


def counter_of(key: str, named: str) -> TokenCounter:
    """The counter that a setting names: `heuristic` or `tiktoken:<encoding or file>`. Raises SettingsError."""
    if named.startswith(TIKTOKEN):
        raise SettingsError(f"{key}: tiktoken is not built yet; use heuristic.")
    return Heuristic()
