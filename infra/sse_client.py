"""Following a stream over SSE: a parser of it, and a follower that goes on exactly where it was cut off."""

from __future__ import annotations

import asyncio
import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable

import httpx
import msgspec

from .api_client import CONNECT_TIMEOUT_S, Refused, TokenSource, backoff_s, refusal_of, unreachable

MAX_LINE_BYTES = 1024 * 1024
"""Longest line of a stream: an envelope with a payload of 64 KiB, every character escaped, stays far below."""

MAX_FRAME_BYTES = 2 * 1024 * 1024
"""Most data of one frame, over all of its lines."""

SILENCE_S = 45.0
"""A stream that sends nothing for so long is dead: the server comments every 15 s (http.md, SSE)."""

DEFAULT_RETRY_S = 2.0
LONGEST_RETRY_S = 30.0
"""Bounds of the wait before the next connection: what the server's `retry` asks for, growing while none succeeds."""

RECONNECT_S = 0.1
"""Wait after a `reconnect` frame, which says that another connection will be taken."""

_LINE_END = re.compile(rb"\r\n|\n|\r")
_DIGITS = re.compile(r"[0-9]{1,9}")
_SEQ = re.compile(r"[1-9][0-9]{0,15}")


class StreamBroken(Exception):
    """The bytes are not those of a room's stream: a line or frame over its limit, or an entry missing between two."""


class Frame(msgspec.Struct, frozen=True):
    """One frame. `id` is what this frame itself carries."""

    event: str
    data: str
    id: str | None = None


class SseParser:
    """Bytes to frames, as the standard reads them: LF, CR and CRLF, comments, several data lines, unknown fields.

    `retry_s` is what the stream last asked for. Memory is bounded: feed raises StreamBroken over the limits.
    """

    def __init__(self) -> None:
        self.retry_s: float | None = None
        self._rest = b""
        self._is_first = True
        self._skip_lf = False
        self._event = ""
        self._data: list[str] = []
        self._size = 0
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that `chunk` completes."""
        if not chunk:
            return []
        if self._skip_lf:
            chunk = chunk.removeprefix(b"\n")
        buffered = self._rest + chunk
        *lines, self._rest = _LINE_END.split(buffered)
        # A CR at the very end may be half of a CRLF.
        self._skip_lf = buffered.endswith(b"\r")
        if len(self._rest) > MAX_LINE_BYTES:
            raise StreamBroken(f"A line of the stream is longer than {MAX_LINE_BYTES} bytes.")
        frames: list[Frame] = []
        for line in lines:
            if len(line) > MAX_LINE_BYTES:
                raise StreamBroken(f"A line of the stream is longer than {MAX_LINE_BYTES} bytes.")
            frame = self._take(line)
            if frame is not None:
                frames.append(frame)
        return frames

    def _take(self, raw: bytes) -> Frame | None:
        if self._is_first:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
            self._is_first = False
        if not raw:
            return self._dispatch()
        name, _, value = raw.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._event = value
            case "data":
                self._size += len(raw)
                if self._size > MAX_FRAME_BYTES:
                    raise StreamBroken(f"A frame of the stream is larger than {MAX_FRAME_BYTES} bytes.")
                self._data.append(value)
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if _DIGITS.fullmatch(value):
                self.retry_s = int(value) / 1000
            case _:
                pass  # a comment, or a field of a later version
        return None

    def _dispatch(self) -> Frame | None:
        frame = Frame(self._event or "message", "\n".join(self._data), self._id) if self._data else None
        self._event, self._data, self._size, self._id = "", [], 0, None
        return frame


class _State(msgspec.Struct, rename="camel"):
    log_id: str
    from_seq: int


class _Reset(msgspec.Struct, rename="camel"):
    last_seq: int
    log_id: str


class _Reconnect(msgspec.Struct, rename="camel"):
    cursor: str
    reason: str = ""


class StreamFollower(ABC):
    """Follows one stream, over as many connections as it takes. A kind of stream says how a position is asked for, and
    how a frame moves it. `notice` is told in a few words when the connection is lost, was refused for now, or is back.
    """

    def __init__(
        self, client: httpx.AsyncClient, token: TokenSource, path: str, notice: Callable[[str], None] | None = None
    ) -> None:
        self._client = client
        self._token = token
        self._path = path
        self._notice = notice or _silent
        self._retry_s = DEFAULT_RETRY_S
        self._was_open = False
        self._is_lost = False
        self._failures = 0

    @abstractmethod
    def _position(self) -> tuple[str | None, dict[str, str | int]]:
        """What goes as Last-Event-ID, and the query."""

    @abstractmethod
    def _moves(self, frame: Frame) -> bool:
        """Keep the position; False for a frame that was handed on before. Raises StreamBroken."""

    async def frames(self) -> AsyncGenerator[Frame]:
        """All frames, each once; ends behind `closed`.

        Raises Refused for an answer that will not pass, and Refused or Unreachable where the first connection fails.
        """
        while True:
            wait_s, lost = self._retry_s, "the server ended the stream"
            try:
                async with contextlib.aclosing(self._connection()) as frames:
                    async for frame in frames:
                        yield frame
                        if frame.event == "closed":
                            return
                        if frame.event == "reconnect":
                            wait_s = RECONNECT_S
            except (Refused, httpx.TransportError, StreamBroken) as error:
                wait_s, lost = self._lost(error)
            await self._pause(wait_s, lost)

    def _lost(self, error: Refused | httpx.TransportError | StreamBroken) -> tuple[float, str]:
        """How long to wait, and what to say. Raises what no waiting helps."""
        if isinstance(error, Refused):
            if not (self._was_open and error.is_passing):
                raise error
            return error.retry_after_s or self._retry_s, error.detail
        if isinstance(error, httpx.TransportError):
            if not self._was_open:
                raise unreachable(self._client, error) from error
            return self._retry_s, f"connection lost ({type(error).__name__})"
        return self._retry_s, str(error)

    async def _pause(self, wait_s: float, lost: str) -> None:
        self._failures += 1
        if wait_s > RECONNECT_S and not self._is_lost:
            self._is_lost = True
            self._notice(f"{lost}; trying again")
        # The first way back is as fast as the server allows; from then on the waits grow.
        grown_s = 0.0 if self._failures == 1 else backoff_s(self._failures, LONGEST_RETRY_S)
        await asyncio.sleep(min(max(wait_s, grown_s), LONGEST_RETRY_S))

    async def _connection(self) -> AsyncGenerator[Frame]:
        headers, params = self._request()
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_TIMEOUT_S)
        async with self._client.stream("GET", self._path, headers=headers, params=params, timeout=timeout) as response:
            await _check(response)
            if self._is_lost:
                self._notice("connected again")
            self._was_open, self._is_lost, self._failures = True, False, 0
            parser = SseParser()
            async for chunk in response.aiter_bytes():
                for frame in parser.feed(chunk):
                    if self._moves(frame):
                        yield frame
                    if frame.event in ("closed", "reconnect"):
                        return
                if parser.retry_s is not None:
                    self._retry_s = min(max(parser.retry_s, RECONNECT_S), LONGEST_RETRY_S)

    def _request(self) -> tuple[dict[str, str], dict[str, str | int]]:
        headers = {"authorization": f"Bearer {self._token()}", "accept": "text/event-stream"}
        last, params = self._position()
        return headers if last is None else {**headers, "last-event-id": last}, params


class Follower(StreamFollower):
    """Follows one room: frames `state`, `event`, `reset`, `error`, `reconnect`; every entry once and in order.

    after: the seq behind which to begin; else `tail` entries from the end. `cursor` is the last seq that was handed on.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        token: TokenSource,
        room_id: str,
        *,
        after: int | None = None,
        tail: int | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(client, token, f"/v1/rooms/{room_id}/stream", notice)
        self.cursor = after
        self._tail = tail
        self._log_id: str | None = None

    def _position(self) -> tuple[str | None, dict[str, str | int]]:
        params: dict[str, str | int] = {}
        if self.cursor is None and self._tail is not None:
            params["tail"] = self._tail
        if self._log_id is not None:
            params["logId"] = self._log_id
        return None if self.cursor is None else str(self.cursor), params

    def _moves(self, frame: Frame) -> bool:
        """Keep the position; False for an entry that was handed on before."""
        try:
            match frame.event:
                case "event":
                    return self._take_entry(frame)
                case "state":
                    state = msgspec.json.decode(frame.data, type=_State)
                    self._log_id = state.log_id
                    self.cursor = state.from_seq - 1 if self.cursor is None else self.cursor
                case "reset":
                    reset = msgspec.json.decode(frame.data, type=_Reset)
                    self.cursor, self._log_id = reset.last_seq, reset.log_id
                case "reconnect":
                    cursor = msgspec.json.decode(frame.data, type=_Reconnect).cursor
                    # Ours is the same or, where the answer was cut, behind: then theirs would skip entries.
                    self.cursor = int(cursor) if self.cursor is None else self.cursor
                case _:
                    pass
        except (msgspec.MsgspecError, ValueError) as error:
            raise StreamBroken(f"A {frame.event[:20]} frame of the stream cannot be read.") from error
        return True

    def _take_entry(self, frame: Frame) -> bool:
        if frame.id is None or _SEQ.fullmatch(frame.id) is None:
            raise StreamBroken("An entry came without its seq.")
        seq = int(frame.id)
        if self.cursor is not None and seq <= self.cursor:
            return False
        if self.cursor is not None and seq != self.cursor + 1:
            raise StreamBroken(f"Entry {seq} came where {self.cursor + 1} should follow.")
        self.cursor = seq
        return True


async def _check(response: httpx.Response) -> None:
    if not response.is_success:
        raise refusal_of(response, await response.aread())
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        raise Refused(response.status_code, "", "The answer is no event stream; is this a Minutebook server?")


def _silent(_words: str) -> None:
    pass
