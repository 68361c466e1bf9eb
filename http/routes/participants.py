"""Who takes part in a shared conversation (http.md, Conversations): its owner says so, everybody in it may know."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response, Router, delete, get, put
from litestar.params import FromPath

from ...commands.conversations.kind import stream_of
from ...domain.conversations.commands import AddParticipant, Participation, RemoveParticipant
from .common import Done, KeyHeader, TheCaller, TheServices, answered, body_as, key_of, last_segments

PARTICIPANTS = "/participants/"
ALL = "/v1/conversations/{conversation_id:str}/participants"
ONE = f"{ALL}/{{principal:path}}"


class Participants(msgspec.Struct, frozen=True):
    """GET /v1/conversations/{id}/participants: principals, the owner first."""

    participants: list[str]


@get(ALL)
async def list_participants(
    conversation_id: FromPath[str], caller: TheCaller, services: TheServices
) -> Response[Participants]:
    """Who takes part, for anybody who does."""
    found = await services.conversations.handlers.participants(caller, conversation_id)
    return Response(Participants(found), headers={"cache-control": "no-store"})


@put(ONE, responses=Done, opt={"body": Participation})
async def put_participant(
    request: Request[Any, Any, Any],
    conversation_id: FromPath[str],
    principal: FromPath[str],  # noqa: ARG001 - the route's; its exact text is in the raw path
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Have somebody take part; by the owner. Nothing changes for one who does."""
    await body_as(request, Participation)
    command = AddParticipant(last_segments(request, PARTICIPANTS))
    handlers = services.conversations.handlers
    return answered(await handlers.add_participant(caller, conversation_id, command, key_of(key)))


@delete(ONE, status_code=200, responses=Done, opt={"body": Participation})
async def delete_participant(
    request: Request[Any, Any, Any],
    conversation_id: FromPath[str],
    principal: FromPath[str],  # noqa: ARG001 - as above
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Take somebody out; by the owner. Their running turn stops, what waits of theirs is rejected, streams end."""
    await body_as(request, Participation)
    command = RemoveParticipant(last_segments(request, PARTICIPANTS))
    talks = services.conversations
    answer = await talks.handlers.remove_participant(caller, conversation_id, command, key_of(key))
    if not answer.is_replay:
        talks.hub.part(stream_of(conversation_id), command.principal, answer.body["seq"])
    return answered(answer)


ROUTES = Router("/", route_handlers=[list_participants, put_participant, delete_participant], tags=["conversations"])
