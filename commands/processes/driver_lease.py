"""The sweep of drivers: a person who is away or idle loses the token to its system holder (rooms.md, Driver token)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ...domain.rooms.commands import LapseDriver
from .ports import Due, DueDriver
from .server_acts import ServerActs
from .sweeping import sweep


class DriverLease:
    """Any number of servers may have it: each change is keyed on its epoch, and an older epoch moves nothing."""

    def __init__(self, due: Due, acts: ServerActs, now: Callable[[], datetime]) -> None:
        self._due = due
        self._acts = acts
        self._now = now

    async def run(self) -> None:
        """Look once. Raises Unavailable."""
        await sweep(self._find, self._lapse)

    async def _find(self, after: int) -> Sequence[DueDriver]:
        return await self._due.drivers(self._now(), self._acts.timeouts, after)

    async def _lapse(self, each: DueDriver) -> None:
        await self._acts.lapse_driver(each.room_id, LapseDriver(each.epoch, each.last_seen, each.last_acted))
