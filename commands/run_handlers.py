"""The commands of a run's bridge, in the order of the API (http.md, the bridge)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..domain.principals import Caller
from ..domain.rooms import decide_approvals, runs
from ..domain.rooms.bridge import CheckedItem, record_items
from ..domain.rooms.commands import EndRun, StartRun, TurnRunAway
from ..domain.rooms.context import Context, Decision
from ..domain.rooms.decide_approvals import RequestApproval
from ..domain.rooms.state import Room
from .mailbox import Answer
from .ports import Fence
from .room_handling import RoomHandling

RUN_LEASE = "run"
"""Purpose of the lease that fences a room's running run."""

NO_LEASE = 0
"""An epoch that no lease has: refused by the fence, after the run's right to record was looked at."""


class RunHandlers(RoomHandling):
    """Handlers of what a run's bridge asks for. What appends as the run is fenced on the run's lease (rules.md, 25)."""

    async def check_start(self, caller: Caller, room_id: str, command: StartRun) -> None:
        """Refuse a hello that no lease could save. Raises NotVisible, RunNotLive, Sealed."""
        await self._run(caller, room_id, command, runs.check_start, None, None)

    async def start_run(self, caller: Caller, room_id: str, command: StartRun, lease_epoch: int) -> Answer:
        """200 with the run's cursors and what the room's approvals come to (`profile`, `classes`).

        A run's first hello makes it the running one. The caller holds the lease.
        """

        def on_hello(room: Room, command: StartRun, context: Context) -> Decision:
            decision = runs.start_run(room, command, context)
            policy = room.approval_settings
            return replace(decision, answer={**decision.answer, "profile": policy.profile, "classes": policy.effects()})

        return await self._run(caller, room_id, command, on_hello, None, None, fence=_fence(caller, lease_epoch))

    async def turn_run_away(self, caller: Caller, room_id: str, holder: str) -> bool:
        """Record that run `holder` has the room, once a contender. False where that run has ended: its lease stands for
        nothing any more, and may be dropped."""

        def on_contest(room: Room, command: TurnRunAway, context: Context) -> Decision:
            record = room.runs.get(holder)
            if record is not None and record.phase == "ended":
                return Decision(answer={"isBusy": False})
            return runs.turn_run_away(room, command, context)

        answer = await self._run(caller, room_id, TurnRunAway(), on_contest, None, None)
        return answer.body.get("isBusy", True)

    async def record(self, caller: Caller, room_id: str, items: Sequence[CheckedItem], lease_epoch: int) -> Answer:
        """200 `{"afterHarnessSeq", "afterStatusSeq"}`."""

        def on_items(room: Room, command: Sequence[CheckedItem], context: Context) -> Decision:
            return record_items(room, command, context, self._means.tool_classes)

        return await self._run(caller, room_id, items, on_items, "record", None, fence=_fence(caller, lease_epoch))

    async def request_approval(
        self, caller: Caller, room_id: str, command: RequestApproval, lease_epoch: int
    ) -> Answer:
        """200 `{"approvalId", "actionDigest", "expiresAt", "decision"?}`; the same eventId is the same request."""

        def on_request(room: Room, command: RequestApproval, context: Context) -> Decision:
            return decide_approvals.request_approval(room, command, context, self._means.tool_classes)

        return await self._run(caller, room_id, command, on_request, "record", None, fence=_fence(caller, lease_epoch))

    async def end_run(self, caller: Caller, room_id: str, command: EndRun, lease_epoch: int) -> Answer:
        """200 `{"seq"}`. Raises AlreadyEnded."""
        return await self._run(caller, room_id, command, runs.end_run, None, None, fence=_fence(caller, lease_epoch))


def _fence(caller: Caller, lease_epoch: int) -> Fence:
    return Fence(RUN_LEASE, caller.principal.id, lease_epoch)
