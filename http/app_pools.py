"""Connections of the app role in the process of jobs, each pool with a name by which the database shows it."""

from __future__ import annotations

import contextlib

from ..infra.database import Database
from ..infra.postgres.appender import Appender
from ..infra.postgres.pool import Pool, make_pool
from ..infra.postgres.store import PostgresStore
from ..infra.settings import Settings


async def app_pool(
    settings: Settings,
    database: Database,
    stack: contextlib.AsyncExitStack,
    name: str,
    max_size: int,
    min_size: int = 1,
) -> Pool:
    """An open pool, which `stack` closes. The role of `database` is verified already."""
    pool = make_pool(
        database.url("app"),
        "app",
        min_size=min_size,
        max_size=max_size,
        statement_timeout_ms=settings.database.statement_timeout_ms,
        name=name,
    )
    await pool.open(wait=True)
    stack.push_async_callback(pool.close)
    return pool


def quiet_store(pool: Pool, stack: contextlib.AsyncExitStack) -> PostgresStore:
    """The log over a pool, for streams that nobody follows: no projection, no viewer. So its appends wake nobody."""
    appender = Appender(pool, notify=False)
    appender.start()
    stack.push_async_callback(appender.close)
    return PostgresStore(pool, appender)
