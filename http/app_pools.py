"""Pools of the app role beside a process's main one, each with a name by which the database shows it."""

from __future__ import annotations

import contextlib

from ..infra.database import Database
from ..infra.jobs.connector import jobs_pool
from ..infra.jobs.lanes import PostgresLaneQueue
from ..infra.postgres.appender import Appender
from ..infra.postgres.pool import Pool, make_pool
from ..infra.postgres.store import PostgresStore
from ..infra.settings import Settings

WAKERS = 1
"""Connections at most by which a process wakes lanes; none is held while it has nothing to wake."""


async def app_pool(
    settings: Settings,
    database: Database,
    stack: contextlib.AsyncExitStack,
    name: str,
    max_size: int,
    min_size: int = 1,
    *,
    waits_for_disk: bool = True,
) -> Pool:
    """An open pool, which `stack` closes. The role of `database` is verified already. waits_for_disk: see
    make_pool."""
    pool = make_pool(
        database.url("app"),
        "app",
        min_size=min_size,
        max_size=max_size,
        statement_timeout_ms=settings.database.statement_timeout_ms,
        name=name,
        waits_for_disk=waits_for_disk,
    )
    await pool.open(wait=True)
    stack.push_async_callback(pool.close)
    return pool


def quiet_store(pool: Pool, stack: contextlib.AsyncExitStack, writers: int = 2) -> PostgresStore:
    """The log over a pool, for streams that nobody follows: no projection, no viewer. So its appends wake nobody."""
    appender = Appender(pool, writers=writers, notify=False)
    appender.start()
    stack.push_async_callback(appender.close)
    return PostgresStore(pool, appender)


async def wake_ups(
    settings: Settings, database: Database, stack: contextlib.AsyncExitStack, name: str
) -> PostgresLaneQueue:
    """What wakes lanes, from a process that runs none. `stack` closes it."""
    pool = jobs_pool(
        database.url("app"),
        min_size=0,
        max_size=WAKERS,
        statement_timeout_ms=settings.database.statement_timeout_ms,
        name=name,
    )
    await pool.open()
    stack.push_async_callback(pool.close)
    return PostgresLaneQueue(pool)
