"""One decision per entry and viewer, the same through every read path (rules.md, laws 12 and 13)."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from live_server import LiveServer, follow, open_room, post
from minutebook.domain.ids import short_id


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the rooms of these tests."""
    return server.member("alice")


@pytest.fixture
def room(alice: httpx.Client) -> str:
    """A new room."""
    return open_room(alice)


SECRET = "the combination is 4711"


@pytest.fixture(scope="module")
def vault_room(server: LiveServer, alice: httpx.Client) -> str:
    """A room whose run called a tool of class `secret`, one in the middle of other entries."""
    room = open_room(alice)
    bridge = server.client(f"agent:{short_id(9204)}", room=room)
    bridge.post("/v1/bridge/hello")
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("tool_call", {"callId": "c1", "tool": "shell", "args": {}, "decidedBy": None}),
        ("tool_call", {"callId": "c2", "tool": "vault", "args": {"q": SECRET}, "decidedBy": None}),
        ("tool_result", {"callId": "c2", "status": "ok", "output": SECRET, "truncated": False, "bytes": 1}),
        ("tool_result", {"callId": "c1", "status": "ok", "output": "fine", "truncated": False, "bytes": 4}),
        # A result whose call nobody knows may be of any tool.
        ("tool_result", {"callId": "c2", "status": "ok", "output": SECRET, "truncated": False, "bytes": 1}),
        ("tool_call", {"callId": "c3", "tool": "vault", "args": "x" * 66_000, "decidedBy": None}),
        ("tool_result", {"callId": "c3", "status": "ok", "output": SECRET, "truncated": False, "bytes": 1}),
    ]
    items = [
        {"stream": "events", "seq": seq, "type": type_, "payload": payload}
        for seq, (type_, payload) in enumerate(payloads, 1)
    ]
    assert bridge.post("/v1/bridge/events", json={"items": items}).status_code == 200
    post(alice, room, "afterwards")
    return room


def test_law_12_one_placeholder_on_every_read_path(server: LiveServer, alice: httpx.Client, vault_room: str) -> None:
    room = vault_room
    last = alice.get(f"/v1/rooms/{room}").json()["throughSeq"]
    cleared = server.client("human:cleo", "agents-member", "sec")
    full = cleared.get(f"/v1/rooms/{room}/events").json()["events"]
    assert SECRET in json.dumps(full)
    with follow(alice, room) as stream, follow(cleared, room) as open_stream:
        state = stream.until("state")[-1]
        streamed = stream.events(last)
        assert open_stream.events(last) == full
    page = alice.get(f"/v1/rooms/{room}/events")
    transcript = alice.get(f"/v1/rooms/{room}/transcript", params={"minSeq": last})
    snapshot = alice.get(f"/v1/rooms/{room}")
    for text in (page.text, transcript.text, snapshot.text, json.dumps(streamed), state.data):
        assert SECRET not in text
        assert "vault" not in text
    assert streamed == page.json()["events"]
    hidden = [event for event in streamed if event["type"] == "restricted"]
    assert [event["seq"] for event in hidden] == [5, 6, 8, 9, 10]
    for event in hidden:
        assert set(event) == {"v", "id", "seq", "roomId", "ts", "type", "payload"}
        assert event["payload"] == {}
        assert (event["id"], event["ts"]) == (full[event["seq"] - 1]["id"], full[event["seq"] - 1]["ts"])
    lines = transcript.json()["lines"]
    assert [line["seq"] for line in lines if line["type"] == "restricted"] == [5, 6, 8, 9, 10]
    assert all(set(line) == {"seq", "ts", "type"} for line in lines if line["type"] == "restricted")
    assert [line["type"] for line in lines] == [event["type"] for event in streamed]


def test_law_13_a_filter_sees_what_its_viewer_sees(server: LiveServer, alice: httpx.Client, vault_room: str) -> None:
    url = f"/v1/rooms/{vault_room}/events"
    results = alice.get(url, params={"type": "tool_result"}).json()
    assert [event["seq"] for event in results["events"]] == [7]
    restricted = alice.get(url, params={"type": "restricted", "limit": 2}).json()
    assert [event["seq"] for event in restricted["events"]] == [5, 6]
    assert restricted["nextAfterSeq"] == 6
    cleared = server.client("human:cleo", "agents-member", "sec")
    assert cleared.get(url, params={"type": "restricted"}).json()["events"] == []
    assert len(cleared.get(url, params={"type": "tool_result"}).json()["events"]) == 4
