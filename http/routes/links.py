"""Links of a person's ends on channels (http.md, Linking and delivery). The caller's own end is their token."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response, Router, delete, get, patch, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath
from msgspec import UNSET, UnsetType

from ...commands.linking.callers import (
    BeginLink,
    ChangePush,
    ChannelView,
    ConfirmLink,
    LinkEnd,
    LinkView,
    PendingView,
    PresentCode,
)
from .common import CommandAnswer, Done, KeyHeader, TheCaller, TheServices, answered, body_as, key_of

LINKS = "/v1/links"
ONE = f"{LINKS}/{{link_id:str}}"
UNCACHED = {"cache-control": "no-store"}


class BegunAnswer(CommandAnswer, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """What POST /v1/links answers. code: to be shown at the other end before expiresAt. url: where to sign in."""

    expires_at: str
    code: str | UnsetType = UNSET
    url: str | UnsetType = UNSET


class PresentedAnswer(CommandAnswer, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """What a code that works answers. consentDigest: what the end that began confirms, seeing these ends."""

    state: str
    ends: list[LinkEnd]
    consent_digest: str


class ConfirmedAnswer(CommandAnswer, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """What a confirmation answers."""

    link_id: str


class Cancelled(msgspec.Struct, frozen=True):
    """What went with a link: deliveries that waited, and background turns that had not ended."""

    deliveries: int
    continuations: int


class DroppedAnswer(CommandAnswer, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """What DELETE answers. cancelled: absent where no link had been made yet."""

    cancelled: Cancelled | UnsetType = UNSET


class LinkList(msgspec.Struct, frozen=True):
    """GET /v1/links. pending: links that the caller has begun, which nobody else sees."""

    links: list[LinkView]
    pending: list[PendingView]


class ChannelList(msgspec.Struct, frozen=True):
    """GET /v1/channels."""

    channels: list[ChannelView]


def _is(kind: Any, description: str) -> Any:
    return ResponseSpec(kind, generate_examples=False, description=description)


@get(LINKS)
async def list_links(caller: TheCaller, services: TheServices) -> Response[LinkList]:
    """The ends that are linked to the caller's account, and the links that the caller has begun."""
    return Response(LinkList(*await services.links.callers.links(caller)), headers=UNCACHED)


@get("/v1/channels")
async def list_channels(caller: TheCaller, services: TheServices) -> Response[ChannelList]:
    """The channels of the caller's tenant that an answer may be sent to."""
    return Response(ChannelList(await services.links.callers.channels(caller)), headers=UNCACHED)


@post(LINKS, status_code=201, responses={201: _is(BegunAnswer, "Begun")}, opt={"body": BeginLink})
async def begin_link(
    request: Request[Any, Any, Any], caller: TheCaller, services: TheServices, key: KeyHeader = None
) -> Response[Any]:
    """Ask for a code to show at the other end, or for a URL to sign in at; 409 `too_many_pending` where three wait."""
    command = await body_as(request, BeginLink)
    return answered(await services.links.callers.begin(caller, command, key_of(key)))


@post(f"{LINKS}/present", status_code=200, responses={200: _is(PresentedAnswer, "Shown")}, opt={"body": PresentCode})
async def present_link(
    request: Request[Any, Any, Any], caller: TheCaller, services: TheServices, key: KeyHeader = None
) -> Response[Any]:
    """Show a code that the other end got. Whatever is wrong with it, the answer is one 404."""
    command = await body_as(request, PresentCode)
    return answered(await services.links.callers.present(caller, command, key_of(key)))


@post(f"{ONE}/confirm", status_code=200, responses={200: _is(ConfirmedAnswer, "Linked")}, opt={"body": ConfirmLink})
async def confirm_link(
    request: Request[Any, Any, Any],
    link_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Consent of the end that began, to the ends that it has seen; 409 `stale_consent` where they are others."""
    command = await body_as(request, ConfirmLink)
    return answered(await services.links.callers.confirm(caller, link_id, command, key_of(key)))


@patch(ONE, responses=Done, opt={"body": ChangePush})
async def change_push(
    request: Request[Any, Any, Any],
    link_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Change what may be sent to a linked end: nothing, replies to its person, or anything for them."""
    command = await body_as(request, ChangePush)
    return answered(await services.links.callers.change_push(caller, link_id, command, key_of(key)))


@delete(ONE, status_code=200, responses={200: _is(DroppedAnswer, "Unlinked, or given up")})
async def drop_link(
    link_id: FromPath[str], caller: TheCaller, services: TheServices, key: KeyHeader = None
) -> Response[Any]:
    """Unlink an end, with what waits for it; or give up a link that the caller has begun."""
    return answered(await services.links.callers.drop(caller, link_id, key_of(key)))


ROUTES = Router(
    "/",
    route_handlers=[list_links, list_channels, begin_link, present_link, confirm_link, change_push, drop_link],
    tags=["links"],
)
