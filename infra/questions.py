"""Callables of the settings that are asked something, and must not hold up who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from .python_callable import is_async
from .tools.threads import Outcome, Threads

ANSWER_S = 0.25
"""A callable that takes longer gives no answer."""

MAX_THREADS = 16
"""Calls of callables at once, those among them that hang."""

WAIT_S = 1.0
"""So long a question waits for a free thread; then there is no answer."""

TELL_EVERY_S = 1.0
"""From one line of the log about a failing callable to the next."""

log = structlog.get_logger(__name__)


class Questions:
    """One per process, loop and subject. Sync callables run in threads, async ones in a loop of their own in such a
    thread, so that one that hangs holds up nobody but its own answer."""

    def __init__(self, subject: str, answer_s: float = ANSWER_S) -> None:
        """subject: for lines of the log. answer_s: seconds that a callable has."""
        self._subject = subject
        self._answer_s = answer_s
        self._threads = Threads(MAX_THREADS, f"minutebook-{subject}")
        self._begun: dict[asyncio.Future[Outcome], float] = {}
        self._told_at = float("-inf")

    async def ask(self, function: Callable[..., Any], arguments: Callable[[], tuple[Any, ...]]) -> Any:
        """What it answers; None where it fails or is late. arguments: made anew for each call, so that what a callable
        does to them stays without effect. Never raises."""
        if self._all_hang():
            self._tell("all threads hang")
            return None
        try:
            async with asyncio.timeout(WAIT_S):
                coming = await self._threads.begin(partial(_asked, function, arguments(), self._answer_s))
        except TimeoutError:
            self._tell("no thread is free")
            return None
        self._begun[coming] = asyncio.get_running_loop().time()
        coming.add_done_callback(self._ended)
        await asyncio.wait((coming,), timeout=self._answer_s)
        if not coming.done():
            self._tell("took too long")
            return None
        outcome = coming.result()
        if outcome.error is not None:
            # Its message could say what was asked for.
            self._tell(type(outcome.error).__name__)
            return None
        return outcome.value

    def _all_hang(self) -> bool:
        late = asyncio.get_running_loop().time() - self._answer_s
        return len(self._begun) >= MAX_THREADS and all(begun <= late for begun in self._begun.values())

    def _ended(self, coming: asyncio.Future[Outcome]) -> None:
        self._begun.pop(coming, None)

    def _tell(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            log.warning("a callable of the settings gave no answer", subject=self._subject, why=why)


def _asked(function: Callable[..., Any], arguments: tuple[Any, ...], answer_s: float) -> Any:
    """In a thread. Raises whatever the callable does."""
    answer = function(*arguments)
    if is_async(function):
        answer = asyncio.run(_awaited(answer, answer_s))
    if asyncio.iscoroutine(answer):
        answer.close()  # nobody will await it
        return None
    return answer


async def _awaited(answer: Awaitable[Any], answer_s: float) -> Any:
    async with asyncio.timeout(answer_s):
        return await answer
