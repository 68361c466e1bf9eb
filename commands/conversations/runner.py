"""The runner of conversations: takes their turns over, whichever process they were sent to, and lets none be lost.

A conversation is worked at under a lease of its stream, which every append carries. It is found by a poke after a send,
by wake-ups of its stream, and by a sweep of what waits without a runner, which also finds what a crash left. A process
that ends calls the others to such a sweep.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from ...domain.errors import MinutebookError
from .means import RunnerMeans
from .sealing import SealedTurns
from .worker import Worker

SWEEP_S = 5.0
"""Between two looks for conversations that wait without a runner."""

MORE_S = 0.1
"""Between two looks of which the first found all that one look takes."""

SWEEP_ROWS = 64
"""Conversations that one look takes."""

MAX_WORKERS = 512
"""Conversations that a process works at; what is over it waits for a sweep, of this process or another."""

CLOSE_S = 5.0
"""Longest wait, at the end, for leases to be let go; those that are not lapse."""

LEAVE_S = 1.0
"""Longest wait, at the end, for the call to the other processes."""

log = structlog.get_logger(__name__)


class Runner:
    """One per process."""

    def __init__(self, means: RunnerMeans) -> None:
        self._means = means
        self._workers: dict[str, Worker] = {}
        self._sealed = SealedTurns()
        self._sweeper: asyncio.Task[None] | None = None
        self._is_closing = False
        self._is_called = asyncio.Event()
        self._is_listening: Callable[[], bool] = lambda: True

    def start(self, is_listening: Callable[[], bool] = lambda: True) -> None:
        """Begin to sweep on the running loop; the first look is at once. is_listening: whether wake-ups are heard."""
        self._is_listening = is_listening
        self._sweeper = asyncio.create_task(self._sweep_for_ever(), name="turn sweep")

    async def close(self) -> None:
        """Stop at once where every turn is and let the leases go, so that another process goes on."""
        self._is_closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        tasks = [worker.stop() for worker in self._workers.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
            await self._leave()

    async def _leave(self) -> None:
        """Whoever does not hear it finds the work by a sweep."""
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._means.work.leave()
        except (MinutebookError, TimeoutError):
            log.warning("nobody was called to the turns that were left; they wait for a sweep")

    @property
    def workers(self) -> int:
        """Conversations that are worked at."""
        return len(self._workers)

    @property
    def running(self) -> int:
        """Turns that run here."""
        return sum(1 for worker in self._workers.values() if worker.is_in_turn)

    def poke(self, conversation_id: str) -> None:
        """The conversation has work, or its running turn may have to stop."""
        if self._is_closing:
            return
        worker = self._workers.get(conversation_id)
        if worker is not None:
            worker.wake()
        elif len(self._workers) < MAX_WORKERS:
            worker = self._workers[conversation_id] = Worker(
                self._means, conversation_id, self._sealed, self._is_listening
            )
            worker.start(self._gone)

    def wake(self, ids: frozenset[int] | None) -> None:
        """What the listener heard; None: any stream may have moved."""
        for worker in self._workers.values():
            if ids is None or worker.stream_id in ids:
                worker.wake()

    def look(self, _: frozenset[int] | None = None) -> None:
        """Sweep at once: another process left work, or may have."""
        self._is_called.set()

    async def sweep(self) -> int:
        """Take over what waits without a runner; how many conversations were found. Raises Unavailable."""
        due = await self._means.work.due(SWEEP_ROWS)
        for _, name in due:
            self.poke(name.partition(":")[2])
        return len(due)

    async def idle(self) -> None:
        """Returns once nothing is worked at: for tests."""
        while self._workers:
            await asyncio.wait([worker.task for worker in self._workers.values()])
            await asyncio.sleep(0)

    def _gone(self, worker: Worker) -> None:
        """A worker is through; what came in its last moment begins another one."""
        self._workers.pop(worker.conversation_id, None)
        if worker.is_woken:
            self.poke(worker.conversation_id)

    async def _sweep_for_ever(self) -> None:
        while True:
            self._is_called.clear()
            found = 0
            try:
                found = await self.sweep()
            except MinutebookError as error:
                log.warning("the work of conversations was not looked at", error=type(error).__name__)
            is_more = found == SWEEP_ROWS and len(self._workers) < MAX_WORKERS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MORE_S if is_more else SWEEP_S):
                    await self._is_called.wait()
