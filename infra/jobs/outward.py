"""The jobs between an event and the outside: look up what to say by its ids, say it, tell the room what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

from ...commands.jobs import Arguments
from ...commands.outward import (
    Launch,
    Launcher,
    Notice,
    NoticeKind,
    Notifier,
    NotPosted,
    Posted,
    Verdict,
    VerdictPoster,
)
from ...commands.processes.requests import LAUNCH_RUN, NOTIFY, POST_VERDICT

FindLaunch = Callable[[str, str], Awaitable[Launch | None]]
"""By room and run; None where there is nothing to start any more."""

FindVerdict = Callable[[str, int], Awaitable[Verdict | NotPosted | None]]
"""By room and seq; None where its outcome is recorded already, or nobody is to be told."""

RecordVerdict = Callable[[str, int, Posted | NotPosted], Awaitable[None]]
"""Appends the outcome, with a fixed key."""

Holds = Callable[[Notice], Awaitable[bool]]
"""Whether a notice is still worth telling."""

NotLaunched = Callable[[str, str, str], Awaitable[None]]
"""Hears room, run and reason where a run could not be handed over."""


class LaunchJob:
    """Hands a run to the launcher. At least once: the launcher knows a repetition by its webhook-id."""

    name: ClassVar[str] = LAUNCH_RUN
    is_exclusive: ClassVar[bool] = False

    def __init__(self, launcher: Launcher, find: FindLaunch, not_launched: NotLaunched) -> None:
        self._launcher = launcher
        self._find = find
        self._not_launched = not_launched

    async def run(self, arguments: Arguments) -> None:
        """See commands.jobs.Job."""
        launch = await self._find(arguments["room"], arguments["run"])
        if launch is not None:
            await self._launcher.launch(launch)

    async def give_up(self, arguments: Arguments, reason: str) -> None:
        """See commands.jobs.Job."""
        await self._not_launched(arguments["room"], arguments["run"], reason)


class NotifyJob:
    """Tells of a notice. At least once, likewise; a notice that cannot be told is dropped with a line in the log."""

    name: ClassVar[str] = NOTIFY
    is_exclusive: ClassVar[bool] = False

    def __init__(self, notifier: Notifier, holds: Holds | None = None) -> None:
        self._notifier = notifier
        self._holds = holds

    async def run(self, arguments: Arguments) -> None:
        """See commands.jobs.Job."""
        kind: NoticeKind = arguments["kind"]
        notice = Notice(
            kind,
            arguments["room"],
            arguments["seq"],
            arguments["ts"],
            arguments.get("run"),
            arguments.get("approval"),
            arguments.get("silence", False),
        )
        if self._holds is None or await self._holds(notice):
            await self._notifier.notify(notice)

    async def give_up(self, arguments: Arguments, reason: str) -> None:
        """See commands.jobs.Job."""


class VerdictJob:
    """Brings a verdict to its pull request, once (SC-14), and records what came of it."""

    name: ClassVar[str] = POST_VERDICT
    is_exclusive: ClassVar[bool] = True

    def __init__(self, poster: VerdictPoster, find: FindVerdict, record: RecordVerdict) -> None:
        self._poster = poster
        self._find = find
        self._record = record

    async def run(self, arguments: Arguments) -> None:
        """See commands.jobs.Job."""
        room, seq = arguments["room"], arguments["seq"]
        found = await self._find(room, seq)
        if isinstance(found, Verdict):
            found = await self._poster.post(found)
        if found is not None:
            await self._record(room, seq, found)

    async def give_up(self, arguments: Arguments, reason: str) -> None:
        """See commands.jobs.Job."""
        await self._record(arguments["room"], arguments["seq"], NotPosted(reason))
