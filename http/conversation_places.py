"""How many streams of conversations are open in this process: all told, of one principal, of one conversation."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator

from ..domain.errors import RateLimited, Unavailable
from ..domain.principals import Caller
from ..infra.settings_conversations import ConversationSettings
from .limits import RETRY_STREAM_MS, Who, less, who_of


class Places:
    """One per process. Looked at once the caller is authorized: whose conversation it is not hears 404."""

    def __init__(self, settings: ConversationSettings) -> None:
        self._settings = settings
        self._people: Counter[Who] = Counter()
        self._conversations: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """Open streams."""
        return self._people.total()

    def check(self, caller: Caller, conversation_id: str) -> None:
        """Whether there is a place. Raises RateLimited, or Unavailable where the process has no more."""
        settings = self._settings
        if self.taken >= settings.streams:
            raise Unavailable(
                "This server takes no more streams of conversations now; try again.", retryAfterMs=RETRY_STREAM_MS
            )
        if self._people[who_of(caller)] >= settings.streams_per_principal:
            raise RateLimited(
                f"You have {settings.streams_per_principal} streams of conversations open; close one first.",
                retryAfterMs=RETRY_STREAM_MS,
            )
        if self._conversations[conversation_id] >= settings.viewers:
            raise RateLimited(
                f"This conversation has {settings.viewers} viewers already; try again later.",
                retryAfterMs=RETRY_STREAM_MS,
            )

    @contextlib.contextmanager
    def place(self, caller: Caller, conversation_id: str) -> Generator[None]:
        """One of them for as long as the block runs; to be entered right after `check`, with nothing awaited between
        them."""
        who = who_of(caller)
        self._people[who] += 1
        self._conversations[conversation_id] += 1
        try:
            yield
        finally:
            less(self._people, who)
            less(self._conversations, conversation_id)
