"""Links, codes that wait and handles of background turns for operators: by id, never by code or token (http.md)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router, delete, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, QueryParameter
from msgspec import UNSET, UnsetType

from ...commands.linking.operators import PAGE, ChallengeRow, ContinuationRow, EndByOperator, LinkRow
from .common import Done, KeyHeader, TheCaller, TheServices, answered, body_as, key_of
from .links import DroppedAnswer

UNCACHED = {"cache-control": "no-store"}
Unlinked = {200: ResponseSpec(DroppedAnswer, generate_examples=False, description="Unlinked")}
Limit = Annotated[int, QueryParameter(ge=1, le=PAGE)]


class LinksShown(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """GET /v1/ops/links: by channel. nextCursor: of the next page, absent at the end."""

    links: list[LinkRow]
    next_cursor: str | UnsetType = UNSET


class ChallengesShown(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """GET /v1/ops/challenges: by id. nextCursor: as of links."""

    challenges: list[ChallengeRow]
    next_cursor: str | UnsetType = UNSET


class ContinuationsShown(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """GET /v1/ops/continuations: the oldest first. nextCursor: as of links."""

    continuations: list[ContinuationRow]
    next_cursor: str | UnsetType = UNSET


@get("/v1/ops/links")
async def watch_links(
    caller: TheCaller, services: TheServices, limit: Limit = 50, cursor: FromQuery[str | None] = None
) -> Response[LinksShown]:
    """Linked ends of the tenant; people and chats are keyed hashes."""
    page = await services.links.operators.links(caller, limit, cursor)
    return Response(LinksShown(page.rows, page.cursor or UNSET), headers=UNCACHED)


@delete(
    "/v1/ops/links/{link_id:str}",
    status_code=200,
    responses=Unlinked,
    opt={"body": EndByOperator},
)
async def unlink_for(
    request: Request[Any, Any, Any],
    link_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Unlink an end; what waits for it, and its background turns, go with it."""
    command = await body_as(request, EndByOperator)
    return answered(await services.links.operators.unlink(caller, link_id, command, key_of(key)))


@get("/v1/ops/challenges")
async def watch_challenges(
    caller: TheCaller, services: TheServices, limit: Limit = 50, cursor: FromQuery[str | None] = None
) -> Response[ChallengesShown]:
    """Links of the tenant that have begun and wait."""
    page = await services.links.operators.challenges(caller, limit, cursor)
    return Response(ChallengesShown(page.rows, page.cursor or UNSET), headers=UNCACHED)


@delete("/v1/ops/challenges/{link_id:str}", status_code=200, responses=Done, opt={"body": EndByOperator})
async def void_challenge(
    request: Request[Any, Any, Any],
    link_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """End a link that has begun: its code works no more."""
    command = await body_as(request, EndByOperator)
    return answered(await services.links.operators.void(caller, link_id, command, key_of(key)))


@get("/v1/ops/continuations")
async def watch_continuations(
    caller: TheCaller, services: TheServices, limit: Limit = 50, cursor: FromQuery[str | None] = None
) -> Response[ContinuationsShown]:
    """Handles of background turns of the tenant."""
    page = await services.links.operators.continuations(caller, limit, cursor)
    return Response(ContinuationsShown(page.rows, page.cursor or UNSET), headers=UNCACHED)


@delete("/v1/ops/continuations/{continuation_id:str}", status_code=200, responses=Done, opt={"body": EndByOperator})
async def end_continuation(
    request: Request[Any, Any, Any], continuation_id: FromPath[str], caller: TheCaller, services: TheServices
) -> Response[Any]:
    """Cancel a handle of a background turn. The turn goes on in its conversation. The same again changes nothing."""
    command = await body_as(request, EndByOperator)
    return answered(await services.links.operators.end_continuation(caller, continuation_id, command))


ROUTES = Router(
    "/",
    route_handlers=[
        watch_links,
        unlink_for,
        watch_challenges,
        void_challenge,
        watch_continuations,
        end_continuation,
    ],
    tags=["operators"],
)
