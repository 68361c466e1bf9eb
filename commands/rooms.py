"""The commands of a room by people and systems: authorization, decision, encoding, in the order of the API."""

from __future__ import annotations

from ..domain.ids import short_id
from ..domain.principals import Caller
from ..domain.rooms import decide, members, messages
from ..domain.rooms.commands import AddMember, CloseRoom, OpenRoom, PostMessage, RemoveMember
from ..domain.rooms.context import Decision
from ..domain.rooms.rights import Action
from .mailbox import Answer
from .ports import Creation
from .room_handling import ROOM, stream_of
from .room_tools import RoomToolHandlers
from .run_handlers import RunHandlers


class Rooms(RunHandlers, RoomToolHandlers):
    """Handlers of every room command; those of a run's bridge and of its tools are inherited."""

    async def open(self, caller: Caller, command: OpenRoom, key: str | None) -> Answer:
        """201 `{"id", "seq", "chain"}`."""
        room_id = short_id(self._entropy())
        context = self._context(caller, room_id, caller.tenant, 0, 0)
        decision = decide.open_room(command, context)
        decided = self._encode(Decision(decision.events, answer={"id": room_id}))
        idempotency = self._dispatcher.key(caller, "open_room", "", key, command, 201, decided.answer)
        days = int(command.retention[:-1])
        creation = Creation(ROOM.name, caller.tenant, days)
        return await self._dispatcher.create(stream_of(room_id), creation, decided, key=idempotency, status=201)

    async def post_message(self, caller: Caller, room_id: str, command: PostMessage, key: str | None) -> Answer:
        """201 `{"seq", "id", "chain"}`."""
        return await self._run(caller, room_id, command, messages.post_message, "chat", key, status=201)

    async def add_member(self, caller: Caller, room_id: str, command: AddMember, key: str | None) -> Answer:
        """200 `{"seq", "chain"}`; a member who has that role already changes nothing."""
        return await self._run(caller, room_id, command, members.add_member, "invite", key)

    async def remove_member(self, caller: Caller, room_id: str, command: RemoveMember, key: str | None) -> Answer:
        """200 `{"seq", "chain"}`."""
        action: Action = "read" if command.principal == str(caller.principal) else "invite"
        return await self._run(caller, room_id, command, members.remove_member, action, key)

    async def close(self, caller: Caller, room_id: str, command: CloseRoom, key: str | None) -> Answer:
        """200 `{"seq", "chain"}`; the room is sealed."""
        return await self._run(caller, room_id, command, decide.close_room, "close", key)
