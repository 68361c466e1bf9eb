"""Signed calls of a configured webhook, as the Standard Webhooks specification has them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from standardwebhooks.webhooks import Webhook

from ..commands.jobs import Refused
from .outward_http import OutwardClient

MAX_BODY_BYTES = 1 << 20
"""Largest body; a brief is at most 64 KiB."""


class SignedWebhook:
    """One receiver. Nothing of its answer but the status is read.

    `now` gives the time that is signed: a receiver refuses calls that are old.
    """

    def __init__(self, url: str, secret: str, client: OutwardClient, now: Callable[[], datetime]) -> None:
        self._url = url
        self._signer = Webhook(secret)
        self._client = client
        self._now = now

    async def send(self, message_id: str, kind: str, ts: str | None, data: Any) -> None:
        """POST `{"type": kind, "timestamp": ts, "data": data}`; ts is now where it is None.

        message_id: the same for every attempt, so that the receiver can tell a repetition. Raises TryAgain and Refused,
        and Refused `body_too_large`.
        """
        now = self._now().astimezone(UTC)
        stamp = ts or now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = msgspec.json.encode({"type": kind, "timestamp": stamp, "data": data})
        if len(body) > MAX_BODY_BYTES:
            raise Refused("body_too_large")
        headers = signed_headers(self._signer, message_id, now, body)
        await self._client.call("POST", self._url, headers=headers, content=body)


def signed_headers(signer: Webhook, message_id: str, now: datetime, body: bytes) -> dict[str, str]:
    """The headers of a call with a JSON body. now: with the zone UTC; message_id: the same for every attempt."""
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signer.sign(message_id, now, body.decode()),
    }
