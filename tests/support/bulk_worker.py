"""A process that runs bulk plans as a server's jobs do, until it is killed at a place that its database shows."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Awaitable, Callable
from multiprocessing.process import BaseProcess
from typing import Any, LiteralString

from delivery_desk import Desk, desk_of, webhook
from live_server import until
from minutebook.commands.deliveries.bulk_run import BulkMeans, BulkRunner
from minutebook.commands.deliveries.planning import ChannelTerms
from minutebook.domain.deliveries.retry import Policy
from ulid_transform import ulid_now

SWEEP_S = 0.1

_HELD: LiteralString = """
SELECT a.pid FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.usename = 'minutebook_app' AND a.wait_event_type = 'Lock'
"""

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])


def runner_of(desk: Desk, policy: Policy, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> BulkRunner:
    """What runs plans in a process of jobs."""
    terms = ChannelTerms(policy)
    means = BulkMeans(
        desk.bulk, desk.store, desk.rows, desk.payloads, desk.queue, lambda _name: terms, ulid_now, pause=pause
    )
    return BulkRunner(means, lambda: False)


def start(url: str, receiver: str, policy: Policy) -> BaseProcess:
    """One more process of jobs; it never ends by itself."""
    process = _processes.Process(target=_main, args=(url, receiver, policy), daemon=True)
    process.start()
    return process


def kill(process: BaseProcess) -> None:
    """SIGKILL, and wait until it is gone."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def die_before(database: Any, table: LiteralString, started: Callable[[], BaseProcess]) -> None:
    """Start one and kill it while it waits to write to a table for the first time; that write never comes."""
    with database.connect("postgres") as superuser, database.connect("postgres") as other, superuser.transaction():
        superuser.execute(f"LOCK TABLE minutebook.{table} IN SHARE MODE")
        process = started()
        until(lambda: other.execute(_HELD).fetchone() is not None, 20, f"the write to {table}", 0.01)
        kill(process)
        for (pid,) in other.execute(_HELD).fetchall():
            other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


def _main(url: str, receiver: str, policy: Policy) -> None:
    asyncio.run(_work(url, receiver, policy))


async def _work(url: str, receiver: str, policy: Policy) -> None:
    async with desk_of(url, {"hook": webhook("hook", receiver)}, policy=policy) as desk:
        runner = runner_of(desk, policy)
        while True:
            await runner.sweep()
            await asyncio.sleep(SWEEP_S)
