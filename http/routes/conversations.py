"""Conversations with agents that the server runs (http.md, Conversations).

What is not the caller's own answers one 404, before anything else is looked at.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, HeaderParameter, QueryParameter
from msgspec import UNSET, UnsetType

from ...commands.answers.targets import Shown
from ...commands.conversations.handlers import Looked
from ...domain.conversations.commands import (
    CloseConversation,
    InterruptTurn,
    SeenTurn,
    SendTurn,
    StartConversation,
)
from ...domain.conversations.ledger import Ledger
from ...domain.errors import InvalidCursor, NotVisible
from ...domain.ids import is_conversation_id
from ...domain.principals import Caller
from ..answer_targets import targets_of
from ..conversation_entries import clamped, parse_cursor, reader_of
from ..conversation_ledger import read_ledger
from ..conversation_past import Wanted, look_back
from ..conversation_reading import (
    MAX_PAGE,
    ConversationLine,
    ConversationStatus,
    Direction,
    HistoryPage,
    line_of,
    read_page,
    status_of,
)
from ..conversation_sights import Sights, sights_of
from ..conversation_stream import ConversationStream, Start
from ..raw import RawResponse
from ..services import Services
from .common import CommandAnswer, KeyHeader, TheCaller, TheServices, answered, body_as, key_of

MAX_LIST = 200
DEFAULT_TAIL = 50
MAX_TAIL = 200

ONE = "/v1/conversations/{conversation_id:str}"

_TURN = re.compile(r"[1-9][0-9]{0,15}")

Accepted = {202: ResponseSpec(CommandAnswer, generate_examples=False, description="Accepted; a record will say more")}
Started = {
    status: ResponseSpec(CommandAnswer, generate_examples=False, description=words)
    for status, words in ((200, "The conversation with that handle"), (201, "Started"))
}
Closed = {200: ResponseSpec(CommandAnswer, generate_examples=False, description="Closing")}
Cursors = Annotated[
    str | None, QueryParameter(required=False, max_length=32, description="Exclusive; nextCursor, or a message's id.")
]
AsOf = Annotated[
    str | None,
    QueryParameter(name="asOf", required=False, max_length=64, description="A cursor, or a time (RFC 3339)."),
]


class ConversationPage(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/conversations."""

    conversations: list[ConversationLine]
    next_cursor: str | UnsetType = UNSET


class Noted(msgspec.Struct, frozen=True):
    """POST /v1/conversations/{id}/turns/{turn}/seen."""

    turn: int


@post("/v1/conversations", status_code=201, responses=Started, opt={"body": StartConversation})
async def start_conversation(
    request: Request[Any, Any, Any], caller: TheCaller, services: TheServices, key: KeyHeader = None
) -> Response[Any]:
    """Start a conversation with an agent of the settings. Only its starter will ever see it; with mode `shared`, those
    too whom they name."""
    command = await body_as(request, StartConversation)
    return answered(await services.conversations.handlers.start(caller, command, key_of(key)))


@get("/v1/conversations")
async def list_conversations(
    caller: TheCaller,
    services: TheServices,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_LIST)] = 50,
    cursor: FromQuery[str | None] = None,
) -> Response[ConversationPage]:
    """The conversations that the caller takes part in, newest first."""
    talks = services.conversations
    found = None
    if cursor is None or is_conversation_id(cursor):
        found = await talks.handlers.access.listed(caller, limit + 1, cursor)
    if found is None:
        raise InvalidCursor("The cursor is not one of this list; take nextCursor of the page before.")
    lines = [line_of(each, part) for each, part in found[:limit] if part is not None]
    after = found[limit - 1][0].conversation_id if len(found) > limit else UNSET
    return Response(ConversationPage(lines, after), headers={"cache-control": "no-store"})


@get(ONE)
async def get_conversation(
    conversation_id: FromPath[str], caller: TheCaller, services: TheServices
) -> Response[ConversationStatus]:
    """The conversation as it stands."""
    looked = await services.conversations.handlers.look(caller, conversation_id)
    status = status_of(looked.conversation, looked.who)
    return Response(status, headers={"cache-control": "no-store"})


@post(f"{ONE}/turns", status_code=202, responses=Accepted, opt={"body": SendTurn})
async def send_turn(
    request: Request[Any, Any, Any],
    conversation_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Say something. What comes of it is a record with the answer's `id`: a turn's question, or a rejected one.

    `responseTarget` says where else its answer goes. With `background` the answer has a `continuation`, a handle of the
    turn, which `Location` names as well.
    """
    command = await body_as(request, SendTurn)
    answer = await services.conversations.intake.send_by_token(caller, conversation_id, command, key_of(key))
    response = answered(answer)
    if "continuation" in answer.body:
        response.headers["location"] = answer.body["continuation"]["url"]
    return response


@post(f"{ONE}/interrupt", status_code=202, responses=Accepted, opt={"body": InterruptTurn})
async def interrupt_turn(
    request: Request[Any, Any, Any],
    conversation_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Stop the caller's own running turn; nothing where none runs. `seen`: code points of its reply that arrived."""
    command = await body_as(request, InterruptTurn)
    return answered(await services.conversations.handlers.interrupt(caller, conversation_id, command, key_of(key)))


@post(f"{ONE}/close", status_code=200, responses=Closed, opt={"body": CloseConversation})
async def close_conversation(
    request: Request[Any, Any, Any],
    conversation_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Close it for good: the running turn is interrupted, what waits is rejected."""
    await body_as(request, CloseConversation)
    return answered(await services.conversations.handlers.close(caller, conversation_id, key_of(key)))


@post(f"{ONE}/turns/{{turn:str}}/seen", status_code=200, opt={"body": SeenTurn})
async def note_seen(
    request: Request[Any, Any, Any],
    conversation_id: FromPath[str],
    turn: FromPath[str],
    caller: TheCaller,
    services: TheServices,
) -> Response[Noted]:
    """So many code points of the running reply arrived: what later prompts hold of it, should it be interrupted."""
    command = await body_as(request, SeenTurn)
    await services.conversations.handlers.seen(caller, conversation_id, _turn(turn), command)
    return Response(Noted(_turn(turn)), headers={"cache-control": "no-store"})


@get(f"{ONE}/turns/{{turn:str}}/context")
async def read_context(
    conversation_id: FromPath[str], turn: FromPath[str], caller: TheCaller, services: TheServices
) -> Response[Ledger]:
    """What the model saw in that turn: ords and tokens, digests of prompt and tools, and what has changed since."""
    talks = services.conversations
    looked = await talks.handlers.look(caller, conversation_id)
    ledger = await read_ledger(talks, looked, _turn(turn))
    return Response(ledger, headers={"cache-control": "no-store"})


@get(f"{ONE}/turns/{{turn:str}}/targets")
async def read_targets(
    conversation_id: FromPath[str], turn: FromPath[str], caller: TheCaller, services: TheServices
) -> Response[Shown]:
    """Where the answer to a turn of the caller's goes, and how far each delivery is; empty until the turn has ended."""
    talks = services.conversations
    looked = await talks.handlers.look(caller, conversation_id)
    found = await targets_of(talks, caller, looked, _turn(turn))
    return Response(found, headers={"cache-control": "no-store"})


@get(f"{ONE}/history")
async def read_history(
    conversation_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_PAGE)] = 50,
    cursor: Cursors = None,
    direction: FromQuery[Direction] = "backward",
    as_of: AsOf = None,
    viewer: FromQuery[str | None] = None,
) -> Response[HistoryPage]:
    """Records: backward from the newest, or from the cursor; forward from the first one, oldest first.

    With `asOf` or `viewer`, what that viewer (the caller where nobody is named) could see then and the caller may see
    now; for the owner, and for auditors of the tenant where the conversation is shared. Each use is written down.
    """
    talks = services.conversations
    if as_of is not None or viewer is not None:
        wanted = Wanted(as_of, viewer, cursor, direction, limit)
        found = await look_back(talks, caller, conversation_id, wanted)
        return Response(found, headers={"cache-control": "no-store"})
    looked = await talks.handlers.look(caller, conversation_id)
    at = None if cursor is None else parse_cursor(cursor)
    reader = reader_of(talks.keyring, conversation_id)
    sights = await _sights(services, caller, looked)
    page = await read_page(talks.log, reader, looked, sights, at, direction, limit)
    return Response(page, headers={"cache-control": "no-store"})


@get(
    f"{ONE}/events",
    responses={200: ResponseSpec(str, media_type="text/event-stream", generate_examples=False, description="Frames")},  # pyright: ignore[reportArgumentType]
)
async def follow_conversation(
    request: Request[Any, Any, Any],
    conversation_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    cursor: Cursors = None,
    tail: Annotated[int, QueryParameter(ge=0, le=MAX_TAIL)] = DEFAULT_TAIL,
    last_event_id: Annotated[str | None, HeaderParameter(name="Last-Event-ID", required=False)] = None,
) -> Response[Any]:
    """The state, every record behind the cursor (or the last `tail` ones), the running reply, then what comes.

    `Last-Event-ID` wins over `cursor`, and that over `tail`.
    """
    talks = services.conversations
    looked = await talks.handlers.look(caller, conversation_id)
    text = last_event_id if last_event_id is not None else cursor
    at = None if text is None else clamped(parse_cursor(text), looked.conversation)
    sights = await _sights(services, caller, looked)
    talks.places.check(caller, conversation_id)
    token: str = request.scope["state"]["token"]  # pyright: ignore[reportGeneralTypeIssues]
    return RawResponse(ConversationStream(services, caller, looked, sights, Start(token, at, tail)))


async def _sights(services: Services, caller: Caller, looked: Looked) -> Sights:
    """What the caller, who was looked at just now, sees of the conversation; recorded before they do."""
    talks = services.conversations

    async def look() -> Looked:
        return await talks.handlers.look(caller, looked.conversation.id)

    return await sights_of(talks.clearances, looked, caller.claims, look)


def _turn(text: str) -> int:
    """A turn's number in canonical form; every other text is no turn. Raises NotVisible."""
    if _TURN.fullmatch(text) is None:
        raise NotVisible
    return int(text)


ROUTES = Router(
    "/",
    route_handlers=[
        start_conversation,
        list_conversations,
        get_conversation,
        send_turn,
        interrupt_turn,
        close_conversation,
        note_seen,
        read_context,
        read_targets,
        read_history,
        follow_conversation,
    ],
    tags=["conversations"],
)
