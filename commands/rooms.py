"""The commands of a room by people and systems: authorization, decision, encoding, in the order of the API."""

from __future__ import annotations

from ..domain.errors import RateLimited
from ..domain.ids import short_id
from ..domain.principals import Caller
from ..domain.rooms import decide, decide_approvals, driver, members, messages
from ..domain.rooms.commands import (
    AddMember,
    CloseRoom,
    GiveDriver,
    InterruptRun,
    OpenRoom,
    PostMessage,
    PromoteQueued,
    RemoveMember,
    RemoveQueued,
    RequestDriver,
    TakeDriver,
)
from ..domain.rooms.context import Decision
from ..domain.rooms.decide_approvals import DecideApproval
from ..domain.rooms.rights import Action
from .mailbox import Answer
from .ports import Creation
from .room_forks import RoomForks
from .room_handling import ROOM, stream_of
from .room_holds import RoomHolds
from .room_tools import RoomToolHandlers
from .run_handlers import RunHandlers

_SAYING: dict[str, Action] = {"chat": "chat", "review_verdict": "verdict", "task_state": "task_state"}


class Rooms(RoomForks, RoomHolds, RunHandlers, RoomToolHandlers):
    """Handlers of every room command; those of runs, forks and holds, of a run's bridge and of its tools are inherited.

    What only the driver may do is authorized as `queue`, which whoever drove until now may, too: so they hear that the
    token moved, and get the answer of what they did while they drove. The decision looks at the token.
    """

    async def open(self, caller: Caller, command: OpenRoom, key: str | None) -> Answer:
        """201 `{"id", "seq", "chain"}`."""
        room_id = short_id(self._means.entropy())
        context = self._context(caller, room_id, caller.tenant, 0, 0)
        decision = decide.open_room(command, context)
        decided = self._encode(Decision(decision.events, answer={"id": room_id}))
        idempotency = self._dispatcher.key(caller, "open_room", "", key, command, 201, decided.answer)
        try:
            self._beside.admit(caller)()
        except RateLimited:
            first = await self._dispatcher.replayed(idempotency)
            if first is None:
                raise
            return first
        days = int(command.retention[:-1])
        creation = Creation(ROOM.name, caller.tenant, days)
        answer = await self._dispatcher.create(stream_of(room_id), creation, decided, key=idempotency, status=201)
        self._beside.acted(answer.body["id"], caller)
        return answer

    async def post_message(self, caller: Caller, room_id: str, command: PostMessage, key: str | None) -> Answer:
        """201 `{"seq", "id", "chain"}`."""
        action = _SAYING[command.kind] if command.delivery == "none" else "queue"
        return await self._act(caller, room_id, command, messages.post_message, action, key, status=201)

    async def remove_queued(self, caller: Caller, room_id: str, command: RemoveQueued, key: str | None) -> Answer:
        """200 `{"seq", "id", "chain"}`."""
        return await self._act(caller, room_id, command, messages.remove_queued, "unqueue", key)

    async def promote_queued(self, caller: Caller, room_id: str, command: PromoteQueued, key: str | None) -> Answer:
        """200 `{"seq", "id", "chain"}`."""
        return await self._act(caller, room_id, command, messages.promote_queued, "queue", key)

    async def interrupt_run(self, caller: Caller, room_id: str, command: InterruptRun, key: str | None) -> Answer:
        """202 `{"seq", "chain"}`; while one request waits, another adds nothing."""
        return await self._act(caller, room_id, command, messages.interrupt_run, "queue", key, status=202)

    async def request_driver(self, caller: Caller, room_id: str, command: RequestDriver, key: str | None) -> Answer:
        """200 `{"seq", "chain", "driver", "driverEpoch"}`, as all three."""
        return await self._act(caller, room_id, command, driver.request_driver, "driver_request", key)

    async def give_driver(self, caller: Caller, room_id: str, command: GiveDriver, key: str | None) -> Answer:
        """As request_driver."""
        return await self._act(caller, room_id, command, driver.give_driver, "queue", key)

    async def take_driver(self, caller: Caller, room_id: str, command: TakeDriver, key: str | None) -> Answer:
        """As request_driver."""
        return await self._act(caller, room_id, command, driver.take_driver, "driver_take", key)

    async def decide_approval(self, caller: Caller, room_id: str, command: DecideApproval, key: str | None) -> Answer:
        """200 `{"seq", "id", "chain", "decision"}`."""
        return await self._act(caller, room_id, command, decide_approvals.decide_approval, "decide", key)

    async def add_member(self, caller: Caller, room_id: str, command: AddMember, key: str | None) -> Answer:
        """200 `{"seq", "chain"}`; a member who has that role already changes nothing."""
        return await self._act(caller, room_id, command, members.add_member, "invite", key)

    async def remove_member(self, caller: Caller, room_id: str, command: RemoveMember, key: str | None) -> Answer:
        """200 `{"seq", "chain"}`."""
        action: Action = "read" if command.principal == str(caller.principal) else "invite"
        return await self._act(caller, room_id, command, members.remove_member, action, key)

    async def close(self, caller: Caller, room_id: str, command: CloseRoom, key: str | None) -> Answer:
        """200 `{"seq", "chain"}`; the room is sealed."""
        return await self._act(caller, room_id, command, decide.close_room, "close", key)
