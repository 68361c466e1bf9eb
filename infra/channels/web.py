"""The web channel: this server's own inbox, read over SSE and HTTP (http.md, GET /v1/inbox)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from msgspec import Struct

from ...commands.channels.ports import Echoed, InboxRows, NotAuthentic, Proof, Pushed, RawRequest, Receipt
from ...domain.channels.messages import Address, Can, Inbound, Outgoing
from ...domain.errors import MinutebookError
from ..settings_channels import ChannelSettings
from .plain import PlainV1, plain_payloads

WEB_CAN = Can(push=True, keys=True, receipts=True, look_up=True)


class WebChannel:
    """`[channels.<name>]` of kind web. Nothing comes in over it: who is signed in uses the routes of conversations."""

    kind = "web"
    codec = "web"
    version = 1
    shapes: ClassVar[Mapping[int, type[Struct]]] = {1: PlainV1}

    def __init__(self, name: str, settings: ChannelSettings, rows: InboxRows) -> None:
        self.name = name
        self.tenant = settings.tenant
        self.can = WEB_CAN
        self._rows = rows

    async def open(self) -> None:
        """See Channel: the rows are the server's own."""

    async def close(self) -> None:
        """See Channel."""

    def verify(self, request: RawRequest, now: datetime) -> Proof:
        """See Channel: nothing is authentic here."""
        _ = request, now
        raise NotAuthentic

    def parse(self, request: RawRequest) -> Inbound | Echoed | Sequence[Receipt] | None:
        """See Channel."""
        _ = request

    def render(self, outgoing: Outgoing) -> tuple[Mapping[str, Any], ...]:
        """See Channel. JSON has no markup; who shows it to people escapes it for where it stands."""
        return plain_payloads(outgoing)

    async def push(
        self, address: Address, payload: Mapping[str, Any], version: int, key: str, timeout_s: float
    ) -> Pushed:
        """See Channel. Accepted once the row is stored; sending it again under its key changes nothing."""
        _ = version
        try:
            async with asyncio.timeout(timeout_s):
                await self._rows.put(self.tenant, self.name, address, payload, key)
        except TimeoutError:
            return Pushed("unknown", "timeout")
        except MinutebookError as error:
            return Pushed("retry", error.code)
        return Pushed("accepted")

    async def look_up(self, address: Address, key: str) -> bool | None:
        """See Channel."""
        _ = address
        try:
            return await self._rows.has(self.tenant, key)
        except MinutebookError:
            return None
