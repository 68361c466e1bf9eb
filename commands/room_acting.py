"""What people and systems do in a room: counted against their limit, and a sign that they are there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ..domain.principals import Caller
from ..domain.rooms.context import Context, Decision, Limits, Timeouts
from ..domain.rooms.rights import Action
from ..domain.rooms.state import Room
from .beside import Beside
from .dispatcher import Dispatcher
from .mailbox import Answer
from .ports import Redact
from .room_handling import RoomHandling

Decide = Callable[[Room, Any, Context], Decision]


class RoomActing(RoomHandling):
    """Base of the handlers of what is an action of a principal (rooms.md, Limits)."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        beside: Beside,
        limits: Limits,
        redact: Redact,
        new_id: Callable[[], str],
        entropy: Callable[[], int],
        now: Callable[[], datetime],
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        tool_classes: Mapping[str, str],
    ) -> None:
        super().__init__(
            dispatcher,
            limits=limits,
            redact=redact,
            new_id=new_id,
            entropy=entropy,
            now=now,
            timeouts=timeouts,
            tool_classes=tool_classes,
        )
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

    async def _look(self, caller: Caller, room_id: str, action: Action) -> tuple[Room, Context]:
        """The room as it is now and what a decision is told, for a caller with that right. Raises as `require`."""
        found: list[tuple[Room, Context]] = []

        def look(room: Room, command: Any, context: Context) -> Decision:  # noqa: ARG001
            found.append((room, context))
            return Decision()

        await self._run(caller, room_id, None, look, action, None)
        return found[-1]
