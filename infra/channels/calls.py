"""How channels call platforms, and what comes of the answer in the words of Pushed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from ...commands.channels.ports import MAX_ANSWER_BYTES, Pushed
from ...commands.jobs import Refused, TryAgain
from ...domain.channels.messages import Address, Can, Place
from ..outward_http import AGAIN, Answer, MaybeSent, OutwardClient, retry_after_s
from ..settings_channels import ChannelSettings

MAX_CONNECTIONS = 64
"""Calls at once of one channel."""

GONE = 410
GATEWAY = frozenset({502, 504})


class Caller:
    """What channels that call somebody by HTTP have in common. `open` before the first call, `close` at the end.

    keep_s: how long a connection is kept for the next call.
    """

    keep_s: ClassVar[float] = 0

    def __init__(self, name: str, settings: ChannelSettings, can: Can) -> None:
        self.name = name
        self.tenant = settings.tenant
        self.can = can
        self._settings = settings
        self._client: OutwardClient | None = None

    async def open(self) -> None:
        """See Channel."""
        if self.can.push:
            self._client = OutwardClient(
                self._settings.attempt_timeout_s,
                allow_private=self._settings.allow_loopback,
                max_connections=MAX_CONNECTIONS,
                keep_s=self.keep_s,
            )

    async def close(self) -> None:
        """See Channel."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def look_up(self, address: Address, key: str) -> bool | None:
        """See Channel: it cannot be asked, unless a channel says otherwise."""
        _ = address, key
        return None

    async def post_json(
        self, chat: str, url: str, body: Mapping[str, Any], timeout_s: float, headers: Mapping[str, str]
    ) -> Answer | Pushed:
        """As post, to an API that answers in JSON; without a chat or a client nothing is sent."""
        if self._client is None:
            return Pushed("permanent", "cannot_push")
        if not chat:
            return Pushed("permanent", "no_address")
        content = msgspec.json.encode(body)
        return await post(
            self._client, url, headers=headers, content=content, timeout_s=timeout_s, max_bytes=MAX_ANSWER_BYTES
        )


def chat_and_thread(address: Address) -> tuple[str, str | None]:
    """Where a message goes: the chat and thread of the address, else the user's own chat. The chat may be empty."""
    if not isinstance(address.place, Place):
        return address.native_id, None
    return address.place.chat, address.place.thread if isinstance(address.place.thread, str) else None


async def post(
    client: OutwardClient,
    url: str,
    *,
    headers: Mapping[str, str],
    content: bytes,
    timeout_s: float,
    max_bytes: int = 0,
) -> Answer | Pushed:
    """One POST. Its answer, whatever the status; or how it ended without one that can be read.

    What was not written, or not to the end of a connection, may go again; what may have been is unknown.
    """
    try:
        return await client.ask("POST", url, headers=headers, content=content, max_bytes=max_bytes, timeout_s=timeout_s)
    except MaybeSent as error:
        return Pushed("unknown", error.reason)
    except TryAgain as error:
        return Pushed("retry", error.reason)
    except Refused as error:
        return Pushed("permanent" if error.reason == "address_refused" else "unknown", error.reason)


def of_status(answer: Answer) -> Pushed:
    """What a status alone says: 2xx has it; 408, 425, 429 and 5xx may take it later; all others never will.

    A 403 that says when to come back, or that nothing remains, is a limit. Retry-After is clamped to an hour.
    """
    status = answer.status
    if not 200 <= status < 600:
        return Pushed("unknown", "answer_unreadable")
    if status < 300:
        return Pushed("accepted")
    if status < 400:
        return Pushed("permanent", "redirected")
    after_s = retry_after_s(answer.headers.get("retry-after"), datetime.now(UTC))
    is_limited = status == 403 and (after_s is not None or answer.headers.get("x-ratelimit-remaining") == "0")
    if status in AGAIN or status >= 500 or is_limited:
        return retry(f"http_{status}", after_s)
    return Pushed("permanent", "gone" if status == GONE else f"http_{status}")


def of_unreadable(answer: Answer) -> Pushed:
    """Of an API that says in its body whether it did what it was asked to, and did not: a 2xx, and the error of a
    gateway, which may have passed it on, tell nothing of what became of it."""
    if answer.status < 300:
        return Pushed("unknown", "answer_unreadable")
    return Pushed("unknown", f"http_{answer.status}") if answer.status in GATEWAY else of_status(answer)


def retry(reason: str, after_s: float | None = None) -> Pushed:
    """Another time, not sooner than the platform says, where it does."""
    return Pushed("retry", reason) if after_s is None else Pushed("retry", reason, after_s)
