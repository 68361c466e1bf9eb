"""Deliveries for operators of their tenant (http.md, Linking and delivery): never a payload, nor who gets it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, Router, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, QueryParameter
from msgspec import UNSET, UnsetType

from ...commands.deliveries.operators import (
    AttemptView,
    DeliveryView,
    PurgeDelivery,
    ReplayDelivery,
    RevokeDelivery,
)
from ...commands.deliveries.ports import PAGE, Filter
from .common import CommandAnswer, KeyHeader, TheCaller, TheServices, answered, body_as, key_of

ALL = "/v1/ops/deliveries"
ONE = f"{ALL}/{{delivery_id:str}}"
MAX_FILTER_CHARS = 256
UNCACHED = {"cache-control": "no-store"}

State = Literal["planned", "attempting", "waiting", "unknown", "accepted", "dead", "cancelled", "expired"]
Wish = Annotated[str | None, QueryParameter(max_length=MAX_FILTER_CHARS, required=False)]


class DeliveryList(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """GET /v1/ops/deliveries: newest first. nextCursor: of the next page, absent at the end."""

    deliveries: list[DeliveryView]
    next_cursor: str | UnsetType = UNSET


class DeliveryShown(msgspec.Struct, frozen=True):
    """GET /v1/ops/deliveries/{id}: as it stands, and its attempts, the first one first."""

    delivery: DeliveryView
    attempts: list[AttemptView]


class DeliveryAnswer(CommandAnswer, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """What a command of an operator answers. state: of the delivery, when the command was stored."""

    state: State


Accepted = {202: ResponseSpec(DeliveryAnswer, generate_examples=False, description="Stored, or nothing to change")}


@get(ALL)
async def list_deliveries(
    caller: TheCaller,
    services: TheServices,
    state_: Annotated[State | None, QueryParameter(name="state", required=False)] = None,
    channel: Wish = None,
    destination: Wish = None,
    correlation: Wish = None,
    run: Wish = None,
    conversation: Wish = None,
    limit: Annotated[int, QueryParameter(ge=1, le=PAGE)] = 50,
    cursor: FromQuery[str | None] = None,
) -> Response[DeliveryList]:
    """Deliveries of the tenant, newest first; for operators."""
    wanted = Filter(
        state=state_ or UNSET,
        channel=_asked(channel),
        destination=_asked(destination),
        correlation=_asked(correlation),
        run=_asked(run),
        conversation=_asked(conversation),
    )
    page = await services.operators.page(caller, wanted, limit, cursor)
    return Response(DeliveryList(page.deliveries, UNSET if page.cursor is None else page.cursor), headers=UNCACHED)


@get(ONE)
async def get_delivery(delivery_id: FromPath[str], caller: TheCaller, services: TheServices) -> Response[DeliveryShown]:
    """A delivery with its attempts; for operators."""
    return Response(DeliveryShown(*await services.operators.inspect(caller, delivery_id)), headers=UNCACHED)


@post(f"{ONE}/replay", status_code=202, responses=Accepted, opt={"body": ReplayDelivery})
async def replay_delivery(
    request: Request[Any, Any, Any],
    delivery_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Send a dead letter again, under the same keys; 409 `not_replayable` says in `cause` what stands against it."""
    command = await body_as(request, ReplayDelivery)
    return answered(await services.operators.replay(caller, delivery_id, command, key_of(key)))


@post(f"{ONE}/revoke", status_code=202, responses=Accepted, opt={"body": RevokeDelivery})
async def revoke_delivery(
    request: Request[Any, Any, Any],
    delivery_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Let nothing of a delivery go out any more. A send that has begun is recorded as what it becomes."""
    command = await body_as(request, RevokeDelivery)
    return answered(await services.operators.revoke(caller, delivery_id, command, key_of(key)))


@post(f"{ONE}/purge", status_code=202, responses=Accepted, opt={"body": PurgeDelivery})
async def purge_delivery(
    request: Request[Any, Any, Any],
    delivery_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Erase a delivery's payload for good; what has not ended is revoked. What happened to it stays on record."""
    command = await body_as(request, PurgeDelivery)
    return answered(await services.operators.purge(caller, delivery_id, command, key_of(key)))


def _asked(value: str | None) -> str | UnsetType:
    return UNSET if value is None else value


ROUTES = Router(
    "/",
    route_handlers=[list_deliveries, get_delivery, replay_delivery, revoke_delivery, purge_delivery],
    tags=["operators"],
)
