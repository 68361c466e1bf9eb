"""The sweep of approvals: what nobody decided in time expires, and its run hears of it (rooms.md, Approvals)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from .ports import Due, DueRoom
from .server_acts import ServerActs
from .sweeping import sweep


class ApprovalExpiry:
    """Any number of servers may have it: a request is decided once, under its own key."""

    def __init__(self, due: Due, acts: ServerActs, now: Callable[[], datetime]) -> None:
        self._due = due
        self._acts = acts
        self._now = now

    async def run(self) -> None:
        """Look once. Raises Unavailable."""
        await sweep(self._find, self._expire)

    async def _find(self, after: int) -> Sequence[DueRoom]:
        return await self._due.approvals(self._now(), after)

    async def _expire(self, each: DueRoom) -> None:
        await self._acts.expire_approvals(each.room_id)
