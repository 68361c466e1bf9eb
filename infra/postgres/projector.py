"""The live projector: folds what moved in one transaction with its checkpoints, parks what cannot be folded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
import structlog
from psycopg_pool import AsyncConnectionPool

from ...projections.ports import Folded, Projection
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


class Projector:
    """One projection. Any number of them, in any number of processes, share the work by locks on the checkpoints."""

    def __init__(
        self,
        projection: Projection,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        listening: Callable[[], bool],
    ) -> None:
        self.projection = projection
        self._pool = pool
        self._listening = listening
        self._dirty: set[int] = set()
        self._wake = asyncio.Event()
        self._sweep = True
        self._task: asyncio.Task[None] | None = None
        self._scope = {"name": projection.name, "kinds": list(projection.kinds)}
        self.folded = 0
        self.parked = 0

    def start(self) -> None:
        """Begin on the running loop."""
        self._task = asyncio.create_task(self._run(), name=f"projector {self.projection.name}")

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
                log.warning("projector interrupted", projection=self.projection.name, error=type(error).__name__)
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

    async def _find_behind(self) -> None:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(views.BEHIND, {**self._scope, "limit": SWEEP_LIMIT}, prepare=True)
            found = [row[0] for row in await cursor.fetchall()]
        self._dirty.update(found)
        self._sweep = len(found) == SWEEP_LIMIT

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
        """Answers the streams that have more than one page left."""
        projection = self.projection
        # Committed before the fold, so that a purge of the stream finds the checkpoint, and waits for the fold there.
        await connection.execute(views.BEGIN, {**self._scope, "ids": ids}, prepare=True)
        async with connection.transaction(), connection.cursor() as cursor:
            await cursor.execute(views.CLAIM, {**self._scope, "ids": ids}, prepare=True)
            claimed = views.stream_refs(await cursor.fetchall())
            if not claimed:
                return set()
            afters = [after for _, after, _ in claimed.values()]
            await cursor.execute(views.READ, (list(claimed), afters, views.PAGE_EVENTS), prepare=True)
            events = views.group_events(await cursor.fetchall())
            states: dict[int, str] = {}
            select = views.states(projection)
            if select is not None:
                await cursor.execute(select, (list(events),))
                states = dict(await cursor.fetchall())
            folded = [projection.fold(claimed[each][0], states.get(each), found) for each, found in events.items()]
            await _write(cursor, projection, list(events), folded)
            ends = [found[-1].seq for found in events.values()]
            await cursor.execute(views.ADVANCE, (list(events), ends, projection.name), prepare=True)
            await cursor.execute(views.UNPARK, (projection.name, list(events)), prepare=True)
        self.folded += sum(len(found) for found in events.values())
        return {each for each, found in events.items() if found[-1].seq < claimed[each][2]}

    async def _park(self, stream_id: int, error: Exception) -> None:
        self.parked += 1
        log.error("stream parked", projection=self.projection.name, stream_id=stream_id, error=type(error).__name__)
        async with self._pool.connection() as connection:
            found = await connection.execute(
                "SELECT seq FROM minutebook_views.checkpoints WHERE projection = %s AND stream_id = %s",
                (self.projection.name, stream_id),
            )
            row = await found.fetchone()
            reason = type(error).__name__
            seq = (row[0] if row else 0) + 1
            await connection.execute(
                views.PARK, {"name": self.projection.name, "id": stream_id, "seq": seq, "reason": reason}
            )


async def _write(
    cursor: psycopg.AsyncCursor[Any], projection: Projection, ids: list[int], folded: list[Folded]
) -> None:
    rows = [row for each in folded for row in each.rows]
    if rows:
        await cursor.executemany(views.upsert(projection), rows)
    blanked = [(stream_id, seq) for stream_id, each in zip(ids, folded, strict=True) for seq in each.blanked]
    if blanked:
        await cursor.executemany(views.blank(projection), blanked)
