"""Commands and queries of rooms (http.md, Rooms)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router, delete, get, post, put
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, QueryParameter
from msgspec import UNSET, UnsetType

from ...domain.envelope import Envelope, Placeholder
from ...domain.errors import Forbidden, InvalidCursor
from ...domain.ids import is_room_id
from ...domain.principals import Caller
from ...domain.rooms.commands import AddMember, CloseRoom, MemberRole, OpenRoom, PostMessage, RemoveMember
from ...domain.rooms.rights import Action, decide_right
from ...domain.rooms.state import Room
from ...domain.visibility import cleared
from ...infra.postgres.view_reader import RoomRow
from ...projections.room_list import Phase, phase
from ..reading import Snapshot, entry_for, role_of, see, snapshot, wait_for_log, wait_for_view
from ..services import Services
from .common import (
    CommandAnswer,
    KeyHeader,
    MinSeq,
    TheCaller,
    TheServices,
    answered,
    body_as,
    key_of,
    last_segments,
)

MAX_LIST = 200
MEMBERS = "/members/"
MAX_EVENTS = 500
SCAN_PAGES = 4
"""Pages of MAX_EVENTS that one filtered read looks through."""

Created = {201: ResponseSpec(CommandAnswer, generate_examples=False, description="Appended")}
Done = {200: ResponseSpec(CommandAnswer, generate_examples=False, description="Appended, or nothing to change")}


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


ENTRY = msgspec.Meta(
    extra_json_schema={"anyOf": [{"$ref": f"#/components/schemas/{each.__name__}"} for each in (Envelope, Placeholder)]}
)
"""Envelope or Placeholder: a union that msgspec cannot decode, and so does not describe."""


class EventPage(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/rooms/{id}/events."""

    events: list[Annotated[Any, ENTRY]]
    last_seq: int
    log_id: str
    next_after_seq: int | UnsetType = UNSET


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/rooms/{id}/explain."""

    allowed: bool
    reason: str


class TranscriptLine(msgspec.Struct, frozen=True, rename="camel"):
    """A line of the transcript; a restricted one has type `restricted` and no words."""

    seq: int
    ts: str
    type: str
    actor: str | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    heading: str | UnsetType = UNSET
    body: str | UnsetType = UNSET


class TranscriptPage(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/rooms/{id}/transcript."""

    lines: list[TranscriptLine]
    next_after_seq: int | UnsetType = UNSET


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
        phase(room, row.last_ts, services.now()),
        room.owner,
        room.driver,
        room.data_class,
        row.last_seq,
        role_of(room, row.room_id, row.tenant, caller),
        row.last_ts.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
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


@get("/v1/rooms/{room_id:str}/events")
async def read_events(
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    after_seq: Annotated[int, QueryParameter(name="afterSeq", ge=0, le=2**53)] = 0,
    before_seq: Annotated[int | None, QueryParameter(name="beforeSeq", ge=0, le=2**53, required=False)] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_EVENTS)] = 100,
    type_: Annotated[str | None, QueryParameter(name="type", required=False, max_length=64)] = None,
    min_seq: MinSeq = None,
    log_id: Annotated[str | None, QueryParameter(name="logId", required=False, max_length=64)] = None,
) -> Response[EventPage]:
    """A range of the log, ascending, each entry filtered for the caller."""
    seen = await see(services, caller, room_id)
    if log_id is not None and log_id != services.log_id:
        raise InvalidCursor("The position belongs to another log; read the room again from the beginning.")
    if min_seq is not None and seen.version < min_seq:
        await wait_for_log(services, room_id, min_seq)
        seen = await see(services, caller, room_id)
    before = seen.version + 1 if before_seq is None else min(before_seq, seen.version + 1)
    events: list[Envelope | Placeholder] = []
    at, page = after_seq, 0
    while len(events) < limit and page < SCAN_PAGES and at < before - 1:
        page += 1
        want = limit if type_ is None else MAX_EVENTS
        found = await services.store.read_entries(seen.stream_id, room_id, at, want, before)
        for entry in found:
            at = entry.envelope.seq
            shown = entry_for(entry, caller)
            # The filter sees what the caller sees: a restricted entry's type decides nothing (law 13).
            if type_ is None or shown.type == type_:
                events.append(shown)
            if len(events) == limit:
                break
        if type_ is None or len(found) < want:
            break
    more = type_ is not None and at < before - 1
    answer = EventPage(events, seen.version, services.log_id, at if more else UNSET)
    return Response(answer, headers={"cache-control": "no-store"})


@get("/v1/rooms/{room_id:str}/transcript")
async def read_transcript(
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    after_seq: Annotated[int, QueryParameter(name="afterSeq", ge=0, le=2**53)] = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_EVENTS)] = 100,
    min_seq: MinSeq = None,
) -> Response[TranscriptPage]:
    """The room as lines for people, from the projection."""
    seen = await see(services, caller, room_id)
    await wait_for_view(services, "transcript", seen.stream_id, min_seq)
    rows = await services.views.transcript(seen.stream_id, after_seq, limit)
    lines = [
        TranscriptLine(
            row.seq,
            row.ts,
            row.type,
            row.actor,
            UNSET if row.run_id is None else row.run_id,
            row.heading,
            row.body,
        )
        if cleared(row.classes, caller.labels)
        else TranscriptLine(row.seq, row.ts, "restricted")
        for row in rows
    ]
    more = len(rows) == limit
    return Response(TranscriptPage(lines, rows[-1].seq if more else UNSET), headers={"cache-control": "no-store"})


@post("/v1/rooms/{room_id:str}/messages", status_code=201, responses=Created, opt={"body": PostMessage})
async def post_message(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Say something to the people in the room."""
    command = await body_as(request, PostMessage)
    return answered(await services.rooms.post_message(caller, room_id, command, key_of(key)))


@put("/v1/rooms/{room_id:str}/members/{principal:path}", responses=Done, opt={"body": MemberRole})
async def put_member(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    principal: FromPath[str],  # noqa: ARG001 - the route's; its exact text is in the raw path
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Invite a person, or change their role."""
    member = await body_as(request, MemberRole)
    command = AddMember(last_segments(request, MEMBERS), member.role, member.approver)
    return answered(await services.rooms.add_member(caller, room_id, command, key_of(key)))


@delete("/v1/rooms/{room_id:str}/members/{principal:path}", status_code=200, responses=Done)
async def delete_member(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    principal: FromPath[str],  # noqa: ARG001 - as above
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Remove a member, or leave."""
    command = RemoveMember(last_segments(request, MEMBERS))
    return answered(await services.rooms.remove_member(caller, room_id, command, key_of(key)))


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


ROUTES = Router(
    "/",
    route_handlers=[
        open_room,
        list_rooms,
        get_room,
        explain,
        read_events,
        read_transcript,
        post_message,
        put_member,
        delete_member,
        close_room,
    ],
    tags=["rooms"],
)
