"""The edge where secrets are kept out of what is no payload: problem bodies, and idempotency keys."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Any, cast

import msgspec
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from ..infra.redaction.engine import Redactor
from .problems import PROBLEM_TYPE

KEY_HEADER = b"idempotency-key"

QUOTES = "quotes"
"""Member of a scope's state: whether the answer, JSON of whatever status, may quote its request as a problem does."""


class RedactedEdge:
    """ASGI middleware around the gate.

    A problem names paths and values of the request, and a known secret may stand in no answer (rules.md, law 28): its
    body is redacted. An idempotency key that holds a secret is replaced by its HMAC with the server's key, so that it
    still is one key and the table of keys never has the secret. refused: hears the code of each problem.
    """

    def __init__(
        self, app: ASGIApp, redactor: Redactor, server_key: bytes, refused: Callable[[str], None] | None = None
    ) -> None:
        self._app = app
        self._redactor = redactor
        self._server_key = server_key
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the class."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await self._app(self._without_secret_key(scope), receive, _Answer(scope, send, self._redactor, self._refused))

    def _without_secret_key(self, scope: HTTPScope) -> HTTPScope:
        headers = scope["headers"]
        if not any(name == KEY_HEADER for name, _ in headers):
            return scope
        replaced = [(name, self._key(value) if name == KEY_HEADER else value) for name, value in headers]
        return cast("HTTPScope", {**scope, "headers": replaced})

    def _key(self, value: bytes) -> bytes:
        if not self._redactor.text(value.decode("latin-1"))[1]:
            return value
        return hmac.new(self._server_key, value, hashlib.sha256).hexdigest().encode()


class _Answer:
    """`send` of one request, which holds the head of a problem back until its body is there."""

    def __init__(self, scope: HTTPScope, send: Send, redactor: Redactor, refused: Callable[[str], None] | None) -> None:
        self._scope = scope
        self._send = send
        self._redactor = redactor
        self._refused = refused
        self._head: Any = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and self._may_quote(message):
            self._head = message
            return
        if self._head is not None and message["type"] == "http.response.body":
            body = self._redacted(message["body"], is_problem=_is_problem(self._head))
            others = [(name, value) for name, value in self._head["headers"] if name.lower() != b"content-length"]
            headers = [*others, (b"content-length", str(len(body)).encode())]
            head: Any = {**self._head, "headers": headers}
            self._head = None
            await self._send(head)
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
            return
        await self._send(message)

    def _may_quote(self, message: Any) -> bool:
        return (message["status"] >= 400 and _is_problem(message)) or self._scope["state"].get(QUOTES, False)

    def _redacted(self, body: bytes, *, is_problem: bool) -> bytes:
        problem = msgspec.json.decode(body)
        if is_problem and self._refused is not None:
            self._refused(problem["code"])
        fresh = self._clean(problem)
        return body if fresh == problem else msgspec.json.encode(fresh)

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redactor.cut_text(value)
        if isinstance(value, dict):
            return {name: self._clean(inner) for name, inner in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [self._clean(each) for each in cast("list[Any]", value)]
        return value


def _is_problem(message: Any) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(PROBLEM_TYPE.encode())
        for name, value in message["headers"]
    )
