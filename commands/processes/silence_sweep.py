"""The sweep of silences: where a run runs and nothing happens, a human is waited for and told (rooms.md, Phases)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ...domain.rooms.context import Timeouts
from ..outward import Notice
from .ports import Due, DueWait, Waits
from .requests import notice_request
from .sweeping import sweep


class SilenceSweep:
    """Any number of servers may have it: of a silence one notice is asked for, named by the event before it."""

    def __init__(self, due: Due, waits: Waits, timeouts: Timeouts, now: Callable[[], datetime]) -> None:
        self._due = due
        self._waits = waits
        self._timeouts = timeouts
        self._now = now

    async def run(self) -> None:
        """Look once. Raises Unavailable."""
        await sweep(self._find, self._tell)

    async def _find(self, after: int) -> Sequence[DueWait]:
        return await self._due.waits(self._now(), self._timeouts, after)

    async def _tell(self, each: DueWait) -> None:
        notice = Notice("room_waiting", each.room_id, each.seq, each.ts, each.run_id, is_silence=True)
        await self._waits.tell_silence(each, notice_request(notice), self._now())
