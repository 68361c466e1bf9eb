"""Jobs of workers that died: the engine leaves them `doing`, and their lock taken, for ever."""

from __future__ import annotations

import asyncio

import psycopg
import structlog

from ..postgres.pool import renew_if_read_only
from .connector import Pool

RESCUE_S = 10.0
"""Time between two looks."""

MAX_RESCUED = 100
"""Jobs in one look; the next one takes the rest."""

_STALLED = """
SELECT j.id FROM minutebook_jobs.procrastinate_jobs j
WHERE j.status = 'doing' AND NOT EXISTS (
    SELECT FROM minutebook_jobs.procrastinate_workers w
    WHERE w.id = j.worker_id AND w.last_heartbeat > clock_timestamp() - make_interval(secs => %s))
ORDER BY j.id LIMIT %s FOR UPDATE OF j SKIP LOCKED
"""
_RETRY = "SELECT minutebook_jobs.procrastinate_retry_job_v2(%s, clock_timestamp(), NULL, NULL, NULL)"
_DROP = "SELECT minutebook_jobs.procrastinate_finish_job_v1(%s, 'aborted', true)"

log = structlog.get_logger(__name__)


async def rescue(pool: Pool, silent_s: float) -> int:
    """Let the jobs of workers that have been silent for `silent_s` wait again; how many there were.

    In one transaction that holds their rows, so that two servers at once rescue a job once. A job goes where another of
    its key waits already.
    """
    async with pool.connection() as connection, connection.transaction():
        ids = [row[0] for row in await (await connection.execute(_STALLED, (silent_s, MAX_RESCUED))).fetchall()]
        for job_id in ids:
            try:
                async with connection.transaction():
                    await connection.execute(_RETRY, (job_id,))
            except psycopg.errors.UniqueViolation:
                await connection.execute(_DROP, (job_id,))
    if ids:
        log.warning("jobs of silent workers are run again", jobs=len(ids))
    return len(ids)


async def rescue_for_ever(pool: Pool, silent_s: float, every_s: float = RESCUE_S) -> None:
    """Look again and again, whatever the database does. A task of its own and no job: a job could stall itself."""
    while True:
        try:
            await rescue(pool, silent_s)
        except Exception as error:  # noqa: BLE001 - the next look may be luckier
            log.warning("rescue of jobs interrupted", error=type(error).__name__)
            await renew_if_read_only(pool, error)
        await asyncio.sleep(every_s)
