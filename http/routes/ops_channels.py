"""The channels of a tenant for its operators (http.md, Linking and delivery)."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response, Router, get, post
from litestar.params import FromPath

from ...commands.deliveries.pausing import PauseChannel, ResumeChannel
from ...commands.deliveries.watching import ChannelView
from .common import Done, KeyHeader, TheCaller, TheServices, answered, body_as, key_of

ALL = "/v1/ops/channels"


class ChannelsShown(msgspec.Struct, frozen=True):
    """GET /v1/ops/channels: by name."""

    channels: list[ChannelView]


@get(ALL)
async def watch_channels(caller: TheCaller, services: TheServices) -> Response[ChannelsShown]:
    """What waits on each channel of the tenant, whether it is paused, and which of its destinations are left alone."""
    found = await services.operating.watch.channels(caller)
    return Response(ChannelsShown(found), headers={"cache-control": "no-store"})


@post(f"{ALL}/{{channel:str}}/pause", status_code=200, responses=Done, opt={"body": PauseChannel})
async def pause_channel(
    request: Request[Any, Any, Any],
    channel: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Send nothing over a channel until somebody resumes it, or until then. What waits there expires as ever."""
    command = await body_as(request, PauseChannel)
    return answered(await services.operating.pausing.pause(caller, channel, command, key_of(key)))


@post(f"{ALL}/{{channel:str}}/resume", status_code=200, responses=Done, opt={"body": ResumeChannel})
async def resume_channel(
    request: Request[Any, Any, Any],
    channel: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Send over a channel again."""
    command = await body_as(request, ResumeChannel)
    return answered(await services.operating.pausing.resume(caller, channel, command, key_of(key)))


ROUTES = Router("/", route_handlers=[watch_channels, pause_channel, resume_channel], tags=["operators"])
