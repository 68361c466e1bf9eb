"""The body of somebody else's answer, as its bytes come and never more of them than are wanted."""

from __future__ import annotations

import httpx


class CompressedBody(Exception):
    """The answer is encoded. It is not inflated: a small one could grow past any bound."""


class BodyTooLarge(Exception):
    """More bytes came than were wanted."""


async def read_bounded(answer: httpx.Response, max_bytes: int) -> bytes:
    """The body of a streamed answer, at most `max_bytes`. Raises CompressedBody, BodyTooLarge and what httpx raises."""
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise CompressedBody("compressed answer")
    body = bytearray()
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) > max_bytes:
            raise BodyTooLarge(f"more than {max_bytes} bytes")
    return bytes(body)
