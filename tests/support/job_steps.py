"""Engines, outboxes and scripted jobs on a test's own database."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from minutebook.commands.jobs import Arguments, JobRequest, Process, Sweep
from minutebook.infra.jobs.backoff import Backoff
from minutebook.infra.jobs.connector import SEARCH_PATH, Pool, jobs_pool
from minutebook.infra.jobs.engine import JobEngine, Timing
from minutebook.infra.jobs.outbox import Outbox
from minutebook.infra.postgres.pool import make_pool

QUICK = Timing(heartbeat_s=0.2, silent_s=1.5, rescue_s=0.2, poll_s=0.2, interrupted_s=0)
"""As in production, but ten times as fast."""

SOON = Backoff(attempts=3, first_s=0.01, growth=1)
"""Three attempts at once."""

Step = Callable[[Arguments], Awaitable[None]]


class Scripted:
    """A job whose attempts do what a function says; remembers what happened to it."""

    name: ClassVar[str] = "scripted"
    is_exclusive: ClassVar[bool] = False

    def __init__(self, step: Step, give_up: Step | None = None) -> None:
        self._step = step
        self._given_up = give_up
        self.attempts: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []
        self.reasons: list[str] = []

    async def run(self, arguments: Arguments) -> None:
        self.attempts.append(dict(arguments))
        await self._step(arguments)
        self.ended.append(dict(arguments))

    async def give_up(self, arguments: Arguments, reason: str) -> None:
        self.reasons.append(reason)
        if self._given_up is not None:
            await self._given_up(arguments)


class Exclusive(Scripted):
    """Likewise, whose attempts must not overlap."""

    name: ClassVar[str] = "exclusive"
    is_exclusive: ClassVar[bool] = True


async def at_once(_arguments: Arguments) -> None:
    """A step that succeeds."""


@contextlib.asynccontextmanager
async def jobs_pool_of(database: Any) -> AsyncGenerator[Pool]:
    """An open pool for engines."""
    async with jobs_pool(database.url("app"), max_size=12, statement_timeout_ms=10_000) as pool:
        yield pool


@contextlib.asynccontextmanager
async def engine_of(
    database: Any,
    *jobs: Any,
    sweeps: Sequence[Sweep] = (),
    backoff: Backoff = SOON,
    timing: Timing = QUICK,
) -> AsyncGenerator[JobEngine]:
    """An engine with a pool of its own, not running."""
    async with jobs_pool_of(database) as pool:
        yield JobEngine(pool, database.url("app"), jobs, sweeps, backoff=backoff, timing=timing)


@contextlib.asynccontextmanager
async def running(engine: JobEngine, drain_s: float = 5) -> AsyncGenerator[asyncio.Event]:
    """The engine at work; the event stops it before the end of the block."""
    stop = asyncio.Event()
    task = asyncio.create_task(engine.run(stop, drain_s))
    try:
        yield stop
    finally:
        stop.set()
        await task


@contextlib.asynccontextmanager
async def outbox_of(database: Any, process: Process, engine: JobEngine) -> AsyncGenerator[Outbox]:
    """An outbox that feeds the engine's queue, not running; `fold` and `_turn` move it by hand."""
    pool = make_pool(database.url("projector"), "projector", max_size=3, statement_timeout_ms=10_000)
    async with pool:
        yield Outbox(process, engine.app, pool, lambda: True, linger_s=0)


async def drained(outbox: Outbox) -> None:
    """Look once for what is behind, and follow it to its end."""
    await outbox._find_behind()
    while outbox._dirty:
        ids, outbox._dirty = sorted(outbox._dirty), set()
        await outbox.fold(ids)


def request(key: str = "one", task: str = "scripted", **arguments: Any) -> JobRequest:
    """A job's request."""
    return JobRequest(task, key, arguments)


def rows(database: Any) -> list[tuple[str, str, str, int]]:
    """The queue: task, key, status, attempts; without sweeps."""
    with database.connect("auditor") as auditor:
        return auditor.execute(
            "SELECT j.task_name, j.lock, j.status::text, j.attempts FROM minutebook_jobs.procrastinate_jobs j"
            " WHERE j.task_name NOT LIKE 'sweep%' ORDER BY j.id"
        ).fetchall()


def queue_of(database: Any) -> psycopg.Connection:
    """An autocommit connection as the app that sees the engine's tables as the engine does."""
    connection = database.connect("app")
    connection.execute(f"SET search_path = {SEARCH_PATH}")
    return connection


async def eventually(check: Callable[[], bool], within_s: float = 20, what: str = "the condition") -> None:
    """Look every 20 ms until `check` holds."""
    try:
        async with asyncio.timeout(within_s):
            while not await asyncio.to_thread(check):  # noqa: ASYNC110 - states that nobody announces
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{what} did not come within {within_s} s") from None


def jobs_alone(data_dir: Path, url: str, *arguments: str) -> subprocess.Popen[str]:
    """A process of `serve` with arguments such as `--role jobs`, with its output in pipes."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")}
    return subprocess.Popen(
        [sys.executable, "-m", "minutebook.infra.cli.main", "serve", "--data-dir", str(data_dir), *arguments],
        env={**env, "MINUTEBOOK_DATABASE_URL": url},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
