"""Problems, methods, hosts, health: what every route has in common (http.md)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from live_server import LiveServer, open_room


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the rooms of these tests."""
    return server.member("alice")


@pytest.fixture
def room(alice: httpx.Client) -> str:
    """A new room."""
    return open_room(alice, title="Shapes")


PROBLEM_KEYS = {"type", "title", "status", "code", "detail", "instance"}


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "code", "extra"),
    [
        ("GET", "/v1/nothing", {}, 404, "not_found", set()),
        ("GET", "/v1/rooms/aaaaaaaa", {}, 404, "not_found", set()),
        ("PATCH", "/v1/rooms", {}, 405, "method_not_allowed", set()),
        ("GET", "/v1/rooms", {"headers": {"accept": "text/html"}}, 406, "not_acceptable", set()),
        ("POST", "/v1/rooms", {"content": b"x" * 131_073}, 413, "payload_too_large", set()),
        ("POST", "/v1/rooms", {"content": b"a=1"}, 415, "unsupported_media_type", set()),
        ("POST", "/v1/rooms", {"json": {}}, 422, "invalid", {"errors"}),
        ("GET", "/v1/rooms?cursor=!", {}, 400, "invalid_cursor", set()),
    ],
)  # fmt: skip
def test_problems_have_all_their_fields(
    alice: httpx.Client, method: str, path: str, options: Any, status: int, code: str, extra: set[str]
) -> None:
    answer = alice.request(method, path, **options)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    problem = answer.json()
    assert set(problem) == PROBLEM_KEYS | extra
    assert problem["type"] == f"urn:minutebook:problem:{code}"
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["instance"] == path.partition("?")[0]
    assert problem["title"]
    assert problem["detail"].endswith(".") or "errors" in problem
    if status == 405:
        assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"


def test_conflicts_and_seals(alice: httpx.Client, room: str) -> None:
    leave = alice.delete(f"/v1/rooms/{room}/members/human:alice")
    assert (leave.status_code, leave.json()["code"]) == (409, "holds_driver")
    assert set(leave.json()) == PROBLEM_KEYS
    last = alice.put(f"/v1/rooms/{room}/members/human:alice", json={"role": "collaborator"})
    assert (last.status_code, last.json()["code"]) == (409, "conflict")
    for number in range(19):
        assert (
            alice.put(f"/v1/rooms/{room}/members/human:n{number}", json={"role": "watcher"}).status_code == 200
        )  # fmt: skip
    full = alice.put(f"/v1/rooms/{room}/members/human:one-more", json={"role": "watcher"})
    assert (full.status_code, full.json()["code"]) == (409, "full")
    alice.post(f"/v1/rooms/{room}/close")
    sealed = alice.post(f"/v1/rooms/{room}/messages", json={"text": "x"})
    assert (sealed.status_code, sealed.json()["code"]) == (410, "sealed")
    assert set(sealed.json()) == PROBLEM_KEYS


def test_head_is_get_without_the_body(alice: httpx.Client, room: str) -> None:
    for path in (f"/v1/rooms/{room}", f"/v1/rooms/{room}/events", "/v1/rooms", "/healthz", "/v1/openapi.json"):
        got, head = alice.get(path), alice.head(path)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers["content-length"] == got.headers["content-length"]
        assert head.headers["content-type"] == got.headers["content-type"]
    for path, kind in ((f"/v1/rooms/{room}/stream", "text/event-stream"), (f"/v1/rooms/{room}/export", "ndjson")):
        head = alice.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert kind in head.headers["content-type"]
    assert alice.head("/v1/rooms/aaaaaaaa").status_code == 404


def test_options_says_what_a_path_takes(server: LiveServer, alice: httpx.Client, room: str) -> None:
    for path, methods in (
        ("/v1/rooms", "GET, HEAD, OPTIONS, POST"),
        (f"/v1/rooms/{room}", "GET, HEAD, OPTIONS"),
        (f"/v1/rooms/{room}/members/human:a%2Fb", "DELETE, OPTIONS, PUT"),
        ("/v1/bridge/hello", "OPTIONS, POST"),
    ):
        answer = alice.options(path)
        assert (answer.status_code, answer.headers["allow"], answer.content) == (204, methods, b"")
    assert alice.options("/v1/nothing").status_code == 404
    assert server.client().options("/v1/rooms").status_code == 401


def test_health(server: LiveServer) -> None:
    anybody = server.client()
    assert anybody.get("/healthz").json() == {"status": "ok"}
    ready = anybody.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["ready"] is True
    assert {check["name"] for check in ready.json()["checks"]} == {"database", "migrations", "projections"}
    metrics = anybody.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=")
    assert metrics.headers["content-type"].count("charset") == 1
    assert "minutebook_streams " in metrics.text


def test_an_answer_leaves_at_once(server: LiveServer) -> None:
    """With Nagle's algorithm on, the body waits 40 ms for the acknowledgement of the headers."""
    anybody = server.client()
    # The first ones on a connection are acknowledged at once, whatever the server does.
    took_s = sorted([anybody.get("/healthz").elapsed.total_seconds() for _ in range(60)][20:])
    assert took_s[10] < 0.03


def test_only_the_allowed_hosts_are_served(server: LiveServer, alice: httpx.Client) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[::1]:80", "localhost:80:80"):
        answer = alice.get("/v1/rooms", headers={"host": host})
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed"), host
    for host in ("localhost", "LOCALHOST:1", f"127.0.0.1:{server.port}"):
        assert alice.get("/v1/rooms", headers={"host": host}).status_code == 200, host
