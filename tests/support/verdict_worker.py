"""A process that posts verdicts as a server's jobs do, until it is killed; and the forge that kills it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from multiprocessing.process import BaseProcess
from typing import Any

import psycopg
from handlers import means_of
from job_steps import QUICK
from live_server import until
from minutebook.commands.dispatcher import Bounds, Dispatcher, Fingerprints
from minutebook.commands.processes.lookups import Lookups
from minutebook.commands.processes.server_acts import ServerActs
from minutebook.infra.jobs.backoff import Backoff
from minutebook.infra.jobs.connector import jobs_pool, make_app
from minutebook.infra.jobs.engine import JobEngine
from minutebook.infra.jobs.outward import VerdictJob
from minutebook.infra.jobs.waits import PostgresWaits
from minutebook.infra.outward_http import OutwardClient
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.due import PostgresDue
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.postgres.store import PostgresStore
from minutebook.infra.verdict_poster import GitHubVerdicts
from msgspec.structs import replace
from outside import LOST, Forge, Reply, Request

TIMING = replace(QUICK, heartbeat_s=0.05, silent_s=0.3, rescue_s=0.05, poll_s=0.05)
"""So that a worker which was killed is found out at once."""

BACKOFF = Backoff(attempts=1000, first_s=0.02, growth=1)

STEPS = ("who", "look", "post", "lost", "stored", "answered", "recorded")
AT_POST = STEPS[2:]

OUTCOMES = "SELECT count(DISTINCT payload ->> 'url') FROM minutebook.events WHERE payload ->> 'kind' = 'verdict_posted'"

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])


def start(url: str, forge: str) -> BaseProcess:
    """Another worker on the database, as the app role; it never ends by itself."""
    process = _processes.Process(target=_main, args=(url, forge), daemon=True)
    process.start()
    return process


def _main(url: str, forge: str) -> None:
    asyncio.run(_work(url, forge))


async def _work(url: str, forge: str) -> None:
    async with (
        make_pool(url, "app", max_size=4, statement_timeout_ms=10_000) as pool,
        jobs_pool(url, max_size=8, statement_timeout_ms=10_000) as jobs,
    ):
        appender = Appender(pool)
        appender.start()
        due, means = PostgresDue(pool), means_of()
        acts = ServerActs(Dispatcher(PostgresStore(pool, appender), Fingerprints(b"k" * 32), Bounds()), means)
        rooms = Lookups(acts, due, PostgresWaits(pool, make_app(url)), means.now)
        poster = GitHubVerdicts(forge, "right", OutwardClient(2, allow_private=True), settle_s=0.05)
        job = VerdictJob(poster, rooms.verdict, rooms.settle)
        await JobEngine(jobs, url, [job], backoff=BACKOFF, timing=TIMING).run(asyncio.Event(), 1)


class Killer(Forge):
    """Kills whoever calls it, where `plan` says so next: each is a step, and how long after it.

    `who`, `look`: when the worker asks who it is, and for the comments. `post`: when its comment arrives, which is
    stored all the same; `lost`: likewise, and it is not. `stored`: once the comment is stored, before the answer.
    `answered`: behind the answer, by so many seconds: before, while or after the outcome is recorded. `recorded`: once
    it is, and before the job says that it is done.
    """

    def __init__(self, database: Any) -> None:
        super().__init__()
        self._database = database
        self.plan: list[tuple[str, float]] = []
        self.victim: BaseProcess | None = None
        self.kills = 0

    def handle(self, request: Request) -> Reply:
        """One request, in a thread of its own."""
        with self.lock:
            at = "post" if request.method == "POST" else "who" if request.path == "/user" else "look"
            step, after_s = self.plan[0] if self.plan else ("", 0.0)
            if step != at and (at != "post" or step not in AT_POST):
                step = ""
            else:
                self.plan.pop(0)
        if step in ("who", "look", "post", "lost"):
            self._kill()
        if step == "lost":
            return LOST
        job = self._lock_job() if step == "recorded" else None
        reply = super().handle(request)
        if job is not None:
            threading.Thread(target=self._kill_when_recorded, args=(job,), daemon=True).start()
        elif step == "stored":
            self._kill()
        elif step == "answered":
            threading.Timer(after_s, self._kill).start()
        return reply

    def _lock_job(self) -> psycopg.Connection:
        connection = self._database.connect("postgres")
        connection.autocommit = False
        connection.execute("SELECT FROM minutebook_jobs.procrastinate_jobs WHERE status = 'doing' FOR UPDATE")
        return connection

    def _kill_when_recorded(self, job: psycopg.Connection) -> None:
        with self._database.connect("auditor") as look, job:
            until(lambda: look.execute(OUTCOMES).fetchone() == (len(self.comments),), what="the record")
            self._kill()

    def _kill(self) -> None:
        victim: Any = self.victim
        if victim is not None and victim.is_alive():
            os.kill(victim.pid, signal.SIGKILL)
            self.kills += 1
