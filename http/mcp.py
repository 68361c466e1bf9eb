"""POST /mcp: one message of the MCP client of a run, guarded as every route is, for the room tools (rooms.md)."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, Response, post
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from .mcp_message import PATH, Exchange, checked, is_message
from .mcp_tools import RoomTools, check_is_run
from .origins import Origins
from .problems import PROBLEM_TYPE, problem
from .redacted import QUOTES
from .routes.common import KeyHeader, TheCaller, key_of
from .services import Services

if TYPE_CHECKING:
    from .mcp_server import McpServer

HEADERS = {"cache-control": "no-store"}

_NO_MESSAGE = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {
        "code": -32600,
        "message": "Send one JSON-RPC 2.0 request or notification; batches are not taken.",
    },
}


class McpEndpoint:
    """What the route works with; one for a process."""

    def __init__(self, services: Services) -> None:
        self.settings = services.settings
        self.origins = Origins(services.settings.server)
        self._tools = RoomTools(services)
        self._loading = asyncio.Lock()
        self._server: McpServer | None = None

    async def server(self) -> McpServer:
        """The SDK's side. The first request loads the SDK, whose import takes as long as that of everything else here:
        a server without runs does not wait for it."""
        async with self._loading:
            server = self._server
            if server is None:
                module: Any = await asyncio.to_thread(importlib.import_module, ".mcp_server", __package__)
                server = self._server = module.McpServer(self._tools)
        return server


TheEndpoint = NamedDependency[SkipValidation[McpEndpoint]]


@post(PATH, status_code=200, include_in_schema=False)
async def room_tools(
    request: Request[Any, Any, Any],
    caller: TheCaller,
    endpoint: TheEndpoint,
    key: KeyHeader = None,
) -> Response[bytes]:
    """One JSON-RPC message of a run's MCP client."""
    if not _is_from_here(request, endpoint.origins):
        status, body, headers = problem("bad_origin", "This origin is not listed; see server.allowedOrigins.", PATH)
        return Response(body, status_code=status, media_type=PROBLEM_TYPE, headers=headers)
    check_is_run(caller)
    body, refused = checked(await request.body(), endpoint.settings.limits.json_depth)
    if not is_message(body):
        return Response(
            msgspec.json.encode(_NO_MESSAGE), status_code=400, media_type="application/json", headers=HEADERS
        )
    exchange = Exchange(caller, key_of(key), refused)
    server = await endpoint.server()
    status, media, answer = await server.serve(request.scope, body, exchange)
    request.scope["state"][QUOTES] = media.startswith("application/json") and bool(answer) and not exchange.is_clean
    headers = {**HEADERS, "idempotency-replayed": "true"} if exchange.is_replay else HEADERS
    return Response(answer, status_code=status, media_type=media, headers=headers)


def _is_from_here(request: Request[Any, Any, Any], origins: Origins) -> bool:
    """Whether no web page of another origin sent this, whatever its credential: a rebound name ends here, too."""
    headers = dict(request.scope["headers"])
    return b"origin" not in headers or origins.may_use_cookie(headers)
