"""A model's service on a real socket of this machine: it answers as it is told, chunk by chunk, faults included."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, cast

from msgspec import Struct, field

End = Literal["whole", "cut", "hang"]


class Reply(Struct):
    """What the service answers. end: of the body: as it should, cut off, or never."""

    chunks: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    end: End = "whole"


class Asked(Struct):
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: Any


class ModelService:
    """url: of its root. asked: what came, arrived: set by the first of it.

    left: set when a caller closed the connection before the answer's end.
    """

    def __init__(self, replies: Sequence[Reply]) -> None:
        self._replies = list(replies)
        self.asked: list[Asked] = []
        self.arrived = asyncio.Event()
        self.left = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        self._serving.add(cast("asyncio.Task[None]", asyncio.current_task()))
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def stop(self) -> None:
        """End every connection."""
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.asked.append(Asked(head[0].split()[1], headers, json.loads(body)))
        self.arrived.set()
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        told = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} x", *(f"{name}: {value}" for name, value in told.items()), "", ""]
        writer.write("\r\n".join(lines).encode("latin-1"))
        for chunk in reply.chunks:
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
            await asyncio.sleep(0)  # each chunk on its own, as far as the machine lets it
        if reply.end == "hang":
            if not await reader.read(1):
                self.left.set()
            return False
        if reply.end == "whole":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        return reply.end == "whole"


@contextlib.asynccontextmanager
async def model_service(*replies: Reply) -> AsyncIterator[ModelService]:
    """A service that gives these replies in their order, the last for ever."""
    service = ModelService(replies)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0, limit=1 << 22)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        server.close()
        await service.stop()


def frame(data: Any, event: str | None = None) -> bytes:
    """One event of a stream; data that is bytes goes as it is."""
    text = data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return (f"event: {event}\n".encode() if event else b"") + b"data: " + text + b"\n\n"


def openai_chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One chunk as chat completions stream it."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return frame({**head, "choices": choices, **more})


def openai_text(*texts: str, usage: tuple[int, int] | None = (7, 3)) -> list[bytes]:
    """A whole answer of text."""
    told = [] if usage is None else [{"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": 0}]
    return [
        openai_chunk({"role": "assistant", "content": ""}),
        *(openai_chunk({"content": text}) for text in texts),
        openai_chunk({}, "stop"),
        *(openai_chunk(usage=each) for each in told),
        frame(b"[DONE]"),
    ]


def anthropic_event(kind: str, **more: Any) -> bytes:
    """One event as messages stream it."""
    return frame({"type": kind, **more}, kind)


def anthropic_start(tokens: int = 7) -> bytes:
    """The event that begins an answer."""
    usage = {"input_tokens": tokens - 2, "cache_read_input_tokens": 2, "output_tokens": 1}
    head = {"id": "m-1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    return anthropic_event("message_start", message={**head, "stop_sequence": None, "usage": usage})


def anthropic_block(*deltas: dict[str, Any], index: int = 0, **block: Any) -> list[bytes]:
    """A content block and what comes of it."""
    return [
        anthropic_event("content_block_start", index=index, content_block=block or {"type": "text", "text": ""}),
        *(anthropic_event("content_block_delta", index=index, delta=delta) for delta in deltas),
        anthropic_event("content_block_stop", index=index),
    ]


def anthropic_end(tokens: int = 3) -> list[bytes]:
    """The events that end an answer."""
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        anthropic_event("message_delta", delta=delta, usage={"output_tokens": tokens}),
        anthropic_event("message_stop"),
    ]


def anthropic_text(*texts: str) -> list[bytes]:
    """A whole answer of text, with a ping in it."""
    deltas = [{"type": "text_delta", "text": text} for text in texts]
    return [anthropic_start(), anthropic_event("ping"), *anthropic_block(*deltas), *anthropic_end()]
