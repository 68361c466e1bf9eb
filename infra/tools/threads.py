"""Functions that block, each in a thread that nobody waits for longer than its call may take."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

MAX_THREADS = 16
"""Calls at once in a process, those among them that nobody waits for any more."""


class Outcome(NamedTuple):
    """What a function returned, or what it raised."""

    value: Any = None
    error: BaseException | None = None


class Threads:
    """A thread for each call, at most so many at once; a function that never returns keeps its thread, and a stopping
    server does not wait for it."""

    def __init__(self, most: int = MAX_THREADS, name: str = "minutebook-tool") -> None:
        self._free = asyncio.Semaphore(most)
        self._name = name

    async def run(self, call: Callable[[], Any]) -> Outcome:
        """What came of it. It goes on to its end where the caller does not."""
        return await (await self.begin(call))

    async def begin(self, call: Callable[[], Any]) -> asyncio.Future[Outcome]:
        """As `run`, but only until there is a thread for it: what will have come of it."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Outcome] = loop.create_future()
        context = contextvars.copy_context()

        def body() -> None:
            try:
                outcome = Outcome(context.run(call))
            except BaseException as error:  # noqa: BLE001 - the caller gets it, SystemExit too
                outcome = Outcome(error=error)
            _tell(loop, self._ended, done, outcome)

        try:
            threading.Thread(target=body, name=self._name, daemon=True).start()
        except RuntimeError as error:  # the system has no more of them
            self._ended(done, Outcome(error=error))
        return done

    def _ended(self, done: asyncio.Future[Outcome], outcome: Outcome) -> None:
        self._free.release()
        if not done.done():
            done.set_result(outcome)


def _tell(loop: asyncio.AbstractEventLoop, ended: Callable[..., None], *what: Any) -> None:
    try:
        loop.call_soon_threadsafe(ended, *what)
    except RuntimeError:
        return  # the loop is closed: the server has stopped
