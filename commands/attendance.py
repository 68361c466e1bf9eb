"""Who is here, as the requests and streams of this process show it; kept now and then (rooms.md, Driver token)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime

import structlog
from msgspec import Struct

from ..domain.errors import MinutebookError
from ..domain.principals import Caller
from .beside import Mark, Presence

TICK_S = 1.0
"""Between two looks at what is due to be kept."""

MAX_PEOPLE = 10_000
"""Pairs of room and person that are remembered; who was not seen for the longest goes first."""

MAX_MARKS = 1_000
"""Marks in one write."""

log = structlog.get_logger(__name__)


class _Here(Struct):
    seen_at: datetime
    acted_at: datetime | None = None
    written_at: datetime | None = None
    is_new: bool = True


class Attendance:
    """One per process. Of one person in one room a mark is kept at most every `every_s` seconds."""

    def __init__(self, presence: Presence, now: Callable[[], datetime], every_s: float) -> None:
        self._presence = presence
        self._now = now
        self._every_s = every_s
        self._people: OrderedDict[tuple[str, str], _Here] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to keep marks on the running loop."""
        self._task = asyncio.create_task(self._keep_for_ever(), name="attendance")

    async def close(self) -> None:
        """Stop; what was not kept yet is kept now, if the database takes it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(MinutebookError):
            await self._keep(is_last=True)

    def seen(self, room_id: str, caller: Caller) -> None:
        """A person reads or follows the room. Of runs and systems nothing is noted."""
        self._note(room_id, caller)

    def acted(self, room_id: str, caller: Caller) -> None:
        """A person did something in the room."""
        here = self._note(room_id, caller)
        if here is not None:
            here.acted_at = here.seen_at

    def _note(self, room_id: str, caller: Caller) -> _Here | None:
        if caller.principal.kind != "human":
            return None
        place = (room_id, str(caller.principal))
        here = self._people.get(place)
        if here is None:
            here = self._people[place] = _Here(self._now())
            if len(self._people) > MAX_PEOPLE:
                self._people.popitem(last=False)
        else:
            self._people.move_to_end(place)
            here.seen_at = self._now()
            here.is_new = True
        return here

    async def _keep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self._keep()
            except MinutebookError as error:
                log.warning("presence was not kept", error=type(error).__name__)

    async def _keep(self, *, is_last: bool = False) -> None:
        now = self._now()
        due = {
            place: here for place, here in self._people.items() if here.is_new and (is_last or self._is_due(here, now))
        }
        places = list(due)[:MAX_MARKS]
        if not places:
            return
        marks = [Mark(*place, due[place].seen_at, due[place].acted_at) for place in places]
        for place in places:
            due[place].written_at, due[place].is_new = now, False
        await self._presence.write(marks)

    def _is_due(self, here: _Here, now: datetime) -> bool:
        return here.written_at is None or (now - here.written_at).total_seconds() >= self._every_s
