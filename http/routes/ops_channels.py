"""The channels of a tenant for its operators (http.md, Linking and delivery)."""

from __future__ import annotations

import msgspec
from litestar import Response, Router, get

from ...commands.deliveries.watching import ChannelView
from .common import TheCaller, TheServices


class ChannelsShown(msgspec.Struct, frozen=True):
    """GET /v1/ops/channels: by name."""

    channels: list[ChannelView]


@get("/v1/ops/channels")
async def watch_channels(caller: TheCaller, services: TheServices) -> Response[ChannelsShown]:
    """What waits on each channel of the tenant, and which of its destinations are left alone; for operators."""
    found = await services.channel_watch.channels(caller)
    return Response(ChannelsShown(found), headers={"cache-control": "no-store"})


ROUTES = Router("/", route_handlers=[watch_channels], tags=["operators"])
