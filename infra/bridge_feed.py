"""The bridge's stream down, over as many connections as it takes (http.md, the bridge)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

import httpx
import msgspec

from .api_client import CONNECT_TIMEOUT_S, Refused, TokenSource, backoff_s, refusal_of
from .sse_client import RECONNECT_S, SILENCE_S, Frame, SseParser, StreamBroken

PATH = "/v1/bridge/stream"


class Delivery(msgspec.Struct, frozen=True, rename="camel"):
    """What waits for the run. `ref` names it in its acknowledgement; the rest depends on the kind."""

    kind: Literal["deliver", "interrupt", "decision"]
    ref: int
    text: str | None = None
    approval_id: str | None = None
    allow: bool | None = None
    action_digest: str | None = None
    reason: str | None = None

    def line(self) -> bytes:
        """As one line of JSON, for a local command."""
        members = {name: value for name, value in msgspec.to_builtins(self).items() if value is not None}
        return msgspec.json.encode(members) + b"\n"


class Closed(msgspec.Struct, frozen=True, rename="camel"):
    """The server's last word: the run is over (`run_ended`, with why), or another bridge has it (`lease_lost`)."""

    reason: str
    end_reason: str | None = None


class RunOver(Exception):
    """The run or its lease is not this bridge's any more; nothing more is taken from it."""

    def __init__(self, closed: Closed) -> None:
        why = f" ({closed.end_reason})" if closed.end_reason else ""
        words = {
            "run_ended": f"The room ended this run{why}.",
            "lease_lost": "Another bridge has this run now; this one stops.",
        }
        super().__init__(words.get(closed.reason, f"The server closed the bridge ({closed.reason[:40]})."))
        self.closed = closed


class Feed:
    """Every delivery at least once, in order; again after each reconnect, until it is acknowledged.

    notice: told in a few words when the connection is lost and when it is back.
    """

    def __init__(
        self, client: httpx.AsyncClient, token: TokenSource, lease: str, notice: Callable[[str], None]
    ) -> None:
        self._client = client
        self._token = token
        self._lease = lease
        self._notice = notice
        self._failures = 0

    async def deliveries(self) -> AsyncGenerator[Delivery]:
        """Without an end. Raises RunOver, and Refused for an answer that will not pass."""
        while True:
            wait_s, lost = 0.0, "the server ended the stream"
            try:
                async with contextlib.aclosing(self._connection()) as connection:
                    async for delivery in connection:
                        yield delivery
            except Refused as refused:
                if not refused.is_passing:
                    raise
                wait_s, lost = refused.retry_after_s or 0.0, refused.detail
            except (httpx.TransportError, StreamBroken) as error:
                lost = f"the stream was lost ({type(error).__name__})"
            self._failures += 1
            if self._failures == 2:  # the first way back is quick and nobody's business
                self._notice(f"{lost}; trying again")
            await asyncio.sleep(max(wait_s, RECONNECT_S if self._failures == 1 else backoff_s(self._failures)))

    async def _connection(self) -> AsyncGenerator[Delivery]:
        headers = {"authorization": f"Bearer {self._token()}", "accept": "text/event-stream"}
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_TIMEOUT_S)
        async with self._client.stream(
            "GET", PATH, headers=headers, params={"lease": self._lease}, timeout=timeout
        ) as response:
            if not response.is_success:
                raise refusal_of(response, await response.aread())
            if self._failures > 1:
                self._notice("connected again")
            self._failures = 0
            parser = SseParser()
            async for chunk in response.aiter_bytes():
                for each in parser.feed(chunk):
                    if each.event == "reconnect":
                        return
                    delivery = _read(each)
                    if delivery is not None:
                        yield delivery


def _read(frame: Frame) -> Delivery | None:
    """None for what a later version sends. Raises RunOver, and StreamBroken for what cannot be read."""
    try:
        match frame.event:
            case "closed":
                raise RunOver(msgspec.json.decode(frame.data, type=Closed))
            case "deliver" | "interrupt" | "decision":
                body = msgspec.json.decode(frame.data, type=dict[str, Any])
                return msgspec.convert({**body, "kind": frame.event}, Delivery)
            case _:
                return None
    except msgspec.MsgspecError as error:
        raise StreamBroken(f"A {frame.event[:20]} frame of the stream cannot be read.") from error
