"""Channels of the settings against real servers of this machine, and what platforms send to them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from minutebook.commands.channels.ports import Channel, Pushed, RawRequest
from minutebook.domain.channels.messages import Address, Outgoing, Place
from standardwebhooks.webhooks import Webhook

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = "01jd8x7y2r3t4v5w6x7y8z9abc.0"


def whsec(char: str) -> str:
    """A secret of Standard Webhooks."""
    return "whsec_" + base64.b64encode(char.encode() * 32).decode()


def pushed(
    channel: Channel,
    payload: Any = None,
    *,
    address: Address | None = None,
    key: str = KEY,
    timeout_s: float = 5,
) -> Pushed:
    """What comes of one send; the payload is that of a short reply unless it is given."""
    payload = channel.render(Outgoing("reply", "hello", key))[0] if payload is None else payload
    address = Address(channel.name, "7", Place("7")) if address is None else address

    async def body() -> Pushed:
        await channel.open()
        try:
            return await channel.push(address, payload, channel.version, key, timeout_s)
        finally:
            await channel.close()

    return asyncio.run(body())


def ran(make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What a coroutine returns."""
    return asyncio.run(make())


def webhook_request(
    secret: str, document: Any, *, at: datetime = NOW, message_id: str = "msg_1", raw: bytes | None = None
) -> RawRequest:
    """A call as a sender signs it."""
    body = json.dumps(document).encode() if raw is None else raw
    return RawRequest(
        {
            "webhook-id": message_id,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": Webhook(secret).sign(message_id, at, body.decode()),
        },
        body,
    )
