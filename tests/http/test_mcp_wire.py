"""POST /mcp as bytes on the wire: its guards, its messages, its versions (http.md; field faults B38, B42, B44, B45)."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from bad_input import JSON, head, nested
from bad_input import refused as refused_by_http
from live_server import LiveServer, open_room
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_steps import Run, ok, refused, request, result_of
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the room of these tests."""
    return server.member("alice")


@pytest.fixture(scope="module")
def room(alice: httpx.Client) -> str:
    """One room: what these tests send is refused, or is no tool call."""
    return open_room(alice)


@pytest.fixture(scope="module")
def run(server: LiveServer, room: str) -> Run:
    """Its running run."""
    return Run(server, room, "tester")


def test_only_post_is_taken(run: Run) -> None:
    for method in ("GET", "DELETE", "PUT", "PATCH", "HEAD"):
        answer = run.http.request(method, "/mcp", headers={"accept": "text/event-stream, application/json"})
        assert answer.status_code == 405, method
        assert answer.headers["allow"] == "OPTIONS, POST"
    assert run.http.options("/mcp").status_code == 204


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_nothing_is_said_without_a_token(server: LiveServer, run: Run, method: str) -> None:
    token = run.http.headers["authorization"].removeprefix("Bearer ")
    credentials: list[dict[str, str]] = [
        {},
        {"authorization": "Bearer nonsense"},
        {"authorization": f"Bearer {token[:-4]}AAAA"},
        {"authorization": f"Basic {token}"},
    ]
    for headers in credentials:
        answer = server.client().request(method, "/mcp", content=json.dumps(request("ping")), headers=JSON | headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_b38_no_token_in_the_url(run: Run) -> None:
    answer = run.http.post("/mcp?token=abc", json=request("ping"))
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


def test_an_old_token_is_none(server: LiveServer, run: Run) -> None:
    expired = server.client(f"agent:{run.id}", room=run.room, now=1_600_000_000)
    assert expired.post("/mcp", json=request("ping")).status_code == 401


def test_other_names_and_pages_are_kept_out(server: LiveServer, run: Run) -> None:
    """A page that reaches this server by a rebound name, or from another origin, gets nothing, whatever its token."""
    rebound = run.http.post("/mcp", json=request("ping"), headers={"host": "evil.example"})
    assert (rebound.status_code, rebound.json()["code"]) == (400, "malformed")
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{server.port + 1}", "http://[", ""):
        foreign = run.http.post("/mcp", json=request("ping"), headers={"origin": origin})
        assert (foreign.status_code, foreign.json()["code"]) == (403, "bad_origin"), origin
        assert foreign.headers["content-type"] == "application/problem+json"
    assert run.http.post("/mcp", json=request("ping"), headers={"origin": server.url}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        [],
        [request("ping"), request("ping")],
        [request("tools/call", name="room_post", arguments={"text": "in a batch"})],
        {},
        "ping",
        7,
        None,
        {**request("ping"), "jsonrpc": "1.0"},
        {**request("ping"), "jsonrpc": 2.0},
        {"id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}},
        {**request("ping"), "method": 7},
        {**request("ping"), "id": None},
        {**request("ping"), "id": True},
        {**request("ping"), "id": 1.5},
        {**request("ping"), "id": {"a": 1}},
        {**request("ping"), "id": "x" * 257},
        {**request("ping"), "id": 2**53 + 1},
        {**request("ping"), "params": []},
        {**request("ping"), "params": "x"},
    ],
    ids=lambda body: json.dumps(body)[:60],
)
def test_what_is_no_message_is_refused(alice: httpx.Client, run: Run, room: str, body: Any) -> None:
    before = head(alice, room)
    answer = run.http.post("/mcp", content=json.dumps(body), headers=JSON)
    assert answer.status_code == 400
    told = answer.json()
    assert told["jsonrpc"] == "2.0"
    assert told["id"] is None
    assert told["error"] == {
        "code": -32600,
        "message": "Send one JSON-RPC 2.0 request or notification; batches are not taken.",
    }
    assert head(alice, room) == before


CALL = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "room_post", "arguments": %s}}'


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed"),
        (b"{", 400, "malformed"),
        (b"\xff\xfe", 400, "malformed"),
        (CALL % '{"text": "\xff"}'.encode("latin-1").decode("latin-1"), 400, "malformed"),
        (CALL % '{"text": "a", "text": "b"}', 400, "malformed"),
        (CALL % f'{{"text": {nested(100, "array")}}}', 400, "malformed"),
        (CALL % f'{{"text": {nested(5000, "object")}}}', 400, "malformed"),
        (CALL % '{"text": 1e400}', 400, "malformed"),
        (CALL % '{"text": NaN}', 400, "malformed"),
        (CALL % '{"text": 18446744073709551616}', 400, "malformed"),
        (CALL % f'{{"text": "{"x" * 131_072}"}}', 413, "payload_too_large"),
    ],
    ids=[
        "empty",
        "cut",
        "utf16",
        "latin1",
        "twice",
        "b44-100",
        "b44-5000",
        "b45-inf",
        "b45-nan",
        "b45-2e64",
        "b-large",
    ],
)
def test_the_body_is_scanned_first(
    alice: httpx.Client, run: Run, room: str, body: bytes | str, status: int, code: str
) -> None:
    content = body if isinstance(body, bytes) else body.encode("latin-1")
    before = head(alice, room)
    refused_by_http(run.http.post("/mcp", content=content, headers=JSON), status, code)
    assert run.http.post("/mcp/", content=content, headers=JSON).status_code == status
    assert head(alice, room) == before


@pytest.mark.parametrize("text", ["\\u0000", "\\ud800", "a\\udfff", "\\udc00\\ud800"])
def test_b42_what_no_text_may_hold_is_refused_as_a_result(alice: httpx.Client, run: Run, room: str, text: str) -> None:
    """Laws 20, B42: the agent hears which argument it was; its turn goes on, and nothing is stored."""
    before = head(alice, room)

    def call(arguments: str) -> httpx.Response:
        return run.http.post("/mcp", content=CALL % arguments, headers=JSON)

    refused(result_of(call(f'{{"text": "x{text}"}}')), "invalid", "$.text")
    refused(result_of(call(f'{{"text": "x", "a{text}": 1}}')), "invalid", "$")
    refused(result_of(call(f'{{"text": ["y", "x{text}"]}}')), "invalid", "$.text[1]")
    named = CALL.replace("room_post", f"room_post{text}") % "{}"
    refused_by_http(run.http.post("/mcp", content=named, headers=JSON), 422, "invalid", "$.params.name")
    both = named.replace("{}}", f'{{"text": "{text}"}}}}')
    assert run.http.post("/mcp", content=both, headers=JSON).status_code == 422
    turned = f'{{"arguments": {{"text": "x{text}"}}, "name": "room_post{text}"}}'
    turned = json.dumps({**request("tools/call"), "params": "@"}).replace('"@"', turned)
    refused_by_http(run.http.post("/mcp", content=turned, headers=JSON), 422, "invalid", "$.params.name")
    method = json.dumps(request("ping", arguments={"text": "@"})).replace("@", text)
    refused_by_http(run.http.post("/mcp", content=method, headers=JSON), 422, "invalid", "$.params.arguments.text")
    listed = json.dumps([request("tools/call", name="room_post", arguments={"text": "@"})]).replace("@", text)
    assert run.http.post("/mcp", content=listed, headers=JSON).status_code == 422
    assert head(alice, room) == before


def test_b42_rights_come_before_the_words(server: LiveServer, alice: httpx.Client) -> None:
    ended = Run(server, open_room(alice))
    ended.end()
    answer = ended.http.post("/mcp", content=CALL % '{"text": "\\u0000"}', headers=JSON)
    refused(result_of(answer), "run_not_live")


def test_media_types(run: Run) -> None:
    body = json.dumps(request("ping"))
    for media in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonl",
        "multipart/form-data; boundary=x",
        "",
    ):
        answer = run.http.post("/mcp", content=body, headers={"content-type": media})
        refused_by_http(answer, 415, "unsupported_media_type")
    for media in ("application/json", "Application/JSON", "application/json; charset=utf-8"):
        assert run.http.post("/mcp", content=body, headers={"content-type": media}).status_code == 200
    for accept in ("application/json", "*/*", "application/json, text/event-stream", "text/event-stream;q=0.1, */*"):
        answer = run.http.post("/mcp", content=body, headers=JSON | {"accept": accept})
        assert answer.headers["content-type"] == "application/json"
    refused_by_http(run.http.post("/mcp", content=body, headers=JSON | {"accept": "text/html"}), 406, "not_acceptable")


def test_methods_and_notifications(run: Run) -> None:
    assert run.http.post("/mcp", json=request("ping")).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    named = run.http.post("/mcp", json={**request("ping"), "id": "a-1"}).json()
    assert named["id"] == "a-1"
    for method in ("resources/list", "prompts/list", "logging/setLevel", "completion/complete", "rooms/close", ""):
        error = run.http.post("/mcp", json=request(method)).json()["error"]
        assert error["code"] in (-32601, -32602), method
    for method in ("notifications/initialized", "notifications/cancelled", "notifications/nothing"):
        note = run.http.post("/mcp", json={"jsonrpc": "2.0", "method": method})
        assert (note.status_code, note.content) == (202, b"")
        assert note.headers["cache-control"] == "no-store"
    odd = run.http.post("/mcp", json=request("tools/call", name="room_post", arguments=[1])).json()
    assert odd["error"]["code"] == -32602
    assert run.http.post("/mcp", json=request("tools/call")).json()["error"]["code"] == -32602


def test_the_version_is_negotiated(run: Run) -> None:
    def initialize(version: str) -> dict[str, Any]:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answer = run.http.post("/mcp", json=request("initialize", **params))
        assert answer.status_code == 200
        assert "mcp-session-id" not in answer.headers
        return answer.json()["result"]

    for version in ("2025-03-26", "2025-06-18", LATEST_HANDSHAKE_VERSION):
        told = initialize(version)
        assert told["protocolVersion"] == version
        assert told["serverInfo"]["name"] == "minutebook"
        assert told["capabilities"] == {"tools": {"listChanged": False}}
        assert "data" in told["instructions"]
    assert initialize("1999-01-01")["protocolVersion"] == LATEST_HANDSHAKE_VERSION
    unknown = run.http.post("/mcp", json=request("tools/list"), headers={"mcp-protocol-version": "1999-01-01"})
    assert unknown.status_code == 400
    assert unknown.json()["error"]["code"] < 0
    session = run.http.post("/mcp", json=request("ping"), headers={"mcp-session-id": "somebody-else-s"})
    assert session.status_code == 200


@pytest.mark.parametrize(("mode", "version"), [("legacy", LATEST_HANDSHAKE_VERSION), ("auto", LATEST_MODERN_VERSION)])
def test_both_eras_of_the_sdk_s_client(server: LiveServer, alice: httpx.Client, mode: str, version: str) -> None:
    run = Run(server, open_room(alice))

    async def steps(client: Client) -> None:
        assert client.protocol_version == version
        ok(await client.call_tool("room_post", {"text": "hello"}))
        with pytest.raises(MCPError):
            await client.list_prompts()
        with pytest.raises(MCPError):
            await client.list_resources()

    run.session(steps, mode)


def test_a_person_s_session_cookie_opens_no_tools(server: LiveServer, alice: httpx.Client) -> None:
    with httpx.Client(base_url=server.url) as browser:
        assert browser.post("/v1/session", headers={"authorization": alice.headers["authorization"]}).status_code == 204
        answer = browser.post("/mcp", json=request("tools/list"), headers={"origin": server.url})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert browser.post("/mcp", json=request("tools/list")).json()["code"] == "bad_origin"
