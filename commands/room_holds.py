"""The legal hold of a room: an event while it is open; beside the log once nothing is appended any more."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..domain.errors import KeyReused, Sealed, Unavailable
from ..domain.principals import Caller
from ..domain.rooms import decide
from ..domain.rooms.commands import ReleaseHold, SetHold
from ..domain.rooms.context import Context, Decision, NewEvent
from ..domain.rooms.events import HoldReleased, HoldSet
from ..domain.rooms.state import Room
from .mailbox import RETRY_AFTER_MS, REUSED, Answer, replay
from .room_acting import RoomActing
from .room_handling import stream_of


class RoomHolds(RoomActing):
    """Handlers of holds."""

    async def set_hold(self, caller: Caller, room_id: str, command: SetHold, key: str | None) -> Answer:
        """200 `{"seq", "chain"}`, on a closed room too, whose log stays as it is."""
        return await self._hold(caller, room_id, command, decide.set_hold, key)

    async def release_hold(self, caller: Caller, room_id: str, command: ReleaseHold, key: str | None) -> Answer:
        """As set_hold; without a hold there is nothing to release."""
        return await self._hold(caller, room_id, command, decide.release_hold, key)

    async def _hold(
        self,
        caller: Caller,
        room_id: str,
        command: SetHold | ReleaseHold,
        decision: Callable[[Room, SetHold, Context], Decision] | Callable[[Room, ReleaseHold, Context], Decision],
        key: str | None,
    ) -> Answer:
        def in_the_log(room: Room, command: SetHold | ReleaseHold, context: Context) -> Decision:
            made = decision(room, command, context)  # pyright: ignore[reportArgumentType] - the one of that command
            if room.is_closed:
                raise Sealed("This room is closed; its hold is kept beside its log.")
            return made

        in_the_log.__name__ = decision.__name__  # the operation of the key
        try:
            return await self._act(caller, room_id, command, in_the_log, "hold", key)
        except Sealed:
            return await self._beside_the_log(caller, room_id, command, decision.__name__, key)

    async def _beside_the_log(
        self, caller: Caller, room_id: str, command: SetHold | ReleaseHold, operation: str, key: str | None
    ) -> Answer:
        is_set = isinstance(command, SetHold)
        event = HoldSet(command.reason) if is_set else HoldReleased(command.reason)
        row = self._encode(Decision((NewEvent(event, caller.principal),))).rows[0]
        stream = stream_of(room_id)
        held = await self._beside.holds.hold_closed(
            stream,
            is_set=is_set,
            hold_id=row.id,
            actor=caller.principal,
            reason=msgspec.json.decode(row.payload)["reason"],
            key=self._dispatcher.key(caller, operation, stream, key, command, 200),
        )
        match held.kind:
            case "done":
                self._beside.acted(room_id, caller)
                return Answer(200, {"seq": held.seq, "chain": held.chain}, False, held.seq)
            case "duplicate":
                return replay(held.status, held.body)
            case "key_reused":
                raise KeyReused(REUSED)
            case "open":
                raise Unavailable("The room changed meanwhile; try again.", retryAfterMs=RETRY_AFTER_MS)
