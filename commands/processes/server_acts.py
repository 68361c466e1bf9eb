"""What the server itself does in a room: the sweeps' decisions, and the outcome of a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ...domain.principals import DEFAULT_TENANT, SERVER, Caller
from ...domain.rooms import decide_approvals, decide_verdicts, driver, runs
from ...domain.rooms.commands import LapseDriver, SweepRun
from ...domain.rooms.context import Context, Decision, Timeouts
from ...domain.rooms.decide_verdicts import SettleVerdict
from ...domain.rooms.state import Room
from ..room_handling import RoomHandling

ANY_SERVER = Caller(SERVER, DEFAULT_TENANT)
"""The server before it is known which tenant has the room."""


class ServerActs(RoomHandling):
    """Handlers of what no caller asks for. Each may be done by any number of servers at once: its events have fixed
    keys, and whoever comes second finds it done. All raise NotVisible where the room is gone, and Unavailable."""

    @property
    def timeouts(self) -> Timeouts:
        """The waits after which the sweeps act."""
        return self._means.timeouts

    async def lapse_driver(self, room_id: str, command: LapseDriver) -> None:
        """See domain.rooms.driver."""
        await self._act(room_id, command, driver.lapse_driver)

    async def expire_approvals(self, room_id: str) -> None:
        """See domain.rooms.decide_approvals."""
        await self._act(room_id, None, decide_approvals.expire_approvals)

    async def sweep_run(self, room_id: str, command: SweepRun) -> None:
        """See domain.rooms.runs."""
        await self._act(room_id, command, runs.sweep_run)

    async def settle_verdict(self, room_id: str, command: SettleVerdict) -> None:
        """See domain.rooms.decide_verdicts."""
        await self._act(room_id, command, decide_verdicts.settle_verdict)

    async def look(self, room_id: str) -> tuple[Room, int]:
        """The room as it is now, and its last seq."""
        room, context = await self._look(ANY_SERVER, room_id, None)
        return room, context.version

    async def _act(self, room_id: str, command: Any, decision: Callable[[Room, Any, Context], Decision]) -> None:
        def by_server(room: Room, command: Any, context: Context) -> Decision:
            return decision(room, command, replace(context, caller=Caller(SERVER, context.tenant)))

        # The decision looks at the right, as the server of whichever tenant has the room.
        await self._run(ANY_SERVER, room_id, command, by_server, None, None)
