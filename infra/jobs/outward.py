"""The jobs between an event and the outside: look up what to say by its ids, say it, tell the room what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

from ...commands.jobs import Arguments, JobRequest
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

FindLaunch = Callable[[str, str], Awaitable[Launch | None]]
"""By room and run; None where there is nothing to start any more."""

FindVerdict = Callable[[str, int], Awaitable[Verdict | NotPosted | None]]
"""By room and seq; None where its outcome is recorded already, or nobody is to be told."""

RecordVerdict = Callable[[str, int, Posted | NotPosted], Awaitable[None]]
"""Appends the outcome, with a fixed key."""

NotLaunched = Callable[[str, str, str], Awaitable[None]]
"""Hears room, run and reason where a run could not be handed over."""


def launch_request(room: str, run_id: str) -> JobRequest:
    """The job that hands a run to the launcher."""
    return JobRequest(LaunchJob.name, f"launch:{room}:{run_id}", {"room": room, "run": run_id})


def notice_request(notice: Notice) -> JobRequest:
    """The job that tells of a notice, which has ids only and so goes along."""
    arguments = {"kind": notice.kind, "room": notice.room, "seq": notice.seq, "ts": notice.ts}
    if notice.run_id is not None:
        arguments["run"] = notice.run_id
    if notice.approval_id is not None:
        arguments["approval"] = notice.approval_id
    return JobRequest(NotifyJob.name, f"notify:{notice.room}:{notice.seq}:{notice.kind}", arguments)


def verdict_request(room: str, seq: int) -> JobRequest:
    """The job that brings a verdict to its pull request."""
    return JobRequest(VerdictJob.name, f"verdict:{room}:{seq}", {"room": room, "seq": seq})


class LaunchJob:
    """Hands a run to the launcher. At least once: the launcher knows a repetition by its webhook-id."""

    name: ClassVar[str] = "launch_run"
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

    name: ClassVar[str] = "notify"
    is_exclusive: ClassVar[bool] = False

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier

    async def run(self, arguments: Arguments) -> None:
        """See commands.jobs.Job."""
        kind: NoticeKind = arguments["kind"]
        await self._notifier.notify(
            Notice(
                kind,
                arguments["room"],
                arguments["seq"],
                arguments["ts"],
                arguments.get("run"),
                arguments.get("approval"),
            )
        )

    async def give_up(self, arguments: Arguments, reason: str) -> None:
        """See commands.jobs.Job."""


class VerdictJob:
    """Brings a verdict to its pull request, once (SC-14), and records what came of it."""

    name: ClassVar[str] = "post_verdict"
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
