"""What every endless answer does: joins a room's followers, writes frames, beats, and ends with where to go on."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

import msgspec
from litestar.types import Receive, Send

from ..domain.principals import Caller
from .live import Followed, Hub, single_line
from .raw import Headers, watch
from .reading import Seen
from .services import Services

SEND_TIMEOUT_S = 20.0
"""A client that takes nothing for this long is cut off."""

HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"keep-alive"),
]

FIRST = b"retry: 2000\n\n"


def frame(event: str, data: Any) -> bytes:
    """A control frame: no id, so it moves nothing."""
    return f"event: {event}\ndata: ".encode() + single_line(msgspec.json.encode(data)) + b"\n\n"


class Endless(ABC):
    """See raw.RawAnswer. `_moved` is set whenever the room may have moved, or something else asks for a look."""

    headers: Headers = HEADERS

    def __init__(self, services: Services, caller: Caller, seen: Seen) -> None:
        self._services = services
        self._hub: Hub = services.hub
        self._caller = caller
        self._seen = seen
        self._moved = asyncio.Event()
        self._send: Send | None = None
        limits = services.settings.limits
        self._heartbeat_s = float(limits.heartbeat_seconds)
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

    @abstractmethod
    async def _serve(self, followed: Followed) -> None:
        """Everything from `_begin` to the end frame."""

    @abstractmethod
    def _reconnect(self, reason: str) -> bytes:
        """The end frame that asks for another connection."""

    async def _begin(self, first: bytes = b"") -> None:
        assert self._send is not None  # noqa: S101 - set by run
        await self._send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await self._write(FIRST + first)

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

    async def _write(self, data: bytes) -> None:
        assert self._send is not None  # noqa: S101 - set by run
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
