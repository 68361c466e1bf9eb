"""Who has a role in a room (http.md, Rooms)."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, Router, delete, put
from litestar.params import FromPath

from ...domain.rooms.commands import AddMember, MemberRole, RemoveMember
from .common import Done, KeyHeader, TheCaller, TheServices, answered, body_as, key_of, last_segments

MEMBERS = "/members/"


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


ROUTES = Router("/", route_handlers=[put_member, delete_member], tags=["rooms"])
