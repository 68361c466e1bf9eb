"""A legal hold over HTTP: on an open room an event, on a closed one beside its log; retention waits either way."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from bridges import code
from live_server import LiveServer, open_room


@pytest.fixture
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the rooms."""
    return server.member("alice")


def is_held(client: httpx.Client, room: str) -> bool:
    """As the snapshot says it."""
    return client.get(f"/v1/rooms/{room}").json()["hold"]


def send(client: httpx.Client, room: str, what: str, reason: str = "lawsuit 7", key: str | None = None) -> Any:
    """Set or release it."""
    headers = {} if key is None else {"idempotency-key": key}
    return client.post(f"/v1/rooms/{room}/{what}", json={"reason": reason}, headers=headers)


def flag(server: LiveServer, room: str) -> tuple[bool, int]:
    """What retention goes by, and the length of the log."""
    with server.sql() as connection:
        row = connection.execute(
            "SELECT s.held, s.version FROM minutebook.streams s WHERE s.name = %s", (f"room:{room}",)
        ).fetchone()
    assert row is not None
    return row[0], row[1]


def test_an_open_room(server: LiveServer, alice: httpx.Client) -> None:
    room = open_room(alice)
    assert not is_held(alice, room)
    held = send(alice, room, "hold")
    assert (held.status_code, held.json()["seq"], flag(server, room)) == (200, 2, (True, 2))
    assert is_held(alice, room)
    released = send(alice, room, "release", "settled")
    assert (released.json()["seq"], flag(server, room)) == (3, (False, 3))
    again = send(alice, room, "release", "settled")
    assert (again.status_code, again.json()["seq"]) == (200, 3), "nothing to release"


def test_a_closed_room_whose_log_stays_as_it_is(server: LiveServer, alice: httpx.Client) -> None:
    room = open_room(alice)
    closed = alice.post(f"/v1/rooms/{room}/close").json()
    held = send(alice, room, "hold", "a Bearer ghp_" + "a1B2" * 9)
    assert (held.status_code, held.json()) == (200, {"seq": closed["seq"], "chain": closed["chain"]})
    assert flag(server, room) == (True, closed["seq"])
    assert is_held(alice, room)
    with server.sql() as connection:
        kept = connection.execute(
            "SELECT h.actor_id, h.reason FROM minutebook.holds h JOIN minutebook.streams s ON s.id = h.stream_id"
            " WHERE s.name = %s",
            (f"room:{room}",),
        ).fetchall()
    assert [row[0] for row in kept] == ["alice"]
    assert "ghp_" not in kept[0][1], "secrets are taken out here, too"
    assert send(server.member("adam", ttl_s=60), room, "release").status_code == 403
    admin = server.client("human:adam", "agents-admin")
    assert send(admin, room, "release", "settled").status_code == 200
    assert (flag(server, room)[0], is_held(alice, room)) == (False, False)


def test_a_hold_under_one_key_is_one_hold(server: LiveServer, alice: httpx.Client) -> None:
    room = open_room(alice)
    before = send(alice, room, "hold", key="k1")
    alice.post(f"/v1/rooms/{room}/close")
    assert send(alice, room, "hold", key="k1").json() == before.json(), "a replay of what came before the close"
    first = send(alice, room, "hold", "one more", key="k2")
    again = send(alice, room, "hold", "one more", key="k2")
    assert (again.status_code, again.json(), again.headers["idempotency-replayed"]) == (200, first.json(), "true")
    assert code(send(alice, room, "hold", "another", key="k2")) == (422, "idempotency_key_reused")
    with server.sql() as connection:
        count = connection.execute(
            "SELECT count(*) FROM minutebook.holds h JOIN minutebook.streams s ON s.id = h.stream_id WHERE s.name = %s",
            (f"room:{room}",),
        ).fetchone()
    assert count == (1,)


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "ü" * 129}, {"reason": 1}, {"why": "x"}])
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_reasons_that_cannot_be_given(alice: httpx.Client, body: dict[str, Any], *, closed: bool) -> None:
    room = open_room(alice)
    if closed:
        alice.post(f"/v1/rooms/{room}/close")
    assert code(alice.post(f"/v1/rooms/{room}/hold", json=body)) == (422, "invalid")
    assert not is_held(alice, room)
