"""The tools of the settings that agents may call, by the names of the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ...commands.conversations.ports import Tool
from ..settings import Settings
from .mcp_connection import McpConnection
from .mcp_tool import tools_of_server
from .python_tool import load_python_tool
from .threads import Threads


class Toolbox:
    """version: counts the changes of what there is; an MCP server may offer other tools at any time."""

    def __init__(self, settings: Settings, names: Iterable[str]) -> None:
        """names: of the tools that agents use; all declared. Raises SettingsError for one that cannot be loaded."""
        self.version = 0
        self._settings = settings
        threads = Threads()
        self._tools: dict[str, tuple[Tool, ...]] = {}
        self._connections: dict[str, McpConnection] = {}
        for name in dict.fromkeys(names):
            declared = settings.tools[name]
            if declared.mcp is not None:
                self._connections[name] = McpConnection(name, declared.mcp, self._changed)
            else:
                folder = settings.config_dir or settings.data_dir
                self._tools[name] = (load_python_tool(f"tools.{name}", name, declared, folder, threads),)

    async def start(self) -> None:
        """Open the sessions of MCP servers, bounded in time; one that cannot be opened is tried again, and its tools
        come when it is there."""
        await asyncio.gather(*(each.start() for each in self._connections.values()))
        self._changed()

    async def close(self) -> None:
        """Close them."""
        await asyncio.gather(*(each.close() for each in self._connections.values()))

    def tools_of(self, names: Iterable[str]) -> tuple[Tool, ...]:
        """The tools of those names, as they are now."""
        return tuple(tool for name in names for tool in self._tools.get(name, ()))

    def _changed(self) -> None:
        for name, connection in self._connections.items():
            self._tools[name] = tuple(tools_of_server(connection, self._settings.tools[name]))
        self.version += 1
