"""The SDK's own client against the real server, and the same calls as raw JSON-RPC."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import httpx2
from live_server import NO_TLS, REQUEST_S, LiveServer
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent
from minutebook.domain.ids import short_id

MODES = ("legacy", "auto")
"""How the SDK's client begins: with the handshake of 2025, or with each request for itself as of 2026."""

COMMIT = "0123abc"

ARGUMENTS: dict[str, dict[str, Any]] = {
    "room_read": {},
    "room_post": {"text": "hello"},
    "room_handoff": {"toRole": "reviewer", "summary": "please look", "commit": COMMIT},
    "room_verdict": {"verdict": "approve", "summary": "good", "commit": COMMIT},
}
"""Arguments that each tool takes."""

_numbers = itertools.count(3_000_000)


class Run:
    """A live run of a role in a room, and its client for plain HTTP."""

    def __init__(self, server: LiveServer, room: str, role: str = "implementer") -> None:
        self.server = server
        self.room = room
        self.id = short_id(next(_numbers))
        self.role = role
        self.http = server.client(f"agent:{self.id}", room=room, role=role)
        answer = self.http.post("/v1/bridge/hello")
        assert answer.status_code == 200, answer.text

    def end(self) -> None:
        """Its bridge says goodbye."""
        assert self.http.post("/v1/bridge/bye", json={"reason": "finished"}).status_code == 200

    def session(self, steps: Callable[[Client], Awaitable[None]], mode: str = "auto") -> None:
        """Run `steps` with the SDK's client, as this run."""
        asyncio.run(_session(self.server.url, self.http.headers["authorization"], steps, mode))

    def call(self, tool: str, arguments: dict[str, Any] | None = None, **headers: str) -> CallToolResult:
        """Call a tool; its result, which is no error of the protocol."""
        return result_of(self.raw(tool, ARGUMENTS[tool] if arguments is None else arguments, **headers))

    def raw(self, tool: str, arguments: Any, **headers: str) -> httpx.Response:
        """Call a tool by one POST."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post("/mcp", json=request("tools/call", name=tool, arguments=arguments), headers=named)


def request(method: str, **params: Any) -> dict[str, Any]:
    """A JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def result_of(answer: httpx.Response) -> CallToolResult:
    """The tool result in a raw answer."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert "mcp-session-id" not in answer.headers
    body = answer.json()
    assert body.keys() == {"jsonrpc", "id", "result"}, answer.text
    return CallToolResult.model_validate(body["result"], by_name=False)


def body_of(result: CallToolResult) -> dict[str, Any]:
    """What a tool answered; the text for models and the JSON for programs are the same."""
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert json.loads(content.text) == result.structured_content
    return result.structured_content


def ok(result: CallToolResult) -> dict[str, Any]:
    """The answer of a tool that did what it was asked."""
    body = body_of(result)
    assert not result.is_error, body
    return body


def refused(result: CallToolResult, code: str, path: str | None = None) -> dict[str, Any]:
    """A refusal with that code, and with the path where one is named: a sentence, and never a traceback."""
    body = body_of(result)
    assert result.is_error, body
    assert body["code"] == code, body
    assert len(json.dumps(body)) < 2_000
    assert "Traceback" not in json.dumps(body)
    if path is not None:
        assert [error["path"] for error in body["errors"]] == [path]
    return body


async def _session(url: str, authorization: str, steps: Callable[[Client], Awaitable[None]], mode: str) -> None:
    headers = {"authorization": authorization}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=REQUEST_S, verify=NO_TLS) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        await steps(client)
