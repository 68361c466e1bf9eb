"""How channels call platforms, and what comes of the answer in the words of Pushed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from ...commands.channels.ports import Pushed
from ...commands.jobs import Refused, TryAgain
from ..outward_http import AGAIN, Answer, MaybeSent, OutwardClient, retry_after_s
from ..settings_channels import ChannelSettings

MAX_CONNECTIONS = 64
"""Calls at once of one channel."""

GONE = 410


def client_of(settings: ChannelSettings) -> OutwardClient:
    """What a channel calls its platform with."""
    return OutwardClient(
        settings.attempt_timeout_s, allow_private=settings.allow_loopback, max_connections=MAX_CONNECTIONS
    )


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


def retry(reason: str, after_s: float | None = None) -> Pushed:
    """Another time, not sooner than the platform says, where it does."""
    return Pushed("retry", reason) if after_s is None else Pushed("retry", reason, after_s)
