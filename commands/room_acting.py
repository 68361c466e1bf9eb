"""What people and systems do in a room: counted against their limit, and a sign that they are there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..domain.principals import Caller
from ..domain.rooms.context import Context, Decision
from ..domain.rooms.rights import Action
from ..domain.rooms.state import Room
from .beside import Beside
from .dispatcher import Dispatcher
from .mailbox import Answer
from .room_handling import Means, RoomHandling

Decide = Callable[[Room, Any, Context], Decision]


class RoomActing(RoomHandling):
    """Base of the handlers of what is an action of a principal (rooms.md, Limits)."""

    def __init__(self, dispatcher: Dispatcher, means: Means, beside: Beside) -> None:
        super().__init__(dispatcher, means)
        self._beside = beside

    async def _act(
        self,
        caller: Caller,
        room_id: str,
        command: Any,
        decision: Decide,
        action: Action,
        key: str | None,
        *,
        status: int = 200,
        status_of: Callable[[Decision], int] | None = None,
    ) -> Answer:
        """As _run, within the caller's limit: after authorization and replay (http.md, Order of checks)."""
        admit = self._beside.admit(caller)

        @functools.wraps(decision)  # its name is the operation of an idempotency key
        def counted(room: Room, command: Any, context: Context) -> Decision:
            admit()
            return decision(room, command, context)

        answer = await self._run(caller, room_id, command, counted, action, key, status=status, status_of=status_of)
        self._beside.acted(room_id, caller)
        return answer
