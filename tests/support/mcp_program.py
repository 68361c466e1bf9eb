"""An MCP server by the official library, for tests: `python mcp_program.py`, or with a port to serve HTTP there."""

from __future__ import annotations

import asyncio
import os
import sys

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("program")


@server.tool()
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


@server.tool()
def pid() -> str:
    """Tells the process that answers."""
    return str(os.getpid())


@server.tool()
def variable(name: str) -> str:
    """Tells a variable of the environment."""
    return os.environ.get(name, "unset")


@server.tool()
def refuse(words: str) -> str:
    """Fails."""
    raise ToolError(words)


@server.tool()
def odd() -> str:
    """Answers what is hard to keep."""
    return "a\x00b" + "漢" * 40_000


@server.tool()
async def hang() -> str:
    """Answers never."""
    await asyncio.Event().wait()
    return ""


@server.tool()
def leave() -> str:
    """Ends the process in the middle of the call."""
    os._exit(3)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
