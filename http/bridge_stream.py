"""A bridge's stream down: what waits for its run, as the log has it (http.md, the bridge).

Nothing is kept of what was sent: a delivery waits in the room until its acknowledgement is in the log, so each new
connection, to whichever process, begins with everything that was not acknowledged, in order.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, assert_never

from litestar.types import Receive, Send
from msgspec.structs import replace

from ..commands.ports import Head
from ..commands.room_handling import ROOM
from ..commands.streams import Loaded, catch_up
from ..domain.errors import MinutebookError
from ..domain.principals import Caller
from ..domain.rooms.run_state import AnyDelivery, DecisionDelivery, InterruptDelivery, SteeringDelivery
from ..domain.rooms.state import Room
from .bridges import Holding
from .endless import RoomStream, frame
from .live import Followed
from .metrics import BRIDGE
from .reading import Seen
from .services import Services

SLOW_S = 5.0
"""A bridge that lets a write wait for this long is asked to reconnect. What waits for it is bounded by the room's
limits and kept by the log, so time alone tells a slow one."""


class BridgeStream(RoomStream):
    """See Endless. epoch: the lease that the bridge has; the stream ends when it is not the newest any more."""

    kind: ClassVar[str] = BRIDGE

    def __init__(self, services: Services, caller: Caller, seen: Seen, epoch: int) -> None:
        super().__init__(services, caller, seen)
        self._holding = Holding(seen.stream_id, caller.principal.id, epoch, self._moved)
        head = Head(seen.stream_id, seen.tenant, seen.version, 0, seen.sealed, seen.chain)
        self._loaded = Loaded(seen.room, head, seen.version)
        self._sent: set[AnyDelivery] = set()

    async def run(self, receive: Receive, send: Send) -> None:
        """See Endless.run."""
        bridges = self._services.bridges
        with bridges.request(self._caller):
            bridges.watch(self._holding)
            try:
                await super().run(receive, send)
            finally:
                bridges.forget(self._holding)

    async def _serve(self, followed: Followed) -> None:
        await self._begin()
        try:
            while not await self._turn(followed) and not await self._wait():
                pass
        except MinutebookError as error:
            await self._broken(error)

    async def _turn(self, followed: Followed) -> bool:
        """Send what came to wait since the last turn; True when the stream has ended."""
        self._moved.clear()
        room = await self._folded(followed.head)
        run = room.run
        if run is None or run.run_id != self._caller.principal.id:
            await self._end("closed", _end(room, self._caller.principal.id))
            return True
        if self._holding.is_lost:
            await self._end("closed", {"reason": "lease_lost"})
            return True
        fresh = [each for each in run.deliveries if each not in self._sent]
        self._sent = set(run.deliveries)
        return await self._deliver(fresh)

    async def _folded(self, version: int) -> Room:
        """The room up to `version`. An event that cannot be read is passed over, as every read does."""
        head = self._loaded.head
        if head.version < version:
            self._loaded = await catch_up(
                self._services.store, ROOM, self._loaded, replace(head, version=version), passes_over_damage=True
            )
        return self._loaded.state

    async def _deliver(self, deliveries: list[AnyDelivery]) -> bool:
        loop = asyncio.get_running_loop()
        for each in deliveries:
            began = loop.time()
            await self._write(_frame(each))
            if loop.time() - began > SLOW_S:
                await self._reconnect("slow_consumer")
                return True
        return False

    def _resume(self) -> dict[str, Any]:
        return {}


def _frame(delivery: AnyDelivery) -> bytes:
    match delivery:
        case SteeringDelivery():
            return frame("deliver", {"ref": delivery.ref, "text": delivery.text})
        case InterruptDelivery():
            return frame("interrupt", {"ref": delivery.ref})
        case DecisionDelivery():
            return frame("decision", _decision(delivery))
        case _:
            assert_never(delivery)


def _decision(delivery: DecisionDelivery) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ref": delivery.ref,
        "approvalId": delivery.approval_id,
        "allow": delivery.allow,
        "actionDigest": delivery.action_digest,
    }
    return found if delivery.reason is None else {**found, "reason": delivery.reason}


def _end(room: Room, run_id: str) -> dict[str, Any]:
    record = room.runs.get(run_id)
    reason = {"reason": "run_ended"}
    return reason if record is None or record.reason is None else {**reason, "endReason": record.reason}
