"""One worker: runs jobs and sweeps until it is told to stop, and outlives what the database does."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import procrastinate
import structlog
from procrastinate import JobContext, RetryDecision
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.jobs import Job as EngineJob
from procrastinate.retry import BaseRetryStrategy

from ...commands.jobs import Job, JobRequest, Refused, Sweep, TryAgain
from ..postgres.pool import renew_if_read_only
from .backoff import Backoff
from .connector import Pool, bridge_logs, make_app
from .rescue import RESCUE_S, rescue_for_ever
from .sweeps import add_sweeps

CONCURRENCY = 8
"""Jobs at once in one process."""

POOL_SIZE = 2 * CONCURRENCY
"""Connections: one for each exclusive attempt, the engine's own, and some for what jobs look up."""

ATTEMPT_S = 25.0
"""Longest attempt; below the 30 s after which the database ends the transaction that keeps exclusive ones apart."""

GIVE_UP_AGAIN_S = 60.0
"""Wait before a job is given up once more, where that failed."""

BUSY_S = 5.0
"""Wait for an attempt that overlaps."""

RESTART_S = 1.0

_NAME = re.compile(r"[a-z_]{1,32}")
_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"

log = structlog.get_logger(__name__)


class Timing(msgspec.Struct, frozen=True):
    """How a worker shows that it lives, in seconds. silent_s: after so much silence its jobs are others'.

    interrupted_s: the wait of a job that was cut off at the end of a drain, so that what it had sent comes to its end.
    """

    heartbeat_s: float = 10
    silent_s: float = 30
    rescue_s: float = RESCUE_S
    poll_s: float = 2
    interrupted_s: float = 30


class _Later(Exception):
    """An attempt that failed is repeated after `wait_s`."""

    def __init__(self, wait_s: float) -> None:
        super().__init__("later")
        self.wait_s = wait_s


class _Strategy(BaseRetryStrategy):
    def __init__(self, interrupted_s: float) -> None:
        self._interrupted_s = interrupted_s

    def get_retry_decision(self, *, exception: BaseException, job: EngineJob) -> RetryDecision | None:  # noqa: ARG002
        if isinstance(exception, _Later):
            wait_s = exception.wait_s
        elif isinstance(exception, asyncio.CancelledError):
            wait_s = self._interrupted_s
        else:
            return None
        return RetryDecision(retry_at=datetime.now(UTC) + timedelta(seconds=wait_s))


class JobEngine:
    """Jobs and sweeps of one process. Any number of them share the work.

    `pool` comes from jobs_pool and is open; the engine does not close it.
    """

    def __init__(
        self,
        pool: Pool,
        listen_url: str,
        jobs: Sequence[Job],
        sweeps: Sequence[Sweep] = (),
        *,
        backoff: Backoff | None = None,
        timing: Timing | None = None,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self._pool = pool
        self._backoff = backoff or Backoff()
        self._timing = timing or Timing()
        self._concurrency = concurrency
        self.app: procrastinate.App = make_app(listen_url)
        self._queues = [*(self._add(job) for job in jobs), *add_sweeps(self.app, pool, sweeps)]

    async def defer(self, request: JobRequest) -> None:
        """Ask for a job outside of any transaction; for tests and tools, since events ask through the outbox."""
        await self.app.connector.open_async(self._pool)
        async with self._pool.connection() as connection:
            await defer(self.app, connection, request)

    async def run(self, stop: asyncio.Event, drain_s: float) -> None:
        """Work until `stop` is set; then jobs under way have drain_s to end, and the others are left to whoever comes
        next."""
        bridge_logs()
        await self.app.connector.open_async(self._pool)
        timing = self._timing
        rescuing = asyncio.create_task(rescue_for_ever(self._pool, timing.silent_s, timing.rescue_s), name="rescue")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            while not stop.is_set():
                working = asyncio.create_task(self._work(drain_s), name="job worker")
                await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
                if stop.is_set():
                    working.cancel()
                (ended,) = await asyncio.gather(working, return_exceptions=True)
                if not stop.is_set():
                    cause = ended.__cause__ if ended is not None else None
                    log.warning("job worker interrupted", error=type(cause or ended).__name__)
                    if cause is not None:
                        await renew_if_read_only(self._pool, cause)
                    await asyncio.wait((stopping,), timeout=RESTART_S)
        finally:
            for task in (rescuing, stopping):
                task.cancel()
            await asyncio.gather(rescuing, stopping, return_exceptions=True)

    async def _work(self, drain_s: float) -> None:
        await self.app.run_worker_async(
            queues=self._queues,
            concurrency=self._concurrency,
            install_signal_handlers=False,
            delete_jobs="successful",
            shutdown_graceful_timeout=drain_s,
            fetch_job_polling_interval=self._timing.poll_s,
            update_heartbeat_interval=self._timing.heartbeat_s,
            stalled_worker_timeout=self._timing.silent_s,
        )

    def _add(self, job: Job) -> str:
        if _NAME.fullmatch(job.name) is None:
            raise ValueError(f"{job.name!r} is no name of a job: 1 to 32 characters of [a-z_]")

        async def attempt(context: JobContext, **arguments: Any) -> None:
            await self._attempt(job, context.job, arguments)

        strategy = _Strategy(self._timing.interrupted_s)
        # A queue of its own: a worker of an older version, which does not know the task, leaves it alone.
        self.app.task(name=job.name, queue=job.name, pass_context=True, retry=strategy)(attempt)
        return job.name

    async def _attempt(self, job: Job, row: EngineJob, arguments: dict[str, Any]) -> None:
        number = row.attempts + 1
        if number > self._backoff.attempts:
            # Its last attempt failed and so did giving up, or it takes every worker down that touches it.
            await self._give_up(job, row, arguments, "attempts_used")
            return
        try:
            async with asyncio.timeout(ATTEMPT_S), self._alone(job, row):
                await job.run(arguments)
            return
        except Refused as error:
            reason, asked_s, is_last = error.reason, None, True
        except TryAgain as error:
            reason, asked_s, is_last = error.reason, error.after_s, number == self._backoff.attempts
        except TimeoutError:
            # Cut off in the middle of something, like at the end of a drain.
            reason, asked_s, is_last = "timeout", self._timing.interrupted_s, number == self._backoff.attempts
        except Exception as error:  # noqa: BLE001 - whatever it is, the job has its further attempts
            log.warning("job failed", task=job.name, job_id=row.id, attempt=number, error=type(error).__name__)
            reason, asked_s, is_last = "failed", None, number == self._backoff.attempts
        if is_last:
            await self._give_up(job, row, arguments, reason)
            return
        log.info("job is tried again", task=job.name, job_id=row.id, attempt=number, reason=reason)
        raise _Later(self._backoff.wait_s(number, asked_s))

    async def _give_up(self, job: Job, row: EngineJob, arguments: dict[str, Any], reason: str) -> None:
        log.warning("job given up", task=job.name, job_id=row.id, reason=reason)
        try:
            async with asyncio.timeout(ATTEMPT_S):
                await job.give_up(arguments, reason)
        except Exception as error:  # noqa: BLE001 - what must be said about a lost job is said until it is heard
            log.warning("giving up failed", task=job.name, job_id=row.id, error=type(error).__name__)
            raise _Later(GIVE_UP_AGAIN_S) from None

    @contextlib.asynccontextmanager
    async def _alone(self, job: Job, row: EngineJob) -> AsyncGenerator[None]:
        """Keeps exclusive attempts of one key apart, also where this worker, or another, is believed dead and is not:
        the engine's own lock goes with that belief."""
        if not job.is_exclusive:
            yield
            return
        async with self._pool.connection() as connection, connection.transaction():
            taken = await (await connection.execute(_LOCK, (f"job {row.lock}",))).fetchone()
            if taken != (True,):
                raise TryAgain("busy", BUSY_S)
            yield


async def defer(app: procrastinate.App, connection: Any, request: JobRequest) -> bool:
    """Put a job into the queue in the caller's transaction; False where one of its key waits already.

    The search_path of the connection must have the engine's schema in it.
    """
    deferrer = app.configure_task(
        request.task,
        queue=request.task,
        lock=request.key,
        queueing_lock=request.key,
        schedule_in={"seconds": request.after_s} if request.after_s else None,
        connection=connection,
    )
    try:
        async with connection.transaction():
            await deferrer.defer_async(**request.arguments)
    except AlreadyEnqueued:
        return False
    return True
