"""One viewer's stream: snapshot, history, live, and an end that says where to go on (http.md, SSE)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from typing import Any, ClassVar

import msgspec
from litestar.types import Receive, Send

from ..domain.errors import InvalidCursor, MinutebookError
from ..domain.principals import Caller
from ..domain.rooms.rights import require
from .begun import begun
from .endless import SEND_TIMEOUT_S, RoomStream, frame
from .live import SEND_BYTES, Burst, Followed, Frame
from .metrics import VIEWER
from .reading import Seen, snapshot
from .room_labels import ASK_AGAIN_S, is_asked, labelled
from .services import Services

_CURSOR = re.compile(r"0|[1-9][0-9]{0,15}")


def parse_cursor(text: str) -> int:
    """A seq in canonical decimal form. Raises InvalidCursor for what this server would not have issued."""
    if _CURSOR.fullmatch(text) is None:
        raise InvalidCursor("The cursor is not one of this stream; take the id of an event frame.")
    return int(text)


class StreamPlan(msgspec.Struct, frozen=True):
    """Where a stream begins: `after` is the seq behind which events follow; is_reset when the cursor was no good."""

    after: int
    is_reset: bool


def plan(head: int, cursor: int | None, tail: int, *, is_other_log: bool) -> StreamPlan:
    """Where to begin. A cursor beyond the head, or of another log, is answered with `reset` and the head."""
    if is_other_log or (cursor is not None and cursor > head):
        return StreamPlan(head, True)
    return StreamPlan(max(0, head - tail) if cursor is None else cursor, False)


class EventStream(RoomStream):
    """See Endless. `_taken_bytes`: what the followed stream had buffered, ever, when the viewer had it all."""

    kind: ClassVar[str] = VIEWER

    def __init__(self, services: Services, caller: Caller, seen: Seen, start: StreamPlan) -> None:
        super().__init__(services, caller, seen)
        self._start = start
        self._cursor = start.after
        self._taken_bytes = 0
        self._rest: Awaitable[None] | None = None
        if is_asked(services, caller):
            self._due_at = self._spoke_at + ASK_AGAIN_S
        self._backlog_bytes = services.settings.limits.stream_backlog_bytes

    async def run(self, receive: Receive, send: Send) -> None:
        """See Endless. Counted while it is open; all clean-up is synchronous."""
        with self._services.limits.stream(self._caller, self._seen.room_id):
            await super().run(receive, send)

    async def _serve(self, followed: Followed) -> None:
        state = snapshot(self._services, self._seen, self._caller, self._start.after + 1)
        first = b""
        if self._start.is_reset:
            first = frame("reset", {"lastSeq": self._seen.version, "logId": self._services.log_id})
        await self._begin(first + frame("state", state))
        try:
            await self._follow(followed)
        except MinutebookError as error:
            await self._broken(error)

    def take(self, burst: Burst) -> None:
        """See live.Viewer. Where the viewer has all that was before and its connection takes more, it has the burst at
        once: to wake its task costs more than all the rest."""
        is_next = self._is_idle and self._rest is None and self._cursor == burst.after
        if not is_next or not burst.is_plain or burst.at >= self._end_at or self._send is None:
            self._moved.set()
            return
        self._cursor = burst.head
        self._taken_bytes = burst.total_bytes
        self._spoke_at = burst.at
        data = burst.for_labels(self._caller.labels)
        self._rest = begun(self._send({"type": "http.response.body", "body": data, "more_body": True}))
        if self._rest is not None:
            self._moved.set()

    async def _follow(self, followed: Followed) -> None:
        self._taken_bytes = followed.total_bytes
        while True:
            self._moved.clear()
            has_written = await self._finish()
            frames = followed.after(self._cursor)
            if frames is None:
                frames = await self._hub.history(followed, self._cursor)
                self._taken_bytes = followed.total_bytes
            if frames:
                if await self._deliver(frames):
                    return
                has_written = True
            if has_written:
                if followed.total_bytes - self._taken_bytes > self._backlog_bytes:
                    await self._reconnect("slow_consumer")
                    return
                self._taken_bytes = followed.total_bytes
                if self._cursor < followed.head:
                    continue
            if self._seen.sealed and self._cursor >= self._seen.version:
                await self._end("closed", {"reason": "room_closed"})
                return
            if await self._wait():
                return
            await self._ask_again_when_due()

    async def _ask_again_when_due(self) -> None:
        """Where a callable decides, what the viewer may see can change while they look."""
        now = asyncio.get_running_loop().time()
        if now >= self._due_at:
            self._caller = await labelled(self._services, self._caller)
            self._due_at = now + ASK_AGAIN_S

    async def _finish(self) -> bool:
        """Wait for the end of a write that `take` began; False where there is none."""
        rest, self._rest = self._rest, None
        if rest is None:
            return False
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await rest
        return True

    async def _deliver(self, frames: list[Frame]) -> bool:
        """Write frames in chunks; True when the stream has ended with one of them."""
        chunk: list[bytes] = []
        size = 0
        for each in frames:
            data = each.for_labels(self._caller.labels)
            chunk.append(data)
            size += len(data)
            self._cursor = each.seq
            end = self._end_at_frame(each)
            if end is not None:
                await self._end("closed", {"reason": end}, b"".join(chunk))
                return True
            if size >= SEND_BYTES:
                await self._write(b"".join(chunk))
                chunk.clear()
                size = 0
        if chunk:
            await self._write(b"".join(chunk))
        return False

    def _end_at_frame(self, each: Frame) -> str | None:
        """Why the stream ends with this frame. What happened up to the authorization is history and ends nothing."""
        if each.seq <= self._seen.version:
            return None
        if each.is_close:
            return "room_closed"
        if each.left is None or each.left != str(self._caller.principal):
            return None
        members = {name: member for name, member in self._seen.room.members.items() if name != each.left}
        room = msgspec.structs.replace(self._seen.room, members=members)
        if self._caller.principal.kind == "agent":
            return "run_ended"
        try:
            require(room, self._seen.room_id, self._seen.tenant, self._caller, "read")
        except MinutebookError:
            return "removed"
        return None

    async def _wait(self) -> bool:
        has_ended = await super()._wait()
        if not has_ended:
            self._services.attendance.seen(self._seen.room_id, self._caller)
        return has_ended

    def _resume(self) -> dict[str, Any]:
        return {"cursor": str(self._cursor)}
