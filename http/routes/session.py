"""The browser's session (http.md, SSE)."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, Router, delete, post
from litestar.datastructures import Cookie
from litestar.openapi.datastructures import ResponseSpec

from ...domain.errors import Unauthenticated
from ...infra.settings import is_loopback
from ..session import clear_cookies, set_cookies
from .common import TheCaller, TheServices

_Nothing = {204: ResponseSpec(None, generate_examples=False, description="The cookie is set, or taken back")}


@post("/v1/session", status_code=204, responses=_Nothing)
async def begin_session(request: Request[Any, Any, Any], caller: TheCaller, services: TheServices) -> Response[None]:
    """Put the bearer token of this request into a cookie that dies with it."""
    token: str | None = request.scope["state"].get("bearer")
    if token is None:
        raise Unauthenticated("Send the token of the session: Authorization: Bearer <token>.")
    local = is_loopback(services.settings.server.host)
    return _with_cookies(set_cookies(token, caller, services.now().timestamp(), is_loopback=local))


@delete("/v1/session", status_code=204, responses=_Nothing)
async def end_session(caller: TheCaller, services: TheServices) -> Response[None]:  # noqa: ARG001 - authenticated
    """Take the cookie back."""
    return _with_cookies(clear_cookies(is_loopback=is_loopback(services.settings.server.host)))


def _with_cookies(cookies: list[Cookie]) -> Response[None]:
    return Response(None, status_code=204, headers={"cache-control": "no-store"}, cookies=cookies)


ROUTES = Router("/", route_handlers=[begin_session, end_session], tags=["session"])
