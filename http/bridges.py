"""What one process knows of the bridges that talk to it: their requests under way, and whose lease is the newest."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Generator

import msgspec

from ..commands.run_handlers import RUN_LEASE
from ..domain.errors import MinutebookError, RateLimited
from ..domain.principals import Caller
from ..infra.postgres.store import PostgresStore

LOOK_S = 1.0
"""Between two looks at the leases of the open streams: a displaced bridge is cut within 2 s (rules.md, law 17)."""

RETRY_AFTER_MS = 1000


class Holding(msgspec.Struct):
    """The lease that an open stream stands on. `moved` is set when it is lost."""

    stream_id: int
    holder: str
    epoch: int
    moved: asyncio.Event
    is_lost: bool = False


class Bridges:
    """One per process. most: requests of one run that may be under way at once, its streams among them."""

    def __init__(self, store: PostgresStore, most: int) -> None:
        self._store = store
        self._most = most
        self._under_way: Counter[tuple[str, str]] = Counter()
        self._holdings: list[Holding] = []
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look at the leases on the running loop."""
        self._looking = asyncio.create_task(self._look_for_ever(), name="leases")

    async def close(self) -> None:
        """Stop looking."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    @contextlib.contextmanager
    def request(self, caller: Caller) -> Generator[None]:
        """Counts a request of a run for as long as the block runs. Raises RateLimited over the limit."""
        run = (caller.tenant, caller.principal.id)
        if self._under_way[run] >= self._most:
            raise RateLimited(
                f"This run has {self._most} requests under way; wait for an answer first.", retryAfterMs=RETRY_AFTER_MS
            )
        self._under_way[run] += 1
        try:
            yield
        finally:
            self._under_way[run] -= 1
            if not self._under_way[run]:
                del self._under_way[run]

    def watch(self, holding: Holding) -> None:
        """Look at that lease from now on; synchronous, and so is `forget` (fault B28)."""
        self._holdings.append(holding)

    def forget(self, holding: Holding) -> None:
        """Look no more."""
        self._holdings = [each for each in self._holdings if each is not holding]

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._holdings:
                continue
            asked = self._holdings
            with contextlib.suppress(MinutebookError):  # the database is away; whoever writes is fenced all the same
                newest = await self._store.leases([each.stream_id for each in asked], RUN_LEASE)
                for each in asked:
                    if newest.get(each.stream_id) != (each.holder, each.epoch):
                        each.is_lost = True
                        each.moved.set()
