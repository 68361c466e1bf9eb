"""Rooms as such: open, list, look, close, hold (http.md, Rooms)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router, get, post
from litestar.params import FromPath, FromQuery, QueryParameter
from msgspec import UNSET, UnsetType

from ...domain.errors import Forbidden, InvalidCursor
from ...domain.ids import is_room_id
from ...domain.principals import Caller
from ...domain.rooms.commands import CloseRoom, OpenRoom, ReleaseHold, SetHold
from ...domain.rooms.rights import Action, decide_right
from ...domain.rooms.state import Room
from ...domain.times import stamp
from ...infra.postgres.view_reader import RoomRow
from ...projections.room_list import Phase, phase
from ..reading import Snapshot, role_of, see, snapshot, wait_for_log
from ..services import Services
from .common import Created, Done, KeyHeader, MinSeq, TheCaller, TheServices, answered, body_as, key_of

MAX_LIST = 200


class RoomLine(msgspec.Struct, frozen=True, rename="camel"):
    """A room in a list."""

    id: str
    title: str | None
    phase: str
    owner: str
    driver: str
    data_class: str
    last_seq: int
    role: str | None
    updated_at: str


class RoomPage(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/rooms."""

    rooms: list[RoomLine]
    next_cursor: str | UnsetType = UNSET


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/rooms/{id}/explain."""

    allowed: bool
    reason: str


@post("/v1/rooms", status_code=201, responses=Created, opt={"body": OpenRoom})
async def open_room(
    request: Request[Any, Any, Any], caller: TheCaller, services: TheServices, key: KeyHeader = None
) -> Response[Any]:
    """Open a room; the caller owns and drives it."""
    return answered(await services.rooms.open(caller, await body_as(request, OpenRoom), key_of(key)))


@get("/v1/rooms")
async def list_rooms(
    caller: TheCaller,
    services: TheServices,
    phase_: Annotated[Phase | None, QueryParameter(name="phase", required=False)] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_LIST)] = 50,
    cursor: FromQuery[str | None] = None,
) -> Response[RoomPage]:
    """Rooms of the caller's tenant, by id. Needs the members' group: anyone else gets 403 on collections."""
    caller_sees_all = caller.is_member or caller.is_admin or caller.is_auditor or caller.principal.kind == "system"
    if not caller_sees_all:
        raise Forbidden("Listing rooms needs the members' group; read a room that you are a member of by its id.")
    if cursor is not None and not is_room_id(cursor):
        raise InvalidCursor("The cursor is not one of this list; take nextCursor of the page before.")
    after = cursor or ""
    lines: list[RoomLine] = []
    while True:
        rows = await services.views.rooms(caller.tenant, after, limit + 1, None)
        for row in rows[:limit]:
            after = row.room_id
            line = _line(services, row, caller)
            if phase_ is None or line.phase == phase_:
                lines.append(line)
            if len(lines) == limit:
                break
        if len(lines) == limit or len(rows) <= limit:
            break
    is_end = not rows or rows[-1].room_id == after
    return Response(RoomPage(lines, UNSET if is_end else after), headers={"cache-control": "no-store"})


def _line(services: Services, row: RoomRow, caller: Caller) -> RoomLine:
    room = msgspec.json.decode(row.state, type=Room)
    return RoomLine(
        row.room_id,
        room.title,
        phase(room, row.last_ts, services.now(), caller.labels, services.settings.timeouts.room_waiting_seconds),
        room.owner,
        room.driver,
        room.data_class,
        row.last_seq,
        role_of(room, row.room_id, row.tenant, caller),
        stamp(row.last_ts),
    )


@get("/v1/rooms/{room_id:str}")
async def get_room(
    room_id: FromPath[str], caller: TheCaller, services: TheServices, min_seq: MinSeq = None
) -> Response[Snapshot]:
    """The room as it is, and what the caller may do in it."""
    seen = await see(services, caller, room_id)
    if min_seq is not None and seen.version < min_seq:
        await wait_for_log(services, room_id, min_seq)
        seen = await see(services, caller, room_id)
    return Response(snapshot(services, seen, caller), headers={"cache-control": "no-store"})


@get("/v1/rooms/{room_id:str}/explain")
async def explain(
    room_id: FromPath[str], caller: TheCaller, services: TheServices, action: FromQuery[Action]
) -> Response[Explanation]:
    """Whether the caller may do `action`, and why."""
    seen = await see(services, caller, room_id)
    verdict = decide_right(seen.room, room_id, seen.tenant, caller, action)
    return Response(Explanation(verdict.allowed, verdict.reason), headers={"cache-control": "no-store"})


@post("/v1/rooms/{room_id:str}/close", status_code=200, responses=Done, opt={"body": CloseRoom})
async def close_room(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Seal the room for good."""
    command = await body_as(request, CloseRoom)
    return answered(await services.rooms.close(caller, room_id, command, key_of(key)))


@post("/v1/rooms/{room_id:str}/hold", status_code=200, responses=Done, opt={"body": SetHold})
async def set_hold(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Stop the retention of the room, be it closed or not."""
    command = await body_as(request, SetHold)
    return answered(await services.rooms.set_hold(caller, room_id, command, key_of(key)))


@post("/v1/rooms/{room_id:str}/release", status_code=200, responses=Done, opt={"body": ReleaseHold})
async def release_hold(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Let retention go on."""
    command = await body_as(request, ReleaseHold)
    return answered(await services.rooms.release_hold(caller, room_id, command, key_of(key)))


ROUTES = Router(
    "/",
    route_handlers=[open_room, list_rooms, get_room, explain, close_room, set_hold, release_hold],
    tags=["rooms"],
)
