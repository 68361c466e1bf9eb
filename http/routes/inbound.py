"""What platforms call for each channel (http.md, Linking and delivery): no token, the channel proves each request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import Request, Response, Router, post
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, SkipValidation
from msgspec import UNSET, UnsetType

from ...commands.channels.inbound import Kind, Receiving, Taken
from ...commands.channels.ports import NotAuthentic, RawRequest
from ...domain.channels.inbound import InboundOutcome
from ...domain.errors import Invalid, TimedOut, Unauthenticated, Unavailable

TheReceiving = NamedDependency[SkipValidation[Receiving]]

UNPROVEN = "The request does not prove where it comes from."

UNCACHED = {"cache-control": "no-store"}


class InboundAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a webhook is answered. id: to ask operators about it; the same for each repetition, which says duplicate.
    continuation: the handle of a background turn, or how that stands which a command names."""

    id: str
    outcome: InboundOutcome
    duplicate: bool = False
    continuation: Mapping[str, Any] | UnsetType = UNSET


class Applied(msgspec.Struct, frozen=True):
    """POST /v1/channels/{name}/receipts: how many of them said something new."""

    applied: int


Answers = {
    200: ResponseSpec(dict[str, Any], generate_examples=False, description="Stored; other kinds than webhook"),
    202: ResponseSpec(InboundAnswer, generate_examples=False, description="Stored; of a webhook"),
}


@post("/v1/channels/{name:str}/inbound", status_code=202, responses=Answers)
async def take_inbound(request: Request[Any, Any, Any], name: FromPath[str], receiving: TheReceiving) -> Response[Any]:
    """Take one message as the platform of the channel sends it. Whatever does not prove itself, and whatever channel
    there is not, is one 401."""
    is_told = receiving.kind_of(name) == "webhook"
    try:
        taken = await _taken(request, name, "inbound", receiving)
    except Invalid:
        if is_told:
            raise
        taken = Taken()  # the platform would send it again and again
    if not is_told:
        return Response({} if taken.echo is UNSET else dict(taken.echo), status_code=200, headers=UNCACHED)
    answer = InboundAnswer(taken.id, taken.outcome, taken.is_duplicate, taken.continuation)
    return Response(answer, status_code=202, headers=UNCACHED)


@post("/v1/channels/{name:str}/receipts", status_code=200)
async def take_receipts(
    request: Request[Any, Any, Any], name: FromPath[str], receiving: TheReceiving
) -> Response[Applied]:
    """Take signed receipts on parts of deliveries that the channel's receiver has accepted."""
    taken = await _taken(request, name, "receipts", receiving)
    return Response(Applied(taken.applied), headers=UNCACHED)


async def _taken(request: Request[Any, Any, Any], name: str, kind: Kind, receiving: Receiving) -> Taken:
    headers: dict[str, str] = {}
    for raw, value in request.scope["headers"]:
        key, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        # One that comes twice is both: it proves nothing then, whichever of them somebody in between has read.
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    try:
        return await receiving.receive(name, kind, RawRequest(headers, await request.body()))
    except NotAuthentic:
        raise Unauthenticated(UNPROVEN) from None
    except TimedOut as error:
        raise Unavailable("It is not known to be stored; send it again.") from error


ROUTES = Router("/", route_handlers=[take_inbound, take_receipts], tags=["inbound"])
