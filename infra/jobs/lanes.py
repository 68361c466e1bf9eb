"""Wake-ups of lanes: one job a lane waits and one runs, and its arguments are the lane's id alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, ClassVar, LiteralString

import psycopg

from ...commands.jobs import Arguments
from ...domain.errors import MinutebookError
from ..postgres.errors import translate
from .connector import Pool

LANE_TASK = "lane"

LANE_CONCURRENCY = 32
"""Lanes at once in one process: a lane spends its time waiting for others."""

# One that waits for longer is moved up, so that work which is due now never waits behind a later wake-up.
_WAKE: LiteralString = """
WITH moved AS (
    UPDATE minutebook_jobs.procrastinate_jobs j
    SET scheduled_at = clock_timestamp() + make_interval(secs => %(after)s)
    WHERE j.queueing_lock = ANY (%(lanes)s::text[]) AND j.status = 'todo'
      AND j.scheduled_at > clock_timestamp() + make_interval(secs => %(after)s)
), absent AS (
    SELECT l.lane FROM unnest(%(lanes)s::text[]) AS l (lane)
    WHERE NOT EXISTS (SELECT FROM minutebook_jobs.procrastinate_jobs j
                      WHERE j.queueing_lock = l.lane AND j.status = 'todo')
    ORDER BY 1
)
SELECT minutebook_jobs.procrastinate_defer_jobs_v1(array_agg(ROW(%(task)s, %(task)s, 0, a.lane, a.lane,
    jsonb_build_object('lane', a.lane),
    CASE WHEN %(after)s > 0 THEN clock_timestamp() + make_interval(secs => %(after)s) END
    )::minutebook_jobs.procrastinate_job_to_defer_v1))
FROM absent a HAVING count(*) > 0
"""


class PostgresLaneQueue:
    """LaneQueue of commands/deliveries/ports.py over a pool of jobs_pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def wake(self, lanes: Collection[str], after_s: float = 0) -> None:
        """See LaneQueue.wake."""
        together = sorted(lanes)
        try:
            if await self._wake(together, after_s) or len(together) == 1:
                return
            for lane in together:
                await self._wake([lane], after_s)
        except MinutebookError:
            raise
        except Exception as error:
            raise translate(error) from error

    async def _wake(self, lanes: list[str], after_s: float) -> bool:
        """False where somebody else woke one of them at the same moment; then none was woken here."""
        parameters: dict[str, Any] = {"lanes": lanes, "after": float(after_s), "task": LANE_TASK}
        try:
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute(_WAKE, parameters, prepare=True)
        except psycopg.errors.UniqueViolation:
            return False
        return True


class LaneJob:
    """Drains a lane. The engine's lock keeps two drains of one lane apart; where that fails, the log does."""

    name: ClassVar[str] = LANE_TASK
    is_exclusive: ClassVar[bool] = False

    def __init__(self, drain: Callable[[str], Awaitable[None]]) -> None:
        self._drain = drain

    async def run(self, arguments: Arguments) -> None:
        """See commands.jobs.Job. Raises nothing: what goes wrong is the sweep's to mend, and the engine tries no lane
        again."""
        await self._drain(arguments["lane"])

    async def give_up(self, arguments: Arguments, reason: str) -> None:
        """See commands.jobs.Job. There is nothing to give up: due work is still due."""
