"""One key, one effect: retries, races, other requests under the same key (rules.md law 3, field fault B48)."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import LiveServer, open_room, post, until

KEY = "idempotency-key"


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the rooms of these tests."""
    return server.member("alice")


@pytest.fixture
def room(alice: httpx.Client) -> str:
    """A new room."""
    return open_room(alice)


def head(client: httpx.Client, room: str) -> int:
    """The room's last seq."""
    return client.get(f"/v1/rooms/{room}").json()["throughSeq"]


def is_replay(answer: httpx.Response) -> bool:
    return answer.headers.get("idempotency-replayed") == "true"


COMMANDS: list[tuple[str, str, Any, int]] = [
    ("POST", "/v1/rooms", {"dataClass": "internal", "title": "Once"}, 201),
    ("POST", "/v1/rooms/{room}/messages", {"text": "once"}, 201),
    ("PUT", "/v1/rooms/{room}/members/human:bob", {"role": "watcher"}, 200),
    ("PUT", "/v1/rooms/{room}/members/human:alice", {"role": "owner"}, 200),
    ("DELETE", "/v1/rooms/{room}/members/human:bob", None, 200),
    ("DELETE", "/v1/rooms/{room}/members/human:nobody", None, 200),
    ("POST", "/v1/rooms/{room}/close", {"reason": "over"}, 200),
]
"""Every keyed command, those that change nothing too."""


@pytest.mark.parametrize(("method", "path", "body", "status"), COMMANDS)
def test_b48_same_key_and_body_is_one_effect_and_the_first_answer(
    alice: httpx.Client, room: str, method: str, path: str, body: Any, status: int
) -> None:
    if method == "DELETE":
        alice.put(f"/v1/rooms/{room}/members/human:bob", json={"role": "watcher"})
    url, headers = path.format(room=room), {KEY: f"again-{method}-{room}"}
    first = alice.request(method, url, json=body, headers=headers)
    assert first.status_code == status, first.text
    assert not is_replay(first)
    after = head(alice, room)
    for _ in range(2):
        again = alice.request(method, url, json=body, headers=headers)
        assert (again.status_code, again.json()) == (status, first.json())
        assert is_replay(again)
    assert head(alice, room) == after


def test_b48_twenty_at_once_are_one(alice: httpx.Client, room: str, server: LiveServer) -> None:
    clients = [server.member("alice") for _ in range(20)]
    headers = {KEY: f"race-{room}"}

    def say(client: httpx.Client) -> httpx.Response:
        return client.post(f"/v1/rooms/{room}/messages", json={"text": "me first"}, headers=headers)

    def begin(client: httpx.Client) -> httpx.Response:
        return client.post("/v1/rooms", json={"dataClass": "public"}, headers=headers)

    with ThreadPoolExecutor(20) as pool:
        said, begun = list(pool.map(say, clients)), list(pool.map(begin, clients))
    for answers in (said, begun):
        assert [answer.status_code for answer in answers] == [201] * 20
        assert len({answer.text for answer in answers}) == 1
        assert sum(not is_replay(answer) for answer in answers) == 1
    assert head(alice, room) == 2
    assert head(alice, begun[0].json()["id"]) == 1


def test_b48_another_body_is_refused(alice: httpx.Client, room: str) -> None:
    headers = {KEY: f"other-{room}"}
    post(alice, room, "first", **headers)
    for body in ({"text": "second"}, {"text": "first", "to": ["human:bob"]}, {"text": "first", "causedBy": 1}):
        answer = alice.post(f"/v1/rooms/{room}/messages", json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused"), body
    assert head(alice, room) == 2


def test_b48_a_difference_deep_inside_is_a_difference(alice: httpx.Client) -> None:
    headers = {KEY: "deep-1"}

    def opened(value: int) -> httpx.Response:
        effect = ["allow", "deny", "human"][value]
        body = {"dataClass": "internal", "approvals": {"overrides": {"forge.pr": "allow", "forge.push": effect}}}
        return alice.post("/v1/rooms", json=body, headers=headers)

    assert opened(1).status_code == 201
    assert opened(2).json()["code"] == "idempotency_key_reused"
    assert is_replay(opened(1))


def test_b48_member_order_and_spacing_make_no_difference(alice: httpx.Client) -> None:
    one = '{"ttl":"1h","overrides":{"forge.pr":"deny","mcp.write":"deny"}}'
    other = '{ "overrides" : {"mcp.write":"deny", "forge.pr":"deny"}, "ttl":"1h"}'
    texts = (
        f'{{"dataClass":"internal","title":"T","approvals":{one}}}',
        f'{{ "approvals" : {other},\n "title":"\\u0054", "dataClass":"internal" }}',
        f'{{"title":"T","dataClass":"internal","retention":"90d","approvals":{other}}}',
    )
    headers = {KEY: "order-1", "content-type": "application/json"}
    answers = [alice.post("/v1/rooms", content=text, headers=headers) for text in texts]
    assert [answer.status_code for answer in answers] == [201] * 3
    assert [is_replay(answer) for answer in answers] == [False, True, True]
    assert len({answer.text for answer in answers}) == 1


def test_b48_another_user_room_or_endpoint_is_independent(server: LiveServer, alice: httpx.Client, room: str) -> None:
    headers = {KEY: f"shared-{room}"}
    alice.put(f"/v1/rooms/{room}/members/human:bob", json={"role": "collaborator"})
    bob, other_room = server.client("human:bob"), open_room(alice)
    answers = [
        alice.post(f"/v1/rooms/{room}/messages", json={"text": "mine"}, headers=headers),
        bob.post(f"/v1/rooms/{room}/messages", json={"text": "his"}, headers=headers),
        alice.post(f"/v1/rooms/{other_room}/messages", json={"text": "there"}, headers=headers),
        alice.put(f"/v1/rooms/{room}/members/human:carl", json={"role": "watcher"}, headers=headers),
        alice.delete(f"/v1/rooms/{room}/members/human:carl", headers=headers),
        server.member("alice", tenant="elsewhere").post("/v1/rooms", json={"dataClass": "public"}, headers=headers),
        alice.post("/v1/rooms", json={"dataClass": "public"}, headers=headers),
    ]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 200, 200, 201, 201]
    assert not any(is_replay(answer) for answer in answers)
    carl = alice.put(f"/v1/rooms/{room}/members/human:dora", json={"role": "watcher"}, headers=headers)
    assert carl.json()["code"] == "idempotency_key_reused"


def test_b48_a_refused_command_burns_no_key(alice: httpx.Client, room: str) -> None:
    headers = {KEY: f"refused-{room}"}
    url = f"/v1/rooms/{room}/messages"
    assert alice.post(url, json={"text": ""}, headers=headers).status_code == 422
    assert alice.post(url, json={"text": "x" * 16_385}, headers=headers).status_code == 413
    assert alice.post(url, json={"text": "x", "causedBy": 99}, headers=headers).status_code == 422
    good = alice.post(url, json={"text": "corrected"}, headers=headers)
    assert (good.status_code, is_replay(good)) == (201, False)


@pytest.mark.parametrize("key", ["", "k" * 256, "k" * 7_000, "with space", "a\tb", "\xe9", "k\x7f"])
def test_b48_keys_outside_the_published_limits(alice: httpx.Client, room: str, key: str) -> None:
    headers = [(KEY.encode(), key.encode("latin-1")), (b"content-type", b"application/json")]
    answer = alice.post(f"/v1/rooms/{room}/messages", content=b'{"text": "x"}', headers=headers)
    assert answer.status_code == 400
    if key != "k\x7f":  # which the HTTP parser refuses by itself
        assert answer.json()["code"] == "malformed"
    assert head(alice, room) == 1


@pytest.mark.parametrize("key", ["k", "!~", "k" * 255])
def test_b48_keys_at_the_published_limits(alice: httpx.Client, room: str, key: str) -> None:
    url, headers = f"/v1/rooms/{room}/messages", {KEY: key}
    assert alice.post(url, json={"text": "x"}, headers=headers).status_code == 201
    assert is_replay(alice.post(url, json={"text": "x"}, headers=headers))


def test_b48_a_replay_after_the_caller_lost_access_shows_nothing(
    server: LiveServer, alice: httpx.Client, room: str
) -> None:
    bob, headers = server.client("human:bob"), {KEY: "lost"}
    alice.put(f"/v1/rooms/{room}/members/human:bob", json={"role": "collaborator"})
    url = f"/v1/rooms/{room}/messages"
    assert bob.post(url, json={"text": "still here"}, headers=headers).status_code == 201
    alice.put(f"/v1/rooms/{room}/members/human:bob", json={"role": "watcher"})
    demoted = bob.post(url, json={"text": "still here"}, headers=headers)
    assert (demoted.status_code, is_replay(demoted)) == (403, False)
    alice.delete(f"/v1/rooms/{room}/members/human:bob")
    removed = bob.post(url, json={"text": "still here"}, headers=headers)
    never = bob.post("/v1/rooms/aaaaaaaa/messages", json={"text": "still here"}, headers=headers)
    assert removed.status_code == never.status_code == 404
    assert removed.json() | {"instance": ""} == never.json() | {"instance": ""}


def test_b48_a_replay_after_the_room_closed_is_the_first_answer(alice: httpx.Client, room: str) -> None:
    said, closing = {KEY: "said"}, {KEY: "closing"}
    first = post(alice, room, "before", **said)
    closed = alice.post(f"/v1/rooms/{room}/close", headers=closing)
    again = alice.post(f"/v1/rooms/{room}/messages", json={"text": "before"}, headers=said)
    assert (again.status_code, again.json(), is_replay(again)) == (201, first, True)
    assert alice.post(f"/v1/rooms/{room}/close", headers=closing).json() == closed.json()
    new = alice.post(f"/v1/rooms/{room}/messages", json={"text": "after"}, headers={KEY: "new"})
    assert new.status_code == 410
    other = alice.post(f"/v1/rooms/{room}/messages", json={"text": "after"}, headers=said)
    assert other.json()["code"] == "idempotency_key_reused"


def test_b48_the_stored_answers_hold_no_words(server: LiveServer, alice: httpx.Client, room: str) -> None:
    post(alice, room, "a rather unmistakable sentence", **{KEY: "words"})
    with server.sql() as connection:
        rows = connection.execute(
            "SELECT k::text FROM minutebook.idempotency k WHERE k.scope = %s", (f"room:{room}",)
        ).fetchall()
    assert len(rows) == 1
    assert "unmistakable" not in rows[0][0]


@contextlib.contextmanager
def deaf_client(server: LiveServer, request: bytes) -> Generator[None]:
    """A client that sends its request and takes no byte of the answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
        sock.sendall(request)
        yield


def test_b48_kill_between_append_and_answer(own_data_dir: Path) -> None:
    """The answer of the first try is lost with the server, or with the client; the retry gets it all the same."""
    with LiveServer(own_data_dir) as server:
        alice = server.member("alice")
        room = open_room(alice)
        token = alice.headers["authorization"]
        url, headers = f"/v1/rooms/{room}/messages", {KEY: "killed"}
        body = b'{"text":"was I heard?"}'
        request = (
            f"POST {url} HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\ncontent-type: application/json\r\n"
            f"{KEY}: killed\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode() + body
        with server.sql() as lock, server.sql() as look:
            stored = "SELECT count(*) FROM minutebook.events e WHERE e.payload ->> 'text' = 'was I heard?'"
            # The append holds in its commit until the lock goes; then the server dies at the moment it is there.
            lock.autocommit = False
            lock.execute("SELECT FROM minutebook.streams WHERE name = %s FOR UPDATE", (f"room:{room}",))
            with deaf_client(server, request):
                until(lambda: _waits(look), what="the append")
                watcher = threading.Thread(target=_kill_once_stored, args=(server, look, stored))
                watcher.start()
                lock.rollback()
                watcher.join(30)
            assert look.execute(stored).fetchone() == (1,)
        server.start()
        again = server.member("alice").post(url, json={"text": "was I heard?"}, headers=headers)
        assert (again.status_code, is_replay(again)) == (201, True)
        assert again.json()["seq"] == 2
        assert head(server.member("alice"), room) == 2
        assert server.member("alice").get(f"/v1/rooms/{room}/events").json()["events"][1]["id"] == again.json()["id"]


def _waits(connection: Any) -> bool:
    row = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'minutebook app' AND wait_event_type = 'Lock'"
    ).fetchone()
    return row[0] > 0


def _kill_once_stored(server: LiveServer, connection: Any, stored: str) -> None:
    until(lambda: connection.execute(stored).fetchone()[0] > 0, what="the event")
    server.kill()
