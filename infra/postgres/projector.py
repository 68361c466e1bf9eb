"""The live projector: folds what moved in one transaction with its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...projections.ports import Folded, Projection
from . import views
from .follower import Follower


class Projector(Follower):
    """One projection. Any number of them, in any number of processes, share the work by locks on the checkpoints."""

    def __init__(
        self,
        projection: Projection,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        listening: Callable[[], bool],
    ) -> None:
        super().__init__(projection.name, projection.kinds, pool, listening)
        self.projection = projection

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


async def _write(
    cursor: psycopg.AsyncCursor[Any], projection: Projection, ids: list[int], folded: list[Folded]
) -> None:
    rows = [row for each in folded for row in each.rows]
    if rows:
        await cursor.executemany(views.upsert(projection), rows)
    blanked = [(stream_id, seq) for stream_id, each in zip(ids, folded, strict=True) for seq in each.blanked]
    if blanked:
        await cursor.executemany(views.blank(projection), blanked)
