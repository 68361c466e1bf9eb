"""Counters of tokens, as the settings name them."""

from __future__ import annotations

from ..commands.conversations.ports import TokenCounter
from ..domain.conversations.counting import HeuristicCounter
from .settings import SettingsError
from .settings_conversations import TIKTOKEN


def counter_of(key: str, named: str) -> TokenCounter:
    """The counter that a setting names: `heuristic` or `tiktoken:<encoding or file>`. Raises SettingsError."""
    if named.startswith(TIKTOKEN):
        raise SettingsError(f"{key}: tiktoken is not built yet; use heuristic.")
    return HeuristicCounter()
