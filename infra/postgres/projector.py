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

    async def _work(
        self, connection: psycopg.AsyncConnection[Any], claimed: views.Claimed
    ) -> tuple[dict[int, int], int]:
        projection = self.projection
        async with connection.cursor() as cursor:
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
        ends = {each: found[-1].seq for each, found in events.items()}
        return ends, sum(len(found) for found in events.values())


async def _write(
    cursor: psycopg.AsyncCursor[Any], projection: Projection, ids: list[int], folded: list[Folded]
) -> None:
    rows = [row for each in folded for row in each.rows]
    if rows:
        await cursor.executemany(views.upsert(projection), rows)
    blanked = [(stream_id, seq) for stream_id, each in zip(ids, folded, strict=True) for seq in each.blanked]
    if blanked:
        await cursor.executemany(views.blank(projection), blanked)
