"""The commands of a room: authorization, decision, encoding, in the order of the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from ..domain.ids import short_id
from ..domain.principals import Caller
from ..domain.rooms import decide, members, messages, runs
from ..domain.rooms.bridge import CheckedItem, record_items
from ..domain.rooms.commands import (
    AddMember,
    CloseRoom,
    EndRun,
    OpenRoom,
    PostMessage,
    RemoveMember,
    StartRun,
)
from ..domain.rooms.context import Context, Decision, Limits, NewEvent, Timeouts
from ..domain.rooms.events import ROOM_EVENTS, ParticipantLeft, RoomOpened
from ..domain.rooms.rights import Action, require
from ..domain.rooms.sealing import sealing
from ..domain.rooms.state import INITIAL, SCHEMA, Room, evolve
from .dispatcher import Dispatcher
from .encoding import encode
from .mailbox import Answer, Decided
from .ports import Creation, Fence, Head, Redact
from .streams import Kind


def _passed_over(room: Room, type_: str) -> Room:
    """What could not be read may have removed anybody: only rights that come by group or kind stay."""
    if type_ in (ParticipantLeft.type, RoomOpened.type):
        return msgspec.structs.replace(room, members={}, run=None)
    return room


ROOM: Kind[Room] = Kind("room", SCHEMA, INITIAL, Room, ROOM_EVENTS, evolve, _passed_over)

RUN_LEASE = "run"
"""Purpose of the lease that fences a room's running run."""


def stream_of(room_id: str) -> str:
    """The name of a room's stream."""
    return f"room:{room_id}"


class Rooms:
    """Handlers of every room command. new_id draws a ULID, entropy 40 random bits, now is the clock: the server's."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        limits: Limits,
        redact: Redact,
        new_id: Callable[[], str],
        entropy: Callable[[], int],
        now: Callable[[], datetime],
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        tool_classes: Mapping[str, str],
    ) -> None:
        self._dispatcher = dispatcher
        self._limits = limits
        self._redact = redact
        self._new_id = new_id
        self._entropy = entropy
        self._now = now
        self._timeouts = timeouts
        self._tool_classes = tool_classes

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

    async def check_start(self, caller: Caller, room_id: str, command: StartRun) -> None:
        """Refuse a hello that no lease could save. Raises NotVisible, RunNotLive, Sealed."""
        await self._run(caller, room_id, command, runs.check_start, None, None)

    async def start_run(self, caller: Caller, room_id: str, command: StartRun, lease_epoch: int) -> Answer:
        """200 with the run's cursors; the first hello registers the run. The caller holds the lease."""
        fence = Fence(RUN_LEASE, caller.principal.id, lease_epoch)
        return await self._run(caller, room_id, command, runs.start_run, None, None, fence=fence)

    async def record(self, caller: Caller, room_id: str, items: Sequence[CheckedItem], lease_epoch: int) -> Answer:
        """200 `{"afterHarnessSeq", "afterStatusSeq"}`; fenced on the run's lease."""
        decision = partial(record_items, tool_classes=self._tool_classes)

        def on_items(room: Room, command: Sequence[CheckedItem], context: Context) -> Decision:
            return decision(room, command, context)

        fence = Fence(RUN_LEASE, caller.principal.id, lease_epoch)
        return await self._run(caller, room_id, items, on_items, "record", None, fence=fence)

    async def end_run(self, caller: Caller, room_id: str, command: EndRun) -> Answer:
        """200 `{"seq"}`."""
        return await self._run(caller, room_id, command, runs.end_run, None, None)

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
        fence: Fence | None = None,
    ) -> Answer:
        stream = stream_of(room_id)

        def authorize(room: Room, head: Head) -> None:
            if action is not None:
                require(room, room_id, head.tenant, caller, action)

        def decided(room: Room, head: Head) -> Decided:
            context = self._context(caller, room_id, head.tenant, head.version, head.bytes)
            return self._encode(sealing(room, decision(room, command, context), context, _size))

        idempotency = self._dispatcher.key(caller, decision.__name__, stream, key, command, status)
        return await self._dispatcher.run(ROOM, stream, authorize, decided, key=idempotency, fence=fence, status=status)

    def _context(self, caller: Caller, room_id: str, tenant: str, version: int, stored_bytes: int) -> Context:
        return Context(
            caller,
            room_id,
            tenant,
            self._now(),
            version,
            stored_bytes,
            self._limits,
            self._timeouts,
            fresh_id=short_id(self._entropy()),
            fresh_ulid=self._new_id(),
        )

    def _encode(self, decision: Decision) -> Decided:
        return encode(decision, self._redact, self._limits.payload_bytes, self._new_id)


def _size(new: NewEvent) -> int:
    return len(msgspec.json.encode(new.payload()))
