"""Browsers: the session cookie and requests from other origins (http.md, SSE; settings)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from live_server import LiveServer, follow, open_room, post

LISTED = "https://app.example"


@pytest.fixture(scope="module")
def browsers(new_data_dir: Callable[[], Path]) -> Iterator[LiveServer]:
    """A server that lists an origin."""
    config = f'[server]\nallowedOrigins = ["{LISTED}"]\nallowCredentials = true\n'
    with LiveServer(new_data_dir(), config=config) as running:
        yield running


def with_cookie(server: LiveServer, signed_in: httpx.Client) -> httpx.Client:
    """A client that has nothing but the cookie of a session."""
    begun = signed_in.post("/v1/session")
    assert begun.status_code == 204
    browser = server.client()
    browser.headers["cookie"] = begun.headers.get_list("set-cookie")[0].partition(";")[0]
    return browser


def test_the_cookie_dies_with_the_token_and_scripts_cannot_read_it(browsers: LiveServer) -> None:
    answer = browsers.member("alice", ttl_s=600).post("/v1/session")
    values = answer.headers.get_list("set-cookie")
    assert [value.partition("=")[0] for value in values] == ["__Host-minutebook", "minutebook-session"]
    for value in values:
        attributes = {part.strip() for part in value.split(";")[1:]}
        age = next(part for part in attributes if part.startswith("Max-Age="))
        assert attributes == {age, "HttpOnly", "Path=/", "SameSite=Strict"}
        assert 590 < int(age.removeprefix("Max-Age=")) <= 630
    assert answer.headers["cache-control"] == "no-store"


def test_the_cookie_reads_and_follows(browsers: LiveServer) -> None:
    alice = browsers.member("alice")
    room = open_room(alice)
    browser = with_cookie(browsers, alice)
    assert browser.get(f"/v1/rooms/{room}").json()["you"]["principal"] == "human:alice"
    with follow(browser, room) as stream:
        stream.until("state")
        post(alice, room, "hello")
        assert [event["seq"] for event in stream.events(2)] == [1, 2]


@pytest.mark.parametrize(
    ("origin", "is_fine"),
    [
        (None, False),
        ("null", False),
        ("https://evil.example", False),
        ("http://localhost", False),
        (f"{LISTED}.evil.example", False),
        ("http://[", False),
        ("own", True),
        (LISTED, True),
    ],
)
def test_the_cookie_changes_things_from_here_and_listed_origins_only(
    browsers: LiveServer, origin: str | None, is_fine: bool
) -> None:
    browser = with_cookie(browsers, browsers.member("alice"))
    headers = {} if origin is None else {"origin": browsers.url if origin == "own" else origin}
    answer = browser.post("/v1/rooms", json={"dataClass": "internal"}, headers=headers)
    if is_fine:
        assert answer.status_code == 201, answer.text
    else:
        assert (answer.status_code, answer.json()["code"]) == (403, "bad_origin")


def test_a_bearer_token_needs_no_origin(browsers: LiveServer) -> None:
    alice = browsers.member("alice")
    answer = alice.post("/v1/rooms", json={"dataClass": "internal"}, headers={"origin": "https://evil.example"})
    assert answer.status_code == 201
    assert "access-control-allow-origin" not in answer.headers


def test_a_session_begins_with_a_bearer_token_only_and_ends_by_delete(browsers: LiveServer) -> None:
    browser = with_cookie(browsers, browsers.member("alice"))
    again = browser.post("/v1/session", headers={"origin": browsers.url})
    assert (again.status_code, again.json()["code"]) == (401, "unauthenticated")
    ended = browser.delete("/v1/session", headers={"origin": browsers.url})
    assert ended.status_code == 204
    assert all("Max-Age=0" in value for value in ended.headers.get_list("set-cookie"))


@pytest.mark.parametrize("cookie", ["__Host-minutebook=", "__Host-minutebook=x.y.z", "other=x", "=;;=", "minutebook=x"])
def test_a_cookie_that_is_no_token_is_a_401(browsers: LiveServer, cookie: str) -> None:
    answer = browsers.client().get("/v1/rooms", headers={"cookie": cookie})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


def test_a_bad_header_is_not_saved_by_a_good_cookie(browsers: LiveServer) -> None:
    browser = with_cookie(browsers, browsers.member("alice"))
    assert browser.get("/v1/rooms", headers={"authorization": "Bearer x.y.z"}).status_code == 401


def test_listed_origins_may_ask_and_read(browsers: LiveServer) -> None:
    ask = {"access-control-request-method": "POST", "access-control-request-headers": "idempotency-key"}
    allowed = browsers.client().options("/v1/rooms", headers={"origin": LISTED, **ask})
    assert allowed.status_code == 204
    assert allowed.headers["access-control-allow-origin"] == LISTED
    assert allowed.headers["access-control-allow-credentials"] == "true"
    assert "POST" in allowed.headers["access-control-allow-methods"]
    for name in ("authorization", "idempotency-key", "last-event-id", "content-type"):
        assert name in allowed.headers["access-control-allow-headers"]
    refused = browsers.client().options("/v1/rooms", headers={"origin": "https://evil.example", **ask})
    assert (refused.status_code, refused.json()["code"]) == (403, "bad_origin")
    assert "access-control-allow-origin" not in refused.headers
    for client in (browsers.member("alice"), browsers.client()):
        answer = client.get("/v1/rooms", headers={"origin": LISTED})
        assert answer.headers["access-control-allow-origin"] == LISTED
        assert answer.headers["vary"] == "origin"
        other = client.get("/v1/rooms", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        assert other.headers["vary"] == "origin"


def test_without_listed_origins_there_is_no_cors(server: LiveServer) -> None:
    answer = server.member("alice").get("/v1/rooms", headers={"origin": LISTED})
    assert not [name for name in answer.headers if name.startswith("access-control")]
