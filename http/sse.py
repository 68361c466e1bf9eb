"""One viewer's stream: snapshot, history, live, and an end that says where to go on (http.md, SSE)."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
from litestar.types import Receive, Send

from ..domain.errors import InvalidCursor, MinutebookError
from ..domain.principals import Caller
from ..domain.rooms.rights import require
from .live import Followed, Frame, Hub, single_line
from .raw import watch
from .reading import Seen, snapshot
from .services import Services

SEND_BYTES = 64 * 1024
"""Frames are joined to chunks of about this size."""

SEND_TIMEOUT_S = 20.0
"""A client that takes nothing for this long is cut off."""

_CURSOR = re.compile(r"0|[1-9][0-9]{0,15}")

HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"keep-alive"),
]


def parse_cursor(text: str) -> int:
    """A seq in canonical decimal form. Raises InvalidCursor for what this server would not have issued."""
    if _CURSOR.fullmatch(text) is None:
        raise InvalidCursor("The cursor is not one of this stream; take the id of an event frame.")
    return int(text)


def frame(event: str, data: Any) -> bytes:
    """A control frame: no id, so it moves nothing."""
    return f"event: {event}\ndata: ".encode() + single_line(msgspec.json.encode(data)) + b"\n\n"


class StreamPlan(msgspec.Struct, frozen=True):
    """Where a stream begins: `after` is the seq behind which events follow; is_reset when the cursor was no good."""

    after: int
    is_reset: bool


def plan(head: int, cursor: int | None, tail: int, *, is_other_log: bool) -> StreamPlan:
    """Where to begin. A cursor beyond the head, or of another log, is answered with `reset` and the head."""
    if is_other_log or (cursor is not None and cursor > head):
        return StreamPlan(head, True)
    return StreamPlan(max(0, head - tail) if cursor is None else cursor, False)


class EventStream:
    """See raw.RawAnswer."""

    headers = HEADERS

    def __init__(self, services: Services, caller: Caller, seen: Seen, start: StreamPlan) -> None:
        self._services = services
        self._hub: Hub = services.hub
        self._caller = caller
        self._seen = seen
        self._start = start
        self._cursor = start.after
        self._moved = asyncio.Event()
        self._send: Send | None = None
        limits = services.settings.limits
        self._heartbeat_s = float(limits.heartbeat_seconds)
        self._backlog_bytes = limits.stream_backlog_bytes
        lives_s = min(float(limits.stream_max_seconds), caller.expires_at - services.now().timestamp())
        self._end_at = asyncio.get_running_loop().time() + max(0.0, lives_s)
        self._ends_with_token = lives_s < limits.stream_max_seconds

    async def run(self, receive: Receive, send: Send) -> None:
        """Serve until an end. All clean-up is synchronous: after a disconnect nothing may be awaited (fault B28)."""
        self._send = send
        followed = self._hub.follow(self._seen.stream_id, self._seen.room_id, self._seen.version, self._moved)
        gone = watch(receive)
        serving = asyncio.create_task(self._serve(followed))
        try:
            await asyncio.wait((gone, serving), return_when=asyncio.FIRST_COMPLETED)
            if serving.done() and not serving.cancelled() and serving.exception() is None:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._hub.leave(followed, self._moved)
            gone.cancel()
            serving.cancel()

    async def _serve(self, followed: Followed) -> None:
        assert self._send is not None  # noqa: S101 - set by run
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        state = snapshot(self._services, self._seen, self._caller, self._start.after + 1)
        first = b"retry: 2000\n\n"
        if self._start.is_reset:
            reset = {"lastSeq": self._seen.version, "logId": self._services.log_id}
            first += frame("reset", reset)
        await self._write(first + frame("state", state))
        try:
            await self._follow(followed)
        except MinutebookError as error:
            await self._write(frame("error", {"code": error.code}) + self._reconnect("read_failed"))

    async def _follow(self, followed: Followed) -> None:
        taken_bytes = followed.total_bytes
        while True:
            self._moved.clear()
            frames = followed.after(self._cursor)
            if frames is None:
                frames = await self._hub.history(followed, self._cursor)
                taken_bytes = followed.total_bytes
            if frames:
                ended = await self._deliver(frames)
                if ended:
                    return
                if followed.total_bytes - taken_bytes > self._backlog_bytes:
                    await self._write(self._reconnect("slow_consumer"))
                    return
                taken_bytes = followed.total_bytes
                if self._cursor < followed.head:
                    continue
            if self._seen.sealed and self._cursor >= self._seen.version:
                await self._write(frame("closed", {"reason": "room_closed"}))
                return
            if await self._wait():
                return

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
                await self._write(b"".join(chunk) + frame("closed", {"reason": end}))
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
        if each.left != str(self._caller.principal):
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
        """Sleep until something moves, a heartbeat is due or the stream must end; True when it has ended."""
        loop = asyncio.get_running_loop()
        if self._hub.draining.is_set():
            await self._write(self._reconnect("server_stopping"))
            return True
        left_s = self._end_at - loop.time()
        if left_s <= 0:
            await self._write(self._reconnect("token_expired" if self._ends_with_token else "max_age"))
            return True
        try:
            async with asyncio.timeout(min(self._heartbeat_s, left_s)):
                await self._moved.wait()
        except TimeoutError:
            if loop.time() < self._end_at:
                await self._write(b": still here\n\n")
        return False

    def _reconnect(self, reason: str) -> bytes:
        return frame("reconnect", {"cursor": str(self._cursor), "reason": reason})

    async def _write(self, data: bytes) -> None:
        assert self._send is not None  # noqa: S101 - set by run
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
