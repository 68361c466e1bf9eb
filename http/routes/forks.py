"""Forks (http.md, Rooms)."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, Router, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath
from msgspec import Struct

from ...domain.rooms.decide_fork import ForkRoom
from .common import CommandAnswer, KeyHeader, TheCaller, TheServices, answered, body_as, key_of


class Whence(Struct, frozen=True):
    """Up to where the source was copied, and its chain hash there."""

    room: str
    seq: int
    chain: str


class ForkAnswer(CommandAnswer, frozen=True, kw_only=True):
    """The new room. Of its first run, if one was asked for: its id, its brief, and the commit that it starts from."""

    forked_from: Whence
    run_id: str | None = None
    brief: str | None = None
    commit: str | None = None


Forked = {201: ResponseSpec(ForkAnswer, generate_examples=False, description="A new room")}


@post("/v1/rooms/{room_id:str}/fork", status_code=201, responses=Forked, opt={"body": ForkRoom})
async def fork_room(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """A new room from the first events of this one; the caller owns and drives it."""
    command = await body_as(request, ForkRoom)
    return answered(await services.rooms.fork(caller, room_id, command, key_of(key)))


ROUTES = Router("/", route_handlers=[fork_room], tags=["rooms"])
