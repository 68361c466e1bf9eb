"""What every handler of a room's commands does: authorization, decision, the room's limits, encoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from ..domain.ids import short_id
from ..domain.principals import Caller
from ..domain.rooms.context import Context, Decision, Limits, NewEvent, Timeouts
from ..domain.rooms.events import ROOM_EVENTS, ParticipantLeft, RoomOpened
from ..domain.rooms.rights import Action, require
from ..domain.rooms.sealing import sealing
from ..domain.rooms.state import INITIAL, SCHEMA, Room, evolve
from .dispatcher import Dispatcher
from .encoding import encode
from .mailbox import Answer, Decided
from .ports import Fence, Head, Redact
from .streams import Kind


def _passed_over(room: Room, type_: str) -> Room:
    """What could not be read may have removed anybody: only rights that come by group or kind stay."""
    if type_ in (ParticipantLeft.type, RoomOpened.type):
        return msgspec.structs.replace(room, members={}, run=None)
    return room


ROOM: Kind[Room] = Kind("room", SCHEMA, INITIAL, Room, ROOM_EVENTS, evolve, _passed_over)


def stream_of(room_id: str) -> str:
    """The name of a room's stream."""
    return f"room:{room_id}"


class Means(Struct, frozen=True):
    """What handlers decide and encode with. new_id draws a ULID, entropy 40 random bits, now is the server's clock.

    tool_classes: visibility class by tool name.
    """

    limits: Limits
    redact: Redact
    new_id: Callable[[], str]
    entropy: Callable[[], int]
    now: Callable[[], datetime]
    tool_classes: Mapping[str, str]
    timeouts: Timeouts = Timeouts()


class RoomHandling:
    """Base of the handlers."""

    def __init__(self, dispatcher: Dispatcher, means: Means) -> None:
        self._dispatcher = dispatcher
        self._means = means

    async def _run(
        self,
        caller: Caller,
        room_id: str,
        command: Any,
        decision: Callable[[Room, Any, Context], Decision],
        action: Action | None,
        key: str | None,
        *,
        status: int = 200,
        status_of: Callable[[Decision], int] | None = None,
        fence: Fence | None = None,
    ) -> Answer:
        stream = stream_of(room_id)

        def authorize(room: Room, head: Head) -> None:
            if action is not None:
                require(room, room_id, head.tenant, caller, action)

        def decided(room: Room, head: Head) -> Decided:
            context = self._context(caller, room_id, head.tenant, head.version, head.bytes)
            made = sealing(room, decision(room, command, context), context, _size)
            encoded = self._encode(made)
            return encoded if status_of is None else msgspec.structs.replace(encoded, status=status_of(made))

        idempotency = self._dispatcher.key(caller, decision.__name__, stream, key, command, status)
        return await self._dispatcher.run(ROOM, stream, authorize, decided, key=idempotency, fence=fence, status=status)

    async def _look(self, caller: Caller, room_id: str, action: Action | None) -> tuple[Room, Context]:
        """The room as it is now and what a decision is told, for a caller with that right. Raises as `require`, and
        NotVisible where the room is gone."""
        found: list[tuple[Room, Context]] = []

        def look(room: Room, command: Any, context: Context) -> Decision:  # noqa: ARG001
            found.append((room, context))
            return Decision()

        await self._run(caller, room_id, None, look, action, None)
        return found[-1]

    def _context(self, caller: Caller, room_id: str, tenant: str, version: int, stored_bytes: int) -> Context:
        return Context(
            caller,
            room_id,
            tenant,
            self._means.now(),
            version,
            stored_bytes,
            self._means.limits,
            self._means.timeouts,
            fresh_id=short_id(self._means.entropy()),
            fresh_ulid=self._means.new_id(),
        )

    def _encode(self, decision: Decision) -> Decided:
        return encode(decision, self._means.redact, self._means.limits.payload_bytes, self._means.new_id)


def _size(new: NewEvent) -> int:
    return len(msgspec.json.encode(new.payload()))
