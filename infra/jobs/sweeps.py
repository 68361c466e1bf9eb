"""Sweeps: work by the clock, which any number of servers may have on their list and one of them does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import LiteralString

import procrastinate
import structlog
from procrastinate import JobContext

from ...commands.jobs import Sweep
from .connector import Pool

MINUTE_S = 60
HOUR_S = 3600
TICK_CRON = "*/10 * * * *"
"""When it is looked whether a sweep of more than an hour is due."""

KEEP_FAILED_HOURS = 14 * 24
"""Jobs that ended badly are kept so long for an operator to see."""

_IS_DUE: LiteralString = """
SELECT NOT EXISTS (SELECT FROM minutebook_jobs.sweeps s
    WHERE s.name = %s AND s.done_at > clock_timestamp() - make_interval(secs => %s))
"""
_DONE: LiteralString = """
INSERT INTO minutebook_jobs.sweeps AS s (name, every_s, done_at) VALUES (%s, %s, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET every_s = EXCLUDED.every_s, done_at = EXCLUDED.done_at
"""

log = structlog.get_logger(__name__)


def cron_of(every_s: int) -> str:
    """The engine's schedule. Raises ValueError for a time that divides neither a minute nor an hour and is shorter."""
    if every_s > HOUR_S:
        return TICK_CRON
    if every_s > 0 and MINUTE_S % every_s == 0:
        return f"* * * * * */{every_s}" if every_s < MINUTE_S else "* * * * *"
    if every_s > 0 and every_s % MINUTE_S == 0 and HOUR_S % every_s == 0:
        return f"*/{every_s // MINUTE_S} * * * *" if every_s < HOUR_S else "0 * * * *"
    raise ValueError(f"a sweep every {every_s} s: the time must divide a minute or an hour, or be longer")


def add_sweeps(app: procrastinate.App, pool: Pool, sweeps: Sequence[Sweep]) -> list[str]:
    """Register sweeps, and the engine's own housekeeping, with an engine; the queues to work on.

    The engine defers each once a tick, whatever the number of servers. A run that fails is not repeated: the next tick
    is.
    """

    async def housekeeping() -> None:
        await app.job_manager.delete_old_jobs(
            KEEP_FAILED_HOURS, include_failed=True, include_cancelled=True, include_aborted=True
        )

    known = [*sweeps, Sweep("jobs", HOUR_S, housekeeping)]
    return [_add(app, pool, each) for each in known]


def _add(app: procrastinate.App, pool: Pool, sweep: Sweep) -> str:
    name = f"sweep_{sweep.name}"

    async def run(context: JobContext, timestamp: int) -> None:
        del context, timestamp  # which tick it is matters to the engine alone
        await _run(pool, sweep)

    task = app.task(name=name, queue=name, pass_context=True)(run)
    app.periodic(cron=cron_of(sweep.every_s), lock=name, queueing_lock=name)(task)
    return name


async def _run(pool: Pool, sweep: Sweep) -> None:
    try:
        if sweep.every_s > HOUR_S and not await _is_due(pool, sweep):
            return
        async with asyncio.timeout(sweep.limit_s):
            await sweep.run()
        async with pool.connection() as connection:
            await connection.execute(_DONE, (sweep.name, sweep.every_s))
    except Exception as error:  # noqa: BLE001 - the next tick comes
        log.warning("sweep failed", sweep=sweep.name, error=type(error).__name__)


async def _is_due(pool: Pool, sweep: Sweep) -> bool:
    async with pool.connection() as connection:
        row = await (await connection.execute(_IS_DUE, (sweep.name, sweep.every_s))).fetchone()
    return row == (True,)
