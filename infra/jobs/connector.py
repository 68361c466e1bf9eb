"""procrastinate on our pool and our schema: its application, its listener, and the places where it needs a hand."""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import procrastinate
import psycopg
import structlog
from procrastinate import exceptions, jobs, manager
from procrastinate.connector import Notify
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from ..postgres.errors import is_circumstance
from ..postgres.migrate import ENGINE_SCHEMA
from ..postgres.pool import make_pool

SEARCH_PATH = f"pg_catalog, {ENGINE_SCHEMA}, pg_temp"
"""The engine's statements and functions name no schema."""

PING_S = 5.0
"""Silence after which the listening connection is asked whether it lives."""

PING_TIMEOUT_S = 5.0
RECONNECT_S = 1.0
SAY_AGAIN_S = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Waits before it is said again what became of a job; a worker is silent for longer only if it is gone."""

_WAKE = '{"type": "job_inserted", "job_id": 0}'

Pool = AsyncConnectionPool[psycopg.AsyncConnection[Any]]

log = structlog.get_logger(__name__)


def jobs_pool(url: str, *, max_size: int, statement_timeout_ms: int, min_size: int = 1, name: str = "jobs") -> Pool:
    """A pool as the app role whose sessions see the engine's schema, not yet open. name: by which the database shows
    it."""
    return make_pool(
        url,
        "app",
        max_size=max_size,
        statement_timeout_ms=statement_timeout_ms,
        min_size=min_size,
        search_path=SEARCH_PATH,
        name=name,
    )


class Connector(procrastinate.PsycopgConnector):
    """Queries go through our pool; LISTEN has a session of its own, direct where the pool goes through a pooler."""

    def __init__(self, listen_url: str) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._listen_url = listen_url

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        """Hear of new jobs for as long as the worker runs; while it is down the worker's polls find them."""
        names = list(channels)
        while True:
            try:
                await self._listen(on_notification, names)
            except (psycopg.Error, OSError, TimeoutError) as error:
                log.warning("listener of jobs lost", error=type(error).__name__)
            await asyncio.sleep(RECONNECT_S)

    async def _listen(self, on_notification: Notify, channels: list[str]) -> None:
        async with await psycopg.AsyncConnection.connect(
            self._listen_url, autocommit=True, connect_timeout=5, application_name="minutebook jobs listener"
        ) as connection:
            for channel in channels:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            await on_notification(channel="", payload=_WAKE)  # for what came before
            while True:
                async for heard in connection.notifies(timeout=PING_S):
                    await on_notification(channel=heard.channel, payload=heard.payload)
                async with asyncio.timeout(PING_TIMEOUT_S):
                    await connection.execute("SELECT 1")


class Manager(manager.JobManager):
    """The engine's job manager, which says what became of a job in spite of the database.

    The engine says it once; if that fails, the job stays `doing` for as long as its worker lives, and its lock taken.
    """

    async def finish_job(self, job: jobs.Job, status: jobs.Status, delete_job: bool) -> None:
        """See procrastinate."""
        await _insist(lambda: super(Manager, self).finish_job(job, status, delete_job))

    async def retry_job(
        self,
        job: jobs.Job,
        retry_at: datetime.datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        lock: str | None = None,
    ) -> None:
        """See procrastinate. Where another job of the key waits already, the unique index on waiting keys refuses
        this one; the one that waits stands for both."""
        try:
            await _insist(lambda: super(Manager, self).retry_job(job, retry_at, priority, queue, lock))
        except exceptions.UniqueViolation:
            await self.finish_job(job, jobs.Status.ABORTED, delete_job=True)


async def _insist(say: Callable[[], Awaitable[None]]) -> None:
    for wait_s in (*SAY_AGAIN_S, None):
        try:
            await say()
        except exceptions.UniqueViolation:
            raise
        except exceptions.ConnectorException as error:
            cause = error.__cause__
            if isinstance(cause, psycopg.errors.RaiseException):
                log.warning("a job was taken over meanwhile")  # and its new worker says what becomes of it
                return
            if wait_s is None or cause is None or not is_circumstance(cause):
                raise
            await asyncio.sleep(wait_s)
        else:
            return


def make_app(listen_url: str) -> procrastinate.App:
    """An engine without tasks. `open_async(pool)` connects it to a pool of jobs_pool."""
    app = procrastinate.App(connector=Connector(listen_url))
    app.job_manager = Manager(app.connector)
    return app


class _Handler(logging.Handler):
    """Warnings of the engine as lines of ours. Never its text or traceback: they quote arguments and errors."""

    def emit(self, record: logging.LogRecord) -> None:
        """See logging."""
        job = cast("dict[str, Any]", getattr(record, "job", None) or {})
        log.warning(
            "job engine",
            action=getattr(record, "action", record.funcName),
            task=job.get("task_name"),
            job_id=job.get("id"),
            error=record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None,
        )


def bridge_logs() -> None:
    """Send what the engine logs from warnings up through structlog; once for a process."""
    logger = logging.getLogger("procrastinate")
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    if not any(isinstance(each, _Handler) for each in logger.handlers):
        logger.addHandler(_Handler())
