"""Background turns by their token (http.md, Linking and delivery). What is not the caller's answers one 404.

The token is in the path: errors name the route's template instead (problems.py), and nothing logs a path.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router, delete, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, QueryParameter

from ..continuations import MAX_WAIT_S, ContinuationShown
from .common import CommandAnswer, KeyHeader, TheCaller, TheServices, answered, body_as, key_of

ONE = "/v1/continuations/{token:str}"

Cancelling = {202: ResponseSpec(CommandAnswer, generate_examples=False, description="It stops, or ends by itself")}


class CancelContinuation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """DELETE /v1/continuations/{token}: everything is in the path."""


@get(ONE)
async def get_continuation(
    request: Request[Any, Any, Any],
    token: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    wait: Annotated[
        int, QueryParameter(ge=0, le=MAX_WAIT_S, description="Seconds to wait for the end; the answer may come sooner.")
    ] = 0,
) -> Response[ContinuationShown]:
    """What became of a background turn: `queued`, `running`, or its one end."""
    bearer: str = request.scope["state"]["token"]  # pyright: ignore[reportGeneralTypeIssues]
    shown = await services.continuations.read(caller, token, wait, bearer)
    return Response(shown, headers={"cache-control": "no-store"})


@delete(ONE, status_code=202, responses=Cancelling, opt={"body": CancelContinuation})
async def cancel_continuation(
    request: Request[Any, Any, Any],
    token: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Stop the turn. One that waits never asks its model; 409 `already_ended` where there is nothing to stop."""
    await body_as(request, CancelContinuation)
    return answered(await services.continuations.cancel(caller, token, key_of(key)))


ROUTES = Router("/", route_handlers=[get_continuation, cancel_continuation], tags=["deliveries"])
