"""A process that drains lanes as a server's jobs do, until it is killed; and the receiver that kills it."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from multiprocessing.process import BaseProcess
from typing import Any

from delivery_desk import Receiver, desk_of, webhook
from job_steps import QUICK
from live_server import until
from minutebook.domain.deliveries.retry import Policy
from msgspec.structs import replace
from outside import LOST, Reply, Request

TIMING = replace(QUICK, heartbeat_s=0.05, silent_s=0.3, rescue_s=0.05, poll_s=0.05)
"""So that a worker which was killed is found out at once."""

POLICY = Policy(attempts=20, first_s=0.02, growth=1, timeout_s=0.3, grace_s=0.2)
"""An attempt's lease is gone after half a second."""

SWEEP_S = 0.1

STEPS = ("arrived", "answered", "planned", "lost", "recorded")

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])


def start(url: str, receiver: str) -> BaseProcess:
    """Another worker on the database, as the app role; it never ends by itself."""
    process = _processes.Process(target=_main, args=(url, receiver), daemon=True)
    process.start()
    return process


def _main(url: str, receiver: str) -> None:
    asyncio.run(_work(url, receiver))


async def _work(url: str, receiver: str) -> None:
    async with desk_of(url, {"hook": webhook("hook", receiver)}, policy=POLICY) as desk:
        asyncio.get_running_loop().create_task(_sweeping(desk))
        await desk.engine(url, timing=TIMING).run(asyncio.Event(), 1)


async def _sweeping(desk: Any) -> None:
    while True:
        await desk.sweep()
        await asyncio.sleep(SWEEP_S)


class KillingReceiver(Receiver):
    """Kills whoever calls it, where `plan` says so next: each is a step, and how long after it.

    `lost`: when the call arrives, which has no effect; `arrived`: once it was taken, before the answer; `answered`: so
    many seconds behind the answer: before, while or after the end is recorded; `recorded`: once it is.
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
            step, after_s = self.plan.pop(0) if self.plan else ("", 0.0)
        if step == "lost":
            self.kill()
            return LOST
        reply = super().handle(request)
        if step == "arrived":
            self.kill()
        elif step == "answered":
            threading.Timer(after_s, self.kill).start()
        elif step == "recorded":
            key = request.headers["webhook-id"].partition(".")[0]
            threading.Thread(target=self._kill_when_recorded, args=(key,), daemon=True).start()
        return reply

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        victim = self.victim
        if victim is not None and victim.pid is not None:
            with contextlib.suppress(ProcessLookupError):  # a late kill of the round before was quicker
                os.kill(victim.pid, signal.SIGKILL)
                self.kills += 1

    def _kill_when_recorded(self, delivery_id: str) -> None:
        with self._database.connect("auditor") as auditor:
            until(
                lambda: (
                    auditor.execute(
                        "SELECT d.state FROM minutebook.deliveries d WHERE d.id = %s", (delivery_id,)
                    ).fetchone()
                    == ("accepted",)
                ),
                10,
                "the record",
                0.001,
            )
        self.kill()
