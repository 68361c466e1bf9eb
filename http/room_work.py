"""What rooms do without anybody asking, put together for the process of jobs: sweeps, reactions, and their jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from msgspec import Struct

from ..commands.dispatcher import Dispatcher, Fingerprints
from ..commands.jobs import Job, Process, Sweep
from ..commands.processes.approval_expiry import ApprovalExpiry
from ..commands.processes.driver_lease import DriverLease
from ..commands.processes.lookups import Lookups
from ..commands.processes.room_outbox import RoomOutbox
from ..commands.processes.run_sweep import RunSweep
from ..commands.processes.server_acts import ServerActs
from ..commands.processes.silence_sweep import SilenceSweep
from ..infra.database import Database
from ..infra.jobs.connector import make_app
from ..infra.jobs.outward import LaunchJob, NotifyJob, VerdictJob
from ..infra.jobs.waits import PostgresWaits
from ..infra.launcher import WebhookLauncher
from ..infra.notifier import WebhookNotifier
from ..infra.postgres.appender import Appender
from ..infra.postgres.due import PostgresDue
from ..infra.postgres.store import PostgresStore
from ..infra.redaction.engine import Redactor
from ..infra.server_key import server_key
from ..infra.settings import Settings
from ..infra.verdict_poster import GitHubVerdicts
from .app_pools import app_pool
from .bounds import dispatcher_bounds, now, room_means
from .metrics import Metrics

SWEEP_S = 30
"""Between two looks at drivers, runs and silences (rooms.md, Driver token)."""

EXPIRY_S = 15
"""Between two looks at approvals: an expiry is applied within 30 s, the look and the tick included."""


class RoomWork(Struct, frozen=True):
    """What the process of jobs does for rooms."""

    processes: Sequence[Process]
    jobs: Sequence[Job]
    sweeps: Sequence[Sweep]


async def room_work(
    settings: Settings, database: Database, redactor: Redactor, metrics: Metrics, stack: contextlib.AsyncExitStack
) -> RoomWork:
    """Open what it needs, to be closed by `stack`. The role of `database` is verified already."""
    pool = await app_pool(settings, database, stack, "jobs", settings.database.pool_size)
    appender = Appender(pool, writers=1, told=metrics.append_took)
    appender.start()
    stack.push_async_callback(appender.close)
    acts = ServerActs(
        Dispatcher(
            PostgresStore(pool, appender), Fingerprints(server_key(settings)), dispatcher_bounds(settings), metrics
        ),
        room_means(settings, redactor.value),
    )
    due = PostgresDue(pool)
    waits = PostgresWaits(pool, make_app(database.listen_url))
    jobs = _jobs(settings, Lookups(acts, due, waits, now), stack)
    names = {job.name for job in jobs}
    process = RoomOutbox(
        launches=LaunchJob.name in names, notifies=NotifyJob.name in names, posts=VerdictJob.name in names
    )
    sweeps = [
        Sweep("drivers", SWEEP_S, DriverLease(due, acts, now).run),
        Sweep("runs", SWEEP_S, RunSweep(due, acts, now).run),
        Sweep("approvals", EXPIRY_S, ApprovalExpiry(due, acts, now).run),
    ]
    if NotifyJob.name in names:
        sweeps.append(Sweep("silences", SWEEP_S, SilenceSweep(due, waits, acts.timeouts, now).run))
    return RoomWork((process,), jobs, sweeps)


def _jobs(settings: Settings, rooms: Lookups, stack: contextlib.AsyncExitStack) -> list[Job]:
    """Those whose outside is configured."""
    jobs: list[Job] = []
    launcher = WebhookLauncher.of(settings.launcher, now)
    if launcher is not None:
        stack.push_async_callback(launcher.close)
        jobs.append(LaunchJob(launcher, rooms.launch, rooms.not_launched))
    notifier = WebhookNotifier.of(settings.notify, now)
    if notifier is not None:
        stack.push_async_callback(notifier.close)
        jobs.append(NotifyJob(notifier, rooms.holds))
    poster = GitHubVerdicts.of(settings.verdicts)
    if poster is not None:
        stack.push_async_callback(poster.close)
        jobs.append(VerdictJob(poster, rooms.verdict, rooms.settle))
    return jobs
