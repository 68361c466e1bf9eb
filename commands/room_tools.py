"""What a run says in its room through its tools (rooms.md, Room tools over MCP)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta

from ..domain.principals import Caller
from ..domain.rooms.commands import Command, PostMessage
from ..domain.rooms.context import Context, Decision
from ..domain.rooms.decide_handoff import RecordHandoff, RecordVerdict, record_handoff, record_verdict
from ..domain.rooms.handoff import RoomTool
from ..domain.rooms.messages import post_message
from ..domain.rooms.state import Room
from .mailbox import Answer
from .ports import Fence
from .room_handling import RoomHandling
from .run_handlers import RUN_LEASE


class PostToRoom(Command, frozen=True):
    """The arguments of room_post. The limit of `text` in bytes is the room's."""

    text: Annotated[str, Meta(min_length=1, description="What to say, at most 16 KiB")]


RunCommand = PostToRoom | RecordHandoff | RecordVerdict


class RoomToolHandlers(RoomHandling):
    """Handlers of the tools that write. What they append is fenced on the run's lease (rules.md, law 25)."""

    async def use_tool(
        self,
        caller: Caller,
        room_id: str,
        command: RunCommand,
        key: str | None,
        lease_epoch: int,
        admit: Callable[[], None],
    ) -> Answer:
        """200 `{"seq", "id", "chain"}`: the event is the run's. lease_epoch: of the lease that the run has.

        admit: the limit on the run's calls, looked at after authorization and replay (http.md, Order of checks); it
        may be called more than once for one call. The same key again answers the first call and appends nothing;
        without a key each call is another event. Raises NotVisible, RunNotLive, Forbidden where the run's role lacks
        the tool, LeaseLost, Sealed, TooLarge, Invalid, KeyReused, and what admit raises.
        """
        action, decision = _decision_of(command)
        decided = PostMessage(command.text) if isinstance(command, PostToRoom) else command

        @functools.wraps(decision)  # its name is the operation of an idempotency key
        def counted(room: Room, command: Any, context: Context) -> Decision:
            admit()
            return decision(room, command, context)

        fence = Fence(RUN_LEASE, caller.principal.id, lease_epoch)
        return await self._run(caller, room_id, decided, counted, action, key, fence=fence)


def _decision_of(command: RunCommand) -> tuple[RoomTool, Callable[[Room, Any, Context], Decision]]:
    match command:
        case PostToRoom():
            return "room_post", post_message
        case RecordHandoff():
            return "room_handoff", record_handoff
        case RecordVerdict():
            return "room_verdict", record_verdict
