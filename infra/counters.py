"""Counters of tokens, as the settings name them."""

from __future__ import annotations

from pathlib import Path

from ..domain.conversations.counting import Counter, HeuristicCounter
from .settings import SettingsError
from .settings_conversations import TIKTOKEN


def counter_of(key: str, named: str) -> Counter:
    """The counter that a setting names: `heuristic`, or `tiktoken:` and an encoding or the absolute path of a file.

    Raises SettingsError, with the key, where it cannot be loaded.
    """
    if not named.startswith(TIKTOKEN):
        return HeuristicCounter()
    try:
        from .tiktoken_counter import by_file, by_name  # noqa: PLC0415 - needs its extra
    except ModuleNotFoundError as error:
        if error.name != "tiktoken":
            raise
        raise SettingsError(
            f'{key} = "{named}" needs the library tiktoken: pip install "minutebook[tiktoken]".'
        ) from None
    encoding = named.removeprefix(TIKTOKEN)
    return by_file(key, Path(encoding)) if Path(encoding).is_absolute() else by_name(key, encoding)
