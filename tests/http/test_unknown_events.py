"""Events that this version does not know, or cannot read: shown as stored, and only their room is held up (B79)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from append_helpers import append, event, item
from live_server import LiveServer, follow, open_room, post, until
from minutebook.domain.ids import short_id
from minutebook.infra.postgres.rebuild import rebuild
from minutebook.infra.postgres.views import PROJECTIONS

STORED = """
SELECT e.payload::text, e.type, encode(e.hash, 'hex')
FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id WHERE s.name = %s ORDER BY e.seq
"""

UNKNOWN: dict[str, dict[str, Any]] = {
    "an unknown type": {"t": "hologram", "p": {"shape": ["a", {"b": None}], "text": "ünï\n"}},
    "an unknown version": {"t": "message", "v": 99, "p": {"kind": "chat", "text": "from later", "mood": "fine"}},
    "an unknown kind": {"t": "state_changed", "p": {"kind": "weather", "phase": "closed"}},
}

BROKEN: dict[str, dict[str, Any]] = {
    "an additional field": {"t": "message", "p": {"kind": "chat", "text": "a", "to": [], "delivery": "none", "x": 1}},
    "a missing field": {"t": "message", "p": {"kind": "chat", "to": [], "delivery": "none"}},
    "a broken body": {"t": "message", "p": {"kind": "chat", "text": {"not": "text"}}},
    "no object": {"t": "message", "p": [1, 2]},
}


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the rooms of these tests."""
    return server.member("alice")


@pytest.fixture
def room(alice: httpx.Client) -> str:
    """A room with a collaborator."""
    return open_room(alice, members=[{"principal": "human:carl", "role": "collaborator"}])


def insert(server: LiveServer, room: str, fields: dict[str, Any], at: int = 1) -> None:
    """Append that event as the superuser, past every check of the application."""
    with server.sql() as connection:
        results = append(connection, item(at, event(fields["p"], **fields), stream=f"room:{room}"))
        assert [result.outcome for result in results] == ["appended"]


def stored(server: LiveServer, room: str) -> list[Any]:
    """What the log holds of the room."""
    with server.sql() as connection:
        return connection.execute(STORED, (f"room:{room}",)).fetchall()


def shown_everywhere(client: httpx.Client, room: str, seq: int, fields: dict[str, Any]) -> None:
    """The same raw entry on the range and on the stream."""
    page = client.get(f"/v1/rooms/{room}/events")
    assert page.status_code == 200, page.text
    entry = page.json()["events"][seq - 1]
    assert (entry["type"], entry["payload"]) == (fields["t"], fields["p"])
    with follow(client, room) as stream:
        assert stream.events(seq)[seq - 1] == entry
    export = client.get(f"/v1/rooms/{room}/export")
    assert export.status_code == 200


@pytest.mark.parametrize("fields", UNKNOWN.values(), ids=UNKNOWN)
def test_b79_an_unknown_event_is_opaque_and_holds_up_nothing(
    server: LiveServer, alice: httpx.Client, room: str, fields: dict[str, Any]
) -> None:
    insert(server, room, fields)
    before = stored(server, room)
    shown_everywhere(alice, room, 2, fields)
    assert post(alice, room, "life goes on")["seq"] == 3
    lines = alice.get(f"/v1/rooms/{room}/transcript", params={"minSeq": 3}).json()["lines"]
    assert [line["seq"] for line in lines] == [1, 2, 3]
    assert lines[1]["type"] == fields["t"]
    assert alice.get(f"/v1/rooms/{room}").json()["throughSeq"] == 3
    assert stored(server, room)[:2] == before


@pytest.mark.parametrize("fields", BROKEN.values(), ids=BROKEN)
def test_b79_a_broken_event_stops_only_its_room(
    server: LiveServer, alice: httpx.Client, room: str, fields: dict[str, Any]
) -> None:
    other = open_room(alice)
    insert(server, room, fields)
    before = stored(server, room)
    shown_everywhere(alice, room, 2, fields)
    assert alice.get(f"/v1/rooms/{room}").json()["throughSeq"] == 2
    # Projections park the room, and go on with others.
    with server.sql() as connection:
        parked = (
            "SELECT p.projection, p.seq FROM minutebook_views.parked p JOIN minutebook.streams s ON s.id = p.stream_id"
            " WHERE s.name = %s AND p.projection = ANY(%s) ORDER BY 1"
        )
        views = ["room_list", "transcript"]  # the outbox parks it as well where it looks at events of that type
        until(
            lambda: connection.execute(parked, (f"room:{room}", views)).fetchall() == [(view, 2) for view in views],
            what="the parking",
        )
    seq = post(alice, other, "not my fault")["seq"]
    assert alice.get(f"/v1/rooms/{other}/transcript", params={"minSeq": seq}).json()["lines"][-1]["body"]
    ready = server.client().get("/readyz")
    assert ready.status_code == 200
    # Commands on it say so, to those who may know of it.
    refused = alice.post(f"/v1/rooms/{room}/messages", json={"text": "x"}, headers={"idempotency-key": "k"})
    assert (refused.status_code, refused.json()["code"]) == (500, "internal")
    assert "minutebook doctor" in refused.json()["detail"]
    assert len(refused.json()["errorId"]) == 26
    assert stored(server, room) == before
    for stranger in (server.client("human:sam"), server.member("alice", tenant="elsewhere")):
        for answer in (stranger.get(f"/v1/rooms/{room}"), stranger.post(f"/v1/rooms/{room}/close")):
            assert answer.status_code == 404
    carl = server.client("human:carl")
    assert carl.get(f"/v1/rooms/{room}/events").status_code == 200
    # An open room is followed past it.
    with follow(carl, room, "1") as stream:
        assert [one["payload"] for one in stream.events(2)] == [fields["p"]]


def test_b79_what_may_have_taken_a_right_gives_none(server: LiveServer, alice: httpx.Client, room: str) -> None:
    """A broken removal might have been anybody's: who reads by membership alone reads no more."""
    carl = server.client("human:carl")
    assert carl.get(f"/v1/rooms/{room}").status_code == 200
    insert(server, room, {"t": "participant", "p": {"principal": "human:carl", "change": "left", "why": "new"}})
    assert carl.get(f"/v1/rooms/{room}").status_code == 404
    assert carl.post(f"/v1/rooms/{room}/messages", json={"text": "x"}).status_code == 404
    assert alice.get(f"/v1/rooms/{room}/events").status_code == 200
    admin = server.client("human:adam", "agents-admin")
    assert admin.post(f"/v1/rooms/{room}/close").status_code == 500


def test_b79_a_damaged_room_does_not_hold_up_its_bridge_s_neighbours(server: LiveServer, alice: httpx.Client) -> None:
    rooms = [open_room(alice) for _ in range(3)]
    insert(server, rooms[1], BROKEN["a missing field"])
    for place, room in enumerate(rooms):
        bridge = server.client(f"agent:{short_id(9300 + place)}", room=room)
        assert bridge.post("/v1/bridge/hello").status_code == (500 if place == 1 else 200)


def test_b79_a_rebuild_parks_the_room_too_and_leaves_the_bytes(
    server: LiveServer, alice: httpx.Client, room: str
) -> None:
    healthy = open_room(alice)
    seq = post(alice, healthy, "hello")["seq"]
    alice.get(f"/v1/rooms/{healthy}/transcript", params={"minSeq": seq})
    insert(server, room, BROKEN["a broken body"])
    before = stored(server, room)
    for projection in PROJECTIONS.values():
        report = rebuild(server.database_url("projector"), projection)
        assert report.is_swapped
        assert f"room:{room}" in report.parked
        assert f"room:{healthy}" not in report.parked
    lines = alice.get(f"/v1/rooms/{healthy}/transcript").json()["lines"]
    assert [line["seq"] for line in lines] == [1, 2]
    assert stored(server, room) == before
