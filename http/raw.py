"""Litestar's door to answers that speak ASGI themselves."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from litestar import Request, Response
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

Headers = list[tuple[bytes, bytes]]


class RawAnswer(Protocol):
    """Sends its own start and body. After a disconnect nothing is awaited any more: clean-up must be synchronous."""

    headers: Headers

    async def run(self, receive: Receive, send: Send) -> None:
        """Serve until an end."""
        ...


class RawResponse(Response[bytes]):
    """What a handler returns for a RawAnswer. To HEAD it answers the headers alone."""

    def __init__(self, answer: RawAnswer) -> None:
        super().__init__(b"")
        self._answer = answer

    def to_asgi_response(self, app: Any, request: Request[Any, Any, Any], **_kwargs: Any) -> ASGIResponse:  # noqa: ARG002
        """See litestar.Response."""
        return _Door(self._answer)


class _Door(ASGIResponse):
    def __init__(self, answer: RawAnswer) -> None:
        super().__init__(body=b"")
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["state"].get("is_head"):  # pyright: ignore[reportGeneralTypeIssues]
            await send({"type": "http.response.start", "status": 200, "headers": self._answer.headers})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await self._answer.run(receive, send)


def watch(receive: Receive) -> asyncio.Task[None]:
    """A task that ends when the client goes away; cancel it when done."""
    return asyncio.create_task(_gone(receive))


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
