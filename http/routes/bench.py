"""What the benches measure against: a command that decides and stores nothing. Off unless server.benchRoutes is set."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, post

from ...domain.rooms.commands import PostMessage
from .common import TheCaller, TheServices, body_as


@post("/v1/bench/noop", status_code=201, include_in_schema=False)
async def noop(
    request: Request[Any, Any, Any],
    caller: TheCaller,  # noqa: ARG001 - resolved as for a command
    services: TheServices,  # noqa: ARG001
) -> Response[dict[str, Any]]:
    """The same body and the same token check as a message, and an answer of the same shape."""
    await body_as(request, PostMessage)
    return Response({"seq": 1, "id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "chain": "0" * 64})
