"""Where processes beside the bridge ask for approvals: lines of JSON over a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

from .api_client import Refused, Unreachable
from .bridge_approvals import Request
from .bridge_client import Bridge

MAX_REQUEST_BYTES = 128 * 1024
"""The server takes no larger one either (rooms.md, Limits)."""

MAX_CALLERS = 32
"""Connections at one time; as many requests as the room lets wait."""


class SocketBroken(Exception):
    """The socket cannot be served; the message says why."""


@contextlib.asynccontextmanager
async def callers(bridge: Bridge, path: Path | None) -> AsyncGenerator[None]:
    """Serves callers at `path` for as long as the block runs; nobody where there is none. Raises SocketBroken.

    A request is `{"eventId", "callId", "class", "action", "tool"?}`, its answer `{"eventId", "allow", "decision",
    "approvalId", "actionDigest", "reason"?}`, or `{"eventId"?, "error": {"code", "detail"}}`; one at a time on a
    connection. Only the account that runs the bridge may connect. A caller that was cut off asks again with the same
    eventId.
    """
    if path is None:
        yield
        return
    door = _Door(bridge)
    before = os.umask(0o177)
    try:
        # A socket that a bridge before this one left is replaced, any other file is not.
        server = await asyncio.start_unix_server(door.serve, path, limit=MAX_REQUEST_BYTES)
        own = path.stat().st_ino  # noqa: ASYNC240 - it is made this moment
    except OSError as error:
        raise SocketBroken(f"{path} cannot be served ({error.strerror}).") from error
    finally:
        os.umask(before)
    try:
        yield
    finally:
        server.close()
        await door.close()
        _remove(path, own)


def _remove(path: Path, inode: int) -> None:
    """Unless it is the next bridge's by now."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_ino == inode:
            path.unlink()


class _Door:
    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._open: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs it as one
        self._open.add(task)
        try:
            if len(self._open) > MAX_CALLERS:
                await _write(writer, _error(None, "too_many_pending", "Too many callers; try again."))
                return
            while line := await reader.readline():
                await _write(writer, await self._answer(line))
        except (ConnectionError, ValueError):  # it went away, or sent a line over the limit
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def close(self) -> None:
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = msgspec.json.decode(line, type=Request)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return _error(None, "malformed", f"Send a request as one line of JSON ({error}).")
        try:
            verdict = await self._bridge.ask(request)
        except Refused as refused:
            return _error(request.event_id, refused.code, refused.detail)
        except Unreachable as error:
            return _error(request.event_id, "unavailable", str(error))
        found = {name: value for name, value in msgspec.to_builtins(verdict).items() if value is not None}
        return {"eventId": request.event_id, **found}


def _error(event_id: str | None, code: str, detail: str) -> dict[str, Any]:
    known = {} if event_id is None else {"eventId": event_id}
    return {**known, "error": {"code": code, "detail": detail}}


async def _write(writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
    writer.write(msgspec.json.encode(answer) + b"\n")
    await writer.drain()
