"""The jobs of answers: resolve what is due, and take along what waits for an end that was unlinked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

from ...commands.jobs import Arguments, TryAgain
from ...commands.processes.answer_outbox import ANSWERS
from ...commands.processes.unlink_outbox import UNLINK
from ...domain.linking.events import LinkedEnd

Drain = Callable[[], Awaitable[bool]]
"""Resolver.drain."""

TakeAlong = Callable[[str, LinkedEnd], Awaitable[None]]
"""By account and end."""


class AnswersJob:
    """Resolves every answer whose turn has ended."""

    name: ClassVar[str] = ANSWERS
    is_exclusive: ClassVar[bool] = False

    def __init__(self, drain: Drain) -> None:
        self._drain = drain

    async def run(self, arguments: Arguments) -> None:  # noqa: ARG002 - the shape of Job
        """See commands.jobs.Job."""
        if not await self._drain():
            raise TryAgain("more")

    async def give_up(self, arguments: Arguments, reason: str) -> None:
        """See commands.jobs.Job. There is nothing to give up: what is due the sweep finds."""


class UnlinkJob:
    """Cancels what waits for an end. Twice is as once."""

    name: ClassVar[str] = UNLINK
    is_exclusive: ClassVar[bool] = False

    def __init__(self, take_along: TakeAlong) -> None:
        self._take_along = take_along

    async def run(self, arguments: Arguments) -> None:
        """See commands.jobs.Job."""
        await self._take_along(arguments["account"], LinkedEnd(arguments["channel"], arguments["native"]))

    async def give_up(self, arguments: Arguments, reason: str) -> None:
        """See commands.jobs.Job. Each send asks again whether its end is still there."""
