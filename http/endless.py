"""What every endless answer does: joins those who follow, writes frames, beats, and ends with where to go on."""

from __future__ import annotations

import asyncio
import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Generator
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import msgspec
from litestar.types import Receive, Send

from ..domain.errors import MinutebookError
from ..domain.principals import Caller
from .live import Burst, Followed, Hub, single_line
from .metrics import CLIENT_GONE
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
    """See raw.RawAnswer. `_moved` is set whenever something may have moved, or wants a look; `_is_idle` while nothing
    is done but to wait for that. `_due_at`: loop time at which it looks in any case."""

    headers: Headers = HEADERS

    kind: ClassVar[str]
    """What the stream counts as in the metrics."""

    def __init__(self, services: Services, caller: Caller, max_s: float, draining: asyncio.Event) -> None:
        """max_s: longest life, where the token's is not shorter. draining: set when the process stops."""
        self._services = services
        self._caller = caller
        self._draining = draining
        self._moved = asyncio.Event()
        self._is_idle = False
        self._reason = CLIENT_GONE
        self._send: Send | None = None
        self._heartbeat_s = float(services.settings.limits.heartbeat_seconds)
        lives_s = min(max_s, caller.expires_at - services.now().timestamp())
        self._spoke_at = asyncio.get_running_loop().time()
        self._end_at = self._spoke_at + max(0.0, lives_s)
        self._ends_with_token = lives_s < max_s
        self._due_at = math.inf

    async def run(self, receive: Receive, send: Send) -> None:
        """Serve until an end. All clean-up is synchronous: after a disconnect nothing may be awaited (fault B28)."""
        self._send = send
        with self._joined() as work:
            gone = watch(receive)
            serving = asyncio.create_task(work)
            with self._services.metrics.connection(self.kind, lambda: self._why(serving)):
                try:
                    await asyncio.wait((gone, serving), return_when=asyncio.FIRST_COMPLETED)
                    if serving.done() and not serving.cancelled() and serving.exception() is None:
                        await send({"type": "http.response.body", "body": b"", "more_body": False})
                finally:
                    gone.cancel()
                    serving.cancel()

    @abstractmethod
    def _joined(self) -> AbstractContextManager[Coroutine[Any, Any, None]]:
        """Among those who follow for as long as the block runs: gives everything from `_begin` to the end frame."""

    def _why(self, serving: asyncio.Task[None]) -> str:
        """Why the stream ended, for the metrics."""
        if not serving.done() or serving.cancelled():
            return CLIENT_GONE
        match serving.exception():
            case None:
                return self._reason
            case TimeoutError():
                return "send_timeout"
            case _:
                return "failed"

    @abstractmethod
    def _resume(self) -> dict[str, Any]:
        """What a frame that asks for another connection says beside its reason."""

    async def _reconnect(self, reason: str, first: bytes = b"") -> None:
        await self._end("reconnect", {**self._resume(), "reason": reason}, first)

    async def _end(self, event: str, data: dict[str, Any], first: bytes = b"") -> None:
        """The last frame, behind what `first` is. data: its `reason` among others."""
        await self._write(first + frame(event, data))
        self._reason = data["reason"]

    async def _broken(self, error: MinutebookError) -> None:
        """The last frames where what is followed cannot be read."""
        await self._reconnect("read_failed", frame("error", {"code": error.code}))

    async def _begin(self, first: bytes = b"") -> None:
        assert self._send is not None  # noqa: S101 - set by run
        await self._send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await self._write(FIRST + first)

    async def _wait(self) -> bool:
        """Sleep until something moves, a heartbeat is due or the stream must end; True when it has ended."""
        if self._draining.is_set():
            await self._reconnect("server_stopping")
            return True
        now = asyncio.get_running_loop().time()
        if now >= self._end_at:
            await self._reconnect("token_expired" if self._ends_with_token else "max_age")
            return True
        left_s = min(self._spoke_at + self._heartbeat_s, self._end_at, self._due_at) - now
        if left_s <= 0:
            if now < self._due_at:
                await self._write(b": still here\n\n")
            return False
        self._is_idle = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._moved.wait()
        self._is_idle = False
        return False

    async def _write(self, data: bytes) -> None:
        assert self._send is not None  # noqa: S101 - set by run
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._spoke_at = asyncio.get_running_loop().time()


class RoomStream(Endless):
    """An Endless that follows a room. See live.Viewer."""

    def __init__(self, services: Services, caller: Caller, seen: Seen) -> None:
        self._hub: Hub = services.hub
        super().__init__(services, caller, float(services.settings.limits.stream_max_seconds), self._hub.draining)
        self._seen = seen

    def look(self) -> None:
        """See live.Viewer."""
        self._moved.set()

    def take(self, burst: Burst) -> None:  # noqa: ARG002 - a stream that needs its task for everything
        """See live.Viewer."""
        self._moved.set()

    @contextlib.contextmanager
    def _joined(self) -> Generator[Coroutine[Any, Any, None]]:
        followed = self._hub.follow(self._seen.stream_id, self._seen.room_id, self._seen.version, self)
        try:
            yield self._serve(followed)
        finally:
            self._hub.leave(followed, self)

    @abstractmethod
    async def _serve(self, followed: Followed) -> None:
        """Everything from `_begin` to the end frame."""
