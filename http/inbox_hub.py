"""Following inboxes live: wake-ups by recipient, and a look at all that are followed every second."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence

import structlog

from ..domain.errors import MinutebookError, RateLimited, Unavailable
from .limits import RETRY_STREAM_MS, less

POLL_S = 1.0
"""A look at everything that is followed, whatever the listener says (law 8)."""

MAX_STREAMS = 2000
MAX_STREAMS_EACH = 16
"""Open streams of inboxes: all told, and of one recipient."""

log = structlog.get_logger(__name__)


class InboxHub:
    """One per process. Holds no database connection while nothing moves, and no item: who follows reads them."""

    def __init__(self, lasts: Callable[[Sequence[int]], Awaitable[dict[int, int]]]) -> None:
        """lasts: the newest places of inboxes, by id."""
        self._lasts = lasts
        self._followers: dict[int, set[asyncio.Event]] = {}
        self._seen: dict[int, int] = {}
        self._counts: Counter[int] = Counter()
        self._poll: asyncio.Task[None] | None = None
        self.draining = asyncio.Event()

    @property
    def streams(self) -> int:
        """Open streams."""
        return self._counts.total()

    def start(self) -> None:
        """Begin the safety poll on the running loop."""
        self._poll = asyncio.create_task(self._look_for_ever(), name="inbox poll")

    async def close(self) -> None:
        """Stop looking."""
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)

    def drain(self) -> None:
        """Tell every follower to reconnect elsewhere."""
        self.draining.set()
        self.wake(None)

    def check(self, head: int) -> None:
        """Whether there is a place. Raises RateLimited, or Unavailable where the process has no more."""
        if self.streams >= MAX_STREAMS:
            raise Unavailable("This server takes no more streams of inboxes now; try again.")
        if self._counts[head] >= MAX_STREAMS_EACH:
            raise RateLimited(
                f"You have {MAX_STREAMS_EACH} streams of your inbox open; close one first.",
                retryAfterMs=RETRY_STREAM_MS,
            )

    @contextlib.contextmanager
    def follow(self, head: int, last: int, moved: asyncio.Event) -> Generator[None]:
        """Set `moved` whenever the inbox may have something new behind `last`, for as long as the block runs; to be
        entered right after `check`. All clean-up is synchronous (fault B28)."""
        self._followers.setdefault(head, set()).add(moved)
        self._seen.setdefault(head, last)
        self._counts[head] += 1
        try:
            yield
        finally:
            less(self._counts, head)
            left = self._followers[head]
            left.discard(moved)
            if not left:
                del self._followers[head], self._seen[head]

    def wake(self, ids: frozenset[int] | None) -> None:
        """What the listener heard: these inboxes moved; None: any may have."""
        for head in self._followers if ids is None else ids & self._followers.keys():
            for moved in self._followers[head]:
                moved.set()

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            if not self._followers:
                continue
            try:
                found = await self._lasts(list(self._followers))
            except MinutebookError as error:
                log.warning("followed inboxes cannot be looked at now", error=type(error).__name__)
                continue
            for head, last in found.items():
                if self._seen.get(head, last) != last:
                    self._seen[head] = last
                    self.wake(frozenset({head}))
