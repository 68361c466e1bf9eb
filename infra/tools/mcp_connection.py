"""A connection to an MCP server, by the official client: one session, kept open and opened again, its tools listed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TextIO

import structlog
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Tool

from ..models.service import http_client
from ..settings_conversations import McpSettings

OPEN_S = 10.0
"""Longest that opening a session and listing its tools may take, each."""

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
"""Between two tries to open a session; it doubles from the first."""

CHECK_S = 60.0
"""An open session is asked for its tools so often: it may be dead, and they may have changed."""

READ_S = 600.0
"""Longest silence of a server within an answer; a call has its own limit."""

MAX_PAGES = 20
MAX_TOOLS = 128
"""Of one server; what it lists beyond is left out, with a warning."""

log = structlog.get_logger(__name__)


class Unreachable(Exception):
    """The server has no open session, or lost it: nobody knows whether a call that was under way ran."""


class McpConnection:
    """name: of the tool in the settings. changed: called when there is another list of tools."""

    def __init__(self, name: str, declared: McpSettings, changed: Callable[[], None]) -> None:
        self.name = name
        self.listed: tuple[Tool, ...] = ()
        self._declared = declared
        self._changed = changed
        self._client: Client | None = None
        self._open = asyncio.Event()
        self._doubted = asyncio.Event()
        self._tried = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the session, or leave that to the background where the first try fails."""
        _quiet()
        self._keeping = asyncio.create_task(self._keep())
        await self._tried.wait()

    async def close(self) -> None:
        """End the session, and the server's program where this started one."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})

    async def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool. Waits for a session where none is open.

        Raises Unreachable, and MCPError for what the server itself refuses.
        """
        await self._open.wait()
        client = self._client
        if client is None:
            raise Unreachable
        try:
            return await client.call_tool(name, arguments)
        except Exception as error:
            # Errors of the protocol and of the connection look alike here: whether the session lives shows itself.
            is_alive = await self._lives(client)
            if isinstance(error, MCPError) and is_alive:
                raise
            raise Unreachable from error

    async def _lives(self, client: Client) -> bool:
        if client is not self._client:
            return False
        try:
            async with asyncio.timeout(OPEN_S):
                await _list(client, self.name)
        except Exception:  # noqa: BLE001 - however it shows
            if client is self._client:
                self._open.clear()
                self._client = None
            self._doubted.set()
            return False
        return True

    async def _keep(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                async with AsyncExitStack() as stack:
                    async with asyncio.timeout(OPEN_S):
                        client = await self._entered(stack)
                        self._take(await _list(client, self.name))
                    self._client, pause_s = client, FIRST_PAUSE_S
                    self._open.set()
                    self._tried.set()
                    await self._watch(client)
            except Exception as error:  # noqa: BLE001 - whatever the library or the server does, it is tried again
                log.warning("an MCP server cannot be used", tool=self.name, error=type(error).__name__)
            finally:
                self._client = None
                self._open.clear()
                self._tried.set()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_PAUSE_S)

    async def _entered(self, stack: AsyncExitStack) -> Client:
        declared = self._declared
        if declared.url is not None:
            headers = {} if declared.token is None else {"Authorization": f"Bearer {declared.token}"}
            http = await stack.enter_async_context(http_client(READ_S, headers))
            transport: Any = streamable_http_client(declared.url, http_client=http)
        else:
            command, *arguments = declared.command
            # What a program says on the side may hold what people wrote: it goes nowhere.
            errors = stack.enter_context(_nowhere())
            parameters = StdioServerParameters(
                command=command, args=arguments, env=dict(declared.environment), encoding_error_handler="replace"
            )
            transport = stdio_client(parameters, errlog=errors)
        return await stack.enter_async_context(Client(transport, cache=None))

    async def _watch(self, client: Client) -> None:
        """Until the session is dead."""
        self._doubted.clear()
        while self._client is client:
            try:
                async with asyncio.timeout(CHECK_S):
                    await self._doubted.wait()
                return
            except TimeoutError:
                async with asyncio.timeout(OPEN_S):
                    self._take(await _list(client, self.name))

    def _take(self, tools: tuple[Tool, ...]) -> None:
        if tools != self.listed:
            self.listed = tools
            self._changed()


async def _list(client: Client, name: str) -> tuple[Tool, ...]:
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None or len(found) > MAX_TOOLS:
            break
    if cursor is not None or len(found) > MAX_TOOLS:
        log.warning("an MCP server lists too many tools", tool=name, most=MAX_TOOLS)
    return tuple(found[:MAX_TOOLS])


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _quiet() -> None:
    """Keep what the library says of messages out of every log: it has the words of people in it."""
    for name in ("mcp", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
