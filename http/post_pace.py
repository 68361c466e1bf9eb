"""How many commands one principal may send to conversations in any minute (conversations.md, HTTP and SSE)."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable

from ..domain.errors import RateLimited
from ..domain.principals import Caller
from .limits import Who, who_of

WINDOW_S = 60.0

MAX_PRINCIPALS = 10_000
"""Principals whose commands are counted; who was silent for the longest is forgotten first."""


class PostPace:
    """One per process. per_minute: commands in any 60 s. clock: seconds that never run back."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._sent: OrderedDict[Who, deque[float]] = OrderedDict()

    def admit(self, caller: Caller) -> Callable[[], None]:
        """What counts the command, or raises RateLimited (commands.beside.Admit)."""
        return lambda: self._take(who_of(caller))

    def _take(self, who: Who) -> None:
        now = self._clock()
        sent = self._sent.setdefault(who, deque())
        self._sent.move_to_end(who)
        if len(self._sent) > MAX_PRINCIPALS:
            self._sent.popitem(last=False)
        while sent and sent[0] <= now - WINDOW_S:
            sent.popleft()
        if len(sent) >= self._per_minute:
            wait_ms = int((sent[0] + WINDOW_S - now) * 1000) + 1
            raise RateLimited(
                f"At most {self._per_minute} commands a minute are taken from one caller; slow down.",
                retryAfterMs=wait_ms,
            )
        sent.append(now)
