"""The sweep of runs: a running one that is silent is lost, a requested one never joined (rooms.md, Runs)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ...domain.rooms.commands import SweepRun
from .ports import Due, DueRun
from .server_acts import ServerActs
from .sweeping import sweep


class RunSweep:
    """Any number of servers may have it: a run ends once, under its own key."""

    def __init__(self, due: Due, acts: ServerActs, now: Callable[[], datetime]) -> None:
        self._due = due
        self._acts = acts
        self._now = now

    async def run(self) -> None:
        """Look once. Raises Unavailable."""
        await sweep(self._find, self._end)

    async def _find(self, after: int) -> Sequence[DueRun]:
        return await self._due.runs(self._now(), self._acts.timeouts, after)

    async def _end(self, each: DueRun) -> None:
        await self._acts.sweep_run(each.room_id, SweepRun(each.run_id, each.since))
