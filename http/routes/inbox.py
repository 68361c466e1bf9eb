"""This server's own inbox (http.md, Linking and delivery): the caller's own, and of it what they may see now."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, QueryParameter
from msgspec import Meta

from ..inbox import MAX_ACKNOWLEDGED, MAX_PAGE, InboxPage
from ..inbox_stream import InboxStream
from ..raw import RawResponse
from ..services import Services
from ..sse import parse_cursor
from .common import TheCaller, TheServices, body_as

ALL = "/v1/inbox"

DeliveryId = Annotated[str, Meta(min_length=1, max_length=64)]
Ids = Annotated[tuple[DeliveryId, ...], Meta(max_length=MAX_ACKNOWLEDGED)]
Cursors = Annotated[str | None, QueryParameter(required=False, max_length=32, description="Exclusive.")]


class Acknowledge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/inbox/ack: ids of deliveries that have arrived, and of those that were read."""

    delivered: Ids = ()
    observed: Ids = ()


class Acknowledged(msgspec.Struct, frozen=True):
    """applied: of how many that said something new; one in both lists may count twice."""

    applied: int


@get(ALL)
async def read_inbox(
    caller: TheCaller,
    services: TheServices,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_PAGE)] = 50,
    cursor: Cursors = None,
) -> Response[InboxPage]:
    """What was delivered to the caller here, oldest first, and is not revoked."""
    page = await services.inbox.page(caller, 0 if cursor is None else parse_cursor(cursor), limit)
    return Response(page, headers={"cache-control": "no-store"})


@get(
    f"{ALL}/stream",
    responses={200: ResponseSpec(str, media_type="text/event-stream", generate_examples=False, description="Frames")},  # pyright: ignore[reportArgumentType]
)
async def follow_inbox(
    request: Request[Any, Any, Any],
    caller: TheCaller,
    services: TheServices,
    cursor: Cursors = None,
    last_event_id: Annotated[str | None, HeaderParameter(name="Last-Event-ID", required=False)] = None,
) -> Response[Any]:
    """Everything behind the cursor, or all that is there, then what comes. `Last-Event-ID` wins over `cursor`."""
    text = last_event_id if last_event_id is not None else cursor
    after = 0 if text is None else parse_cursor(text)
    return RawResponse(await _stream(request, caller, services, after))


async def _stream(request: Request[Any, Any, Any], caller: TheCaller, services: Services, after: int) -> InboxStream:
    head = await services.inbox.head(caller)
    services.inbox.hub.check(head.id)
    token: str = request.scope["state"]["token"]  # pyright: ignore[reportGeneralTypeIssues]
    is_reset = after > head.last
    return InboxStream(services, caller, head, head.last if is_reset else after, token, is_reset=is_reset)


@post(f"{ALL}/ack", status_code=200, opt={"body": Acknowledge})
async def acknowledge(
    request: Request[Any, Any, Any], caller: TheCaller, services: TheServices
) -> Response[Acknowledged]:
    """Say what has arrived and what was read. Forward only: the same again applies nothing."""
    said = await body_as(request, Acknowledge)
    applied = await services.inbox.acknowledge(caller, said.delivered, said.observed)
    return Response(Acknowledged(applied), headers={"cache-control": "no-store"})


ROUTES = Router("/", route_handlers=[read_inbox, follow_inbox, acknowledge], tags=["deliveries"])
