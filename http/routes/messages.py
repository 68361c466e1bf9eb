"""What people say, and what waits for the next run (http.md, Rooms)."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response, Router, delete, post
from litestar.params import FromPath, PathParameter

from ...domain.rooms.commands import AtEpoch, PostMessage, PromoteQueued, RemoveQueued
from .common import Created, Done, KeyHeader, TheCaller, TheServices, answered, body_as, key_of

Ref = Annotated[int, PathParameter(ge=1, le=2**53, description="The seq of the message")]


@post("/v1/rooms/{room_id:str}/messages", status_code=201, responses=Created, opt={"body": PostMessage})
async def post_message(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Say something: to people alone, for the next run, or from the driver into the running one."""
    command = await body_as(request, PostMessage)
    return answered(await services.rooms.post_message(caller, room_id, command, key_of(key)))


@delete("/v1/rooms/{room_id:str}/queue/{ref:int}", status_code=200, responses=Done)
async def remove_queued(
    room_id: FromPath[str], ref: Ref, caller: TheCaller, services: TheServices, key: KeyHeader = None
) -> Response[Any]:
    """Take a queued message back: its author may, and the driver."""
    return answered(await services.rooms.remove_queued(caller, room_id, RemoveQueued(ref), key_of(key)))


@post("/v1/rooms/{room_id:str}/queue/{ref:int}/promote", status_code=200, responses=Done, opt={"body": AtEpoch})
async def promote_queued(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    ref: Ref,
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Send a queued message into the running run now."""
    command = PromoteQueued(ref, (await body_as(request, AtEpoch)).driver_epoch)
    return answered(await services.rooms.promote_queued(caller, room_id, command, key_of(key)))


ROUTES = Router("/", route_handlers=[post_message, remove_queued, promote_queued], tags=["rooms"])
