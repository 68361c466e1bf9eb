"""The driver token, and what its holder may do to the running run (http.md, Rooms)."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, Router, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath

from ...domain.rooms.commands import GiveDriver, InterruptRun, RequestDriver, TakeDriver
from .common import CommandAnswer, KeyHeader, TheCaller, TheServices, answered, body_as, key_of


class DriverAnswer(CommandAnswer, frozen=True, kw_only=True):
    """Who holds the token now, and its epoch."""

    driver: str
    driver_epoch: int


Moved = {200: ResponseSpec(DriverAnswer, generate_examples=False, description="Asked, moved, or nothing to change")}
Accepted = {202: ResponseSpec(CommandAnswer, generate_examples=False, description="Asked for")}


@post("/v1/rooms/{room_id:str}/driver/request", status_code=200, responses=Moved, opt={"body": RequestDriver})
async def request_driver(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Ask for the token, for all to see; a system holder yields at once."""
    command = await body_as(request, RequestDriver)
    return answered(await services.rooms.request_driver(caller, room_id, command, key_of(key)))


@post("/v1/rooms/{room_id:str}/driver/give", status_code=200, responses=Moved, opt={"body": GiveDriver})
async def give_driver(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Hand the token on."""
    command = await body_as(request, GiveDriver)
    return answered(await services.rooms.give_driver(caller, room_id, command, key_of(key)))


@post("/v1/rooms/{room_id:str}/driver/take", status_code=200, responses=Moved, opt={"body": TakeDriver})
async def take_driver(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Take the token from whoever holds it, with a reason."""
    command = await body_as(request, TakeDriver)
    return answered(await services.rooms.take_driver(caller, room_id, command, key_of(key)))


@post("/v1/rooms/{room_id:str}/interrupt", status_code=202, responses=Accepted, opt={"body": InterruptRun})
async def interrupt_run(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Ask the running run to stop what it does."""
    command = await body_as(request, InterruptRun)
    return answered(await services.rooms.interrupt_run(caller, room_id, command, key_of(key)))


ROUTES = Router("/", route_handlers=[request_driver, give_driver, take_driver, interrupt_run], tags=["rooms"])
