"""What follows the streams of some kinds: finds out which moved, works on them beside others, parks what it cannot."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
import structlog
from psycopg_pool import AsyncConnectionPool

from . import views
from .errors import is_circumstance
from .pool import renew_if_read_only

MAX_STREAMS = 50
"""Streams folded in one transaction."""

MAX_DIRTY = 10_000
"""Streams remembered as moved; beyond it the next sweep finds the rest."""

SWEEP_LIMIT = 1_000
SWEEP_UP_S = 15.0
"""Time between sweeps while the listener hears; a NOTIFY is only a hint."""

SWEEP_DOWN_S = 1.0
"""Time between sweeps while it does not: inside the published bound of 2 s (law 8)."""

RETRY_S = 1.0

log = structlog.get_logger(__name__)


class Follower(ABC):
    """Keeps one checkpoint a stream. Any number of them, in any number of processes, share the work by locks on those.

    name: of the checkpoints. kinds: of the streams. linger_s: how long a wake-up waits for more of them.
    """

    def __init__(
        self,
        name: str,
        kinds: tuple[str, ...],
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        listening: Callable[[], bool],
        linger_s: float = 0,
    ) -> None:
        self.name = name
        self._pool = pool
        self._listening = listening
        self._linger_s = linger_s
        self._dirty: set[int] = set()
        self._wake = asyncio.Event()
        self._sweep = True
        self._task: asyncio.Task[None] | None = None
        self._scope: dict[str, Any] = {"name": name, "kinds": list(kinds)}
        self.folded = 0
        self.parked = 0

    def start(self) -> None:
        """Begin on the running loop."""
        self._task = asyncio.create_task(self._run(), name=f"follower {self.name}")

    async def close(self) -> None:
        """Stop; a transaction under way is rolled back and repeated by whoever comes next."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def wake(self, ids: frozenset[int] | None) -> None:
        """Streams that moved, or None for a look at all."""
        if ids is None or len(self._dirty) + len(ids) > MAX_DIRTY:
            self._sweep = True
        else:
            self._dirty |= ids
        self._wake.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._turn()
            except Exception as error:  # noqa: BLE001 - the projector outlives whatever the database does
                self._sweep = True
                log.warning("projector interrupted", projection=self.name, error=type(error).__name__)
                await asyncio.sleep(RETRY_S)

    async def _turn(self) -> None:
        if self._sweep:
            self._sweep = False
            await self._find_behind()
        while self._dirty:
            ids = [self._dirty.pop() for _ in range(min(MAX_STREAMS, len(self._dirty)))]
            await self.fold(ids)
        self._wake.clear()
        if self._dirty or self._sweep:
            return
        try:
            async with asyncio.timeout(SWEEP_UP_S if self._listening() else SWEEP_DOWN_S):
                await self._wake.wait()
        except TimeoutError:
            self._sweep = True
        else:
            if self._linger_s:
                await asyncio.sleep(self._linger_s)

    async def _find_behind(self) -> None:
        async with self._pool.connection() as connection:
            found = await self._behind(connection, SWEEP_LIMIT)
        self._dirty.update(found)
        self._sweep = len(found) == SWEEP_LIMIT

    async def _behind(self, connection: psycopg.AsyncConnection[Any], limit: int) -> list[int]:
        cursor = await connection.execute(views.BEHIND, {**self._scope, "limit": limit}, prepare=True)
        return [row[0] for row in await cursor.fetchall()]

    async def fold(self, ids: Iterable[int]) -> None:
        """Fold what these streams have beyond their checkpoints; those that another worker holds are skipped."""
        wanted = list(ids)
        try:
            async with self._pool.connection() as connection:
                self._dirty |= await self._fold(connection, wanted)
        except Exception as error:
            if is_circumstance(error):
                await renew_if_read_only(self._pool, error)
                self._dirty.update(wanted)
                raise
            if len(wanted) > 1:
                for stream_id in wanted:
                    await self.fold([stream_id])
                return
            await self._park(wanted[0], error)

    async def _fold(self, connection: psycopg.AsyncConnection[Any], ids: list[int]) -> set[int]:
        """Work on one page of each; answers the streams that have more than one page left."""
        # Committed before the fold, so that a purge of the stream finds the checkpoint, and waits for the fold there.
        await connection.execute(views.BEGIN, {**self._scope, "ids": ids}, prepare=True)
        async with connection.transaction():
            cursor = await connection.execute(views.CLAIM, {**self._scope, "ids": ids}, prepare=True)
            claimed = views.stream_refs(await cursor.fetchall())
            if not claimed:
                return set()
            ends, count = await self._work(connection, claimed)
            await connection.execute(views.ADVANCE, (list(ends), list(ends.values()), self.name), prepare=True)
            await connection.execute(views.UNPARK, (self.name, list(ends)), prepare=True)
        self.folded += count
        return {stream_id for stream_id, end in ends.items() if end < claimed[stream_id][2]}

    @abstractmethod
    async def _work(
        self, connection: psycopg.AsyncConnection[Any], claimed: views.Claimed
    ) -> tuple[dict[int, int], int]:
        """Work on one page of each, in the transaction of the checkpoints; answers how far each has come, and how many
        events that was."""

    async def _park(self, stream_id: int, error: Exception) -> None:
        self.parked += 1
        log.error("stream parked", projection=self.name, stream_id=stream_id, error=type(error).__name__)
        async with self._pool.connection() as connection:
            found = await connection.execute(
                "SELECT seq FROM minutebook_views.checkpoints WHERE projection = %s AND stream_id = %s",
                (self.name, stream_id),
            )
            row = await found.fetchone()
            reason = type(error).__name__
            seq = (row[0] if row else 0) + 1
            await connection.execute(views.PARK, {"name": self.name, "id": stream_id, "seq": seq, "reason": reason})
