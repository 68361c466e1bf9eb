"""The process that works by itself: events answered with jobs, jobs, and sweeps by the clock (`serve --role jobs`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import msgspec
import structlog

from ..commands.answers.continuations import forget_all
from ..commands.jobs import Job, Process, Sweep
from ..infra.database import Database
from ..infra.jobs.connector import Pool, jobs_pool
from ..infra.jobs.engine import POOL_SIZE, JobEngine
from ..infra.jobs.outbox import Outbox
from ..infra.postgres.continuation_rows import PostgresContinuationRows
from ..infra.postgres.listen import Listener
from ..infra.postgres.pool import make_pool, verify_role
from ..infra.postgres.retention import purge_expired
from ..infra.redaction.engine import Redactor
from ..infra.redaction.setup import redactor_of
from ..infra.settings import Settings
from ..infra.settings_check_kept import DAY_S
from ..infra.settings_section import parse_duration
from . import metrics_port
from .answer_work import NO_ANSWERS, AnswerWork, answer_work
from .conversation_sweeps import conversation_sweeps
from .delivery_work import DeliveryWork, delivery_work, open_channels
from .inbox_services import inbox_rows
from .link_work import keep_ends
from .metrics import Metrics
from .room_work import room_work
from .signals import signals_of

RETENTION_EVERY_S = 86_400
RETENTION_LIMIT_S = 3600.0
CUT_OFF_S = 1.0
"""This long before the end of the drain, jobs under way are cut off, so that they can still be put back."""

log = structlog.get_logger(__name__)


class Work(msgspec.Struct, frozen=True):
    """What a process of this role does."""

    processes: Sequence[Process]
    jobs: Sequence[Job]
    sweeps: Sequence[Sweep]


async def run_jobs(settings: Settings, database: Database, stop: asyncio.Event) -> None:
    """Work until `stop` is set, then let the jobs under way end. Raises RoleRefused where a role is more than its own,
    and LookupError where a process is in no migration."""
    async with contextlib.AsyncExitStack() as stack:
        await verify_role(database.url("app"), "app")
        redactor = redactor_of(settings)
        metrics = Metrics(redactor.rule_ids)
        signals = stack.enter_context(signals_of(settings, metrics, "jobs"))
        timeout_ms = settings.database.statement_timeout_ms
        pool = jobs_pool(database.url("app"), max_size=POOL_SIZE, statement_timeout_ms=timeout_ms)
        await pool.open(wait=True)
        stack.push_async_callback(pool.close)
        channels = await open_channels(settings, inbox_rows(settings, pool), stack)
        answers = NO_ANSWERS
        if settings.channels:
            answers = await answer_work(settings, database, channels, pool, redactor, stack, signals)
        deliveries = await delivery_work(
            settings, database, channels, pool, stop.is_set, stack, signals, answers.permit
        )
        work = await _work(settings, database, pool, redactor, metrics, deliveries, answers, stack)
        server = settings.server
        stack.enter_context(metrics_port.served(metrics, server.host, metrics_port.of_jobs(server)))
        engine = JobEngine(pool, database.listen_url, work.jobs, work.sweeps)
        if work.processes:
            await _follow(settings, database, work.processes, engine, stack)
        drain_s = max(0.0, settings.server.drain_seconds - CUT_OFF_S)
        async with asyncio.TaskGroup() as running:
            running.create_task(engine.run(stop, drain_s))
            if deliveries.engine is not None:
                running.create_task(deliveries.engine.run(stop, drain_s))


async def _follow(
    settings: Settings,
    database: Database,
    processes: Sequence[Process],
    engine: JobEngine,
    stack: contextlib.AsyncExitStack,
) -> None:
    """Start the outbox of each process, with a listener for them all."""
    await verify_role(database.url("projector"), "projector")
    pool = make_pool(
        database.url("projector"),
        "projector",
        max_size=len(processes) + 1,
        statement_timeout_ms=settings.database.statement_timeout_ms,
    )
    await pool.open(wait=True)
    stack.push_async_callback(pool.close)
    running: list[Outbox] = []

    def wake(ids: frozenset[int] | None) -> None:
        for outbox in running:
            outbox.wake(ids)

    listener = Listener(database.listen_url, wake, database.url("app"))
    for process in processes:
        outbox = Outbox(process, engine.app, pool, lambda: listener.is_up)
        await outbox.check()
        running.append(outbox)
    listener.start()
    stack.push_async_callback(listener.close)
    for outbox in running:
        outbox.start()
        stack.push_async_callback(outbox.close)


async def _work(
    settings: Settings,
    database: Database,
    pool: Pool,
    redactor: Redactor,
    metrics: Metrics,
    deliveries: DeliveryWork,
    answers: AnswerWork,
    stack: contextlib.AsyncExitStack,
) -> Work:
    """Put together what this process does. Whatever it opens is closed by `stack`."""
    rooms = await room_work(settings, database, redactor, metrics, stack)
    conversations = await conversation_sweeps(settings, database, stack)

    async def retention() -> None:
        kept = await deliveries.keep()
        log.info("payloads forgotten and deliveries sealed", payloads=kept.payloads, sealed=kept.sealed, ids=kept.bulk)
        forgotten = await keep_ends(settings, database)
        gone = forgotten.ends
        log.info(
            "ends and what is over of links forgotten",
            ends=gone.ends,
            tombstones=gone.tombstones,
            wrongs=gone.wrongs,
            challenges=gone.challenges,
            sign_ins=forgotten.sign_ins,
        )
        turns, items = await forget_all(PostgresContinuationRows(pool)), await inbox_rows(settings, pool).forget()
        log.info("background turns and items of inboxes forgotten", continuations=turns, items=items)
        await _purge(settings, database)

    purge = Sweep("retention", RETENTION_EVERY_S, retention, RETENTION_LIMIT_S)
    return Work(
        (*rooms.processes, *answers.processes),
        (*rooms.jobs, *answers.jobs, *deliveries.jobs),
        (*rooms.sweeps, *conversations, *deliveries.sweeps, *answers.sweeps, purge),
    )


async def _purge(settings: Settings, database: Database) -> None:
    """As the retention role, in sessions of its own. A purge that left something is a sweep that failed: it is said in
    the log and by the doctor, and comes again (fault B12)."""
    days = parse_duration(settings.delivery.inbound_ttl) // DAY_S
    report = await purge_expired(database.url("retention"), database.url("auditor"), inbound_days=days)
    for each in report.tenants:
        log.info(
            "expired streams deleted", tenant=each.tenant, streams=each.streams, events=each.events, keys=each.keys
        )
    if not report.ok:
        raise RetentionIncomplete(report.remaining_streams, report.remaining_keys)


class RetentionIncomplete(Exception):
    """So many expired streams and keys are still there."""
