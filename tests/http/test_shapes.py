"""What answers look like: keys, headers, codes, pages (http.md)."""

from __future__ import annotations

import re
import time
from typing import Any

import httpx
import pytest
from live_server import LiveServer, follow, open_room, post, until
from minutebook.domain.ids import short_id

TS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
CHAIN = re.compile(r"[0-9a-f]{64}")

ENVELOPE_KEYS = {"v", "id", "seq", "roomId", "actor", "type", "origin", "ts", "redactions", "payload"}
SNAPSHOT_KEYS = {
    *("id", "title", "phase", "owner", "driver", "driverEpoch", "dataClass", "retention", "sealed", "hold"),
    *("throughSeq", "logId", "chain", "members", "participants", "queue", "approvals", "you"),
}


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the rooms of these tests."""
    return server.member("alice")


@pytest.fixture
def room(alice: httpx.Client) -> str:
    """A new room."""
    return open_room(alice, title="Shapes")


def get(client: httpx.Client, url: str, **query: Any) -> Any:
    """The document of a read that must succeed."""
    answer = client.get(url, params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


def start_run(server: LiveServer, room: str, run: str, role: str = "tester") -> tuple[httpx.Client, dict[str, Any]]:
    """A run's client after its hello, and hello's answer."""
    client = server.client(f"agent:{run}", room=room, role=role)
    answer = client.post("/v1/bridge/hello")
    assert answer.status_code == 200, answer.text
    return client, answer.json()


def test_open(server: LiveServer, alice: httpx.Client) -> None:
    body = {
        "dataClass": "public",
        "title": "All there is",
        "retention": "7d",
        "members": [{"principal": "human:bob", "role": "collaborator", "approver": True}],
        "approvals": {"profile": "attended"},
        "repository": "forge.example/a/b",
    }
    answer = alice.post("/v1/rooms", json=body)
    assert answer.status_code == 201
    assert set(answer.json()) == {"id", "seq", "chain"}
    assert answer.json()["seq"] == 1
    assert re.fullmatch("[a-z2-7]{8}", answer.json()["id"])
    assert CHAIN.fullmatch(answer.json()["chain"])
    assert answer.headers["cache-control"] == "no-store"
    assert "idempotency-replayed" not in answer.headers
    snapshot = get(alice, f"/v1/rooms/{answer.json()['id']}")
    assert snapshot["dataClass"] == "public"
    assert snapshot["retention"] == "7d"
    assert snapshot["members"] == [
        {"principal": "human:alice", "role": "owner", "approver": False},
        {"principal": "human:bob", "role": "collaborator", "approver": True},
    ]
    assert snapshot["approvals"] == {
        "profile": "attended",
        "overrides": {},
        "ttl": "4h",
        "fourEyes": False,
        "pending": [],
    }


def test_commands_answer_seq_id_and_chain(alice: httpx.Client, room: str) -> None:
    said = alice.post(f"/v1/rooms/{room}/messages", json={"text": "one"})
    assert said.status_code == 201
    put = alice.put(f"/v1/rooms/{room}/members/human:bob", json={"role": "watcher"})
    gone = alice.delete(f"/v1/rooms/{room}/members/human:bob")
    closed = alice.post(f"/v1/rooms/{room}/close", json={"reason": "done"})
    assert [answer.status_code for answer in (put, gone, closed)] == [200, 200, 200]
    events = get(alice, f"/v1/rooms/{room}/events")["events"]
    for seq, answer in enumerate((said, put, gone, closed), 2):
        assert set(answer.json()) == {"seq", "id", "chain"}
        assert answer.json()["seq"] == seq
        assert answer.json()["id"] == events[seq - 1]["id"]
    assert get(alice, f"/v1/rooms/{room}")["chain"] == closed.json()["chain"]


def test_snapshot(server: LiveServer, alice: httpx.Client, room: str) -> None:
    snapshot = get(alice, f"/v1/rooms/{room}")
    assert set(snapshot) == SNAPSHOT_KEYS
    assert set(snapshot["you"]) == {"principal", "role", "approver", "isDriver", "can"}
    assert snapshot["you"] == {
        "principal": "human:alice",
        "role": "owner",
        "approver": False,
        "isDriver": True,
        "can": [
            *("read", "chat", "verdict", "queue", "unqueue", "steer", "interrupt", "promote", "start_run"),
            *("register_run", "end_run", "decide", "driver_request", "driver_give", "driver_take", "fork"),
            *("invite", "close", "hold", "export"),
        ],
    }
    assert snapshot["owner"] == snapshot["driver"] == "human:alice"
    assert (snapshot["phase"], snapshot["throughSeq"], snapshot["driverEpoch"]) == ("Open", 1, 1)
    run = short_id(7001)
    client, _ = start_run(server, room, run)
    active = get(alice, f"/v1/rooms/{room}")
    assert set(active) == SNAPSHOT_KEYS | {"run"}
    assert active["run"] == {"runId": run, "role": "tester", "state": "running"}
    assert active["phase"] == "Active"
    assert active["participants"] == ["human:alice", f"agent:{run}"]
    assert get(client, f"/v1/rooms/{room}")["you"]["role"] == "tester"
    assert client.post("/v1/bridge/bye", json={"reason": "finished"}).status_code == 200
    idle = get(alice, f"/v1/rooms/{room}")
    assert (idle["phase"], idle["participants"]) == ("Idle", ["human:alice"])
    alice.post(f"/v1/rooms/{room}/close")
    closed = get(alice, f"/v1/rooms/{room}")
    assert (closed["phase"], closed["sealed"]) == ("Closed", True)


def test_the_envelope_has_exactly_its_keys(server: LiveServer, alice: httpx.Client, room: str) -> None:
    post(alice, room, "hello")
    run = short_id(7002)
    client, _ = start_run(server, room, run)
    item: dict[str, Any] = {"stream": "events", "seq": 1, "type": "turn", "causedBy": 2}
    item["payload"] = {"runId": run, "turnId": "t1", "phase": "started"}
    assert client.post("/v1/bridge/events", json={"items": [item]}).status_code == 200
    post(client, room, "from the run")
    events = get(alice, f"/v1/rooms/{room}/events")["events"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    by_type = {event["type"]: event for event in events}
    opened, said, turn = events[0], events[1], by_type["turn"]
    assert set(opened) == set(said) == ENVELOPE_KEYS
    assert set(turn) == ENVELOPE_KEYS | {"runId", "causedBy"}
    assert said["actor"] == {"kind": "human", "id": "alice", "role": "owner"}
    assert (said["v"], said["origin"], said["roomId"], said["redactions"]) == (1, "client", room, [])
    assert said["payload"] == {"kind": "chat", "text": "hello", "to": [], "delivery": "none"}
    assert turn["actor"] == {"kind": "agent", "id": run, "role": "tester"}
    assert (turn["origin"], turn["runId"], turn["causedBy"]) == ("harness", run, 2)
    started = next(event for event in events if event["payload"].get("kind") == "run_phase")
    assert started["actor"] == {"kind": "system", "id": "minutebook"}
    assert (started["origin"], started["runId"]) == ("broker", run)
    for event in events:
        assert TS.fullmatch(event["ts"])
        assert ULID.fullmatch(event["id"])
    with follow(alice, room, tail=500) as stream:
        state = stream.until("state")[-1].json
        assert set(state) == SNAPSHOT_KEYS | {"run", "fromSeq"}
        assert stream.events(len(events)) == events


def test_what_a_client_sends_for_the_servers_fields_is_refused(alice: httpx.Client, room: str) -> None:
    for field in ("id", "seq", "actor", "ts", "origin", "roomId", "runId", "v"):
        answer = alice.post(f"/v1/rooms/{room}/messages", json={"text": "x", field: 1})
        assert answer.status_code == 422
        assert answer.json()["errors"] == [{"path": f"$.{field}", "message": "is not a field of this body"}]


def test_ranges(alice: httpx.Client, room: str) -> None:
    url = f"/v1/rooms/{room}/events"
    for number in range(2, 11):
        post(alice, room, f"number {number}")

    def seqs(**query: Any) -> list[int]:
        return [event["seq"] for event in get(alice, url, **query)["events"]]

    assert set(get(alice, url)) == {"events", "lastSeq", "logId"}
    assert get(alice, url)["lastSeq"] == 10
    assert seqs() == list(range(1, 11))
    assert seqs(afterSeq=3) == [4, 5, 6, 7, 8, 9, 10]
    assert seqs(afterSeq=3, limit=2) == [4, 5]
    assert seqs(beforeSeq=4) == [1, 2, 3]
    assert seqs(afterSeq=2, beforeSeq=5) == [3, 4]
    assert seqs(afterSeq=5, beforeSeq=5) == []
    assert seqs(beforeSeq=0) == []
    assert seqs(afterSeq=10) == seqs(afterSeq=11) == seqs(afterSeq=2**53) == []
    assert seqs(limit=1) == [1]
    assert seqs(limit=500) == list(range(1, 11))
    assert seqs(logId=get(alice, url)["logId"], afterSeq=9) == [10]
    other = alice.get(url, params={"logId": "another"})
    assert (other.status_code, other.json()["code"]) == (400, "invalid_cursor")
    bad_ones = ({"limit": 0}, {"limit": 501}, {"limit": "x"}, {"afterSeq": -1}, {"afterSeq": 2**64}, {"beforeSeq": "a"})
    for bad in (*bad_ones, {"type": "x" * 65}):
        answer = alice.get(url, params=bad)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), bad
        assert answer.json()["errors"][0]["path"] == next(iter(bad))


def test_a_filtered_range_says_where_to_go_on(alice: httpx.Client, room: str) -> None:
    url = f"/v1/rooms/{room}/events"
    for _ in range(3):
        alice.put(f"/v1/rooms/{room}/members/human:bob", json={"role": "watcher"})
        post(alice, room, "hello")
        alice.delete(f"/v1/rooms/{room}/members/human:bob")
    # 1 opened, then (participant, message, participant) three times.
    page = get(alice, url, type="message", limit=2)
    assert [event["seq"] for event in page["events"]] == [3, 6]
    assert page["nextAfterSeq"] == 6
    rest = get(alice, url, type="message", limit=2, afterSeq=page["nextAfterSeq"])
    assert [event["seq"] for event in rest["events"]] == [9]
    assert "nextAfterSeq" not in rest
    assert get(alice, url, type="no_such_type")["events"] == []


def test_min_seq_waits_and_times_out(alice: httpx.Client, room: str) -> None:
    seq = post(alice, room, "hello")["seq"]
    assert get(alice, f"/v1/rooms/{room}", minSeq=seq)["throughSeq"] == seq
    assert get(alice, f"/v1/rooms/{room}/events", minSeq=seq)["lastSeq"] == seq
    assert get(alice, f"/v1/rooms/{room}/transcript", minSeq=seq)["lines"][-1]["body"] == "hello"
    began = time.monotonic()
    late = alice.get(f"/v1/rooms/{room}", params={"minSeq": seq + 1})
    assert (late.status_code, late.json()["code"]) == (504, "timed_out")
    assert 4.5 < time.monotonic() - began < 8


def test_transcript(alice: httpx.Client, room: str) -> None:
    seq = [post(alice, room, f"line {number}")["seq"] for number in range(4)][-1]
    page = get(alice, f"/v1/rooms/{room}/transcript", minSeq=seq)
    assert set(page) == {"lines"}
    assert set(page["lines"][1]) == {"seq", "ts", "type", "actor", "heading", "body"}
    assert page["lines"][0]["heading"] == "room opened"
    assert [line["body"] for line in page["lines"][1:]] == [f"line {number}" for number in range(4)]
    assert page["lines"][1]["actor"] == "human:alice"
    first = get(alice, f"/v1/rooms/{room}/transcript", limit=2)
    assert first["nextAfterSeq"] == 2
    assert [line["seq"] for line in get(alice, f"/v1/rooms/{room}/transcript", afterSeq=2)["lines"]] == [3, 4, 5]


def test_list_pages_by_cursor(server: LiveServer) -> None:
    pat = server.member("pat", tenant="pages")
    rooms = sorted(open_room(pat, title=f"room {number}") for number in range(5))
    until(lambda: len(get(pat, "/v1/rooms")["rooms"]) == 5, what="the projection")
    whole = get(pat, "/v1/rooms")
    assert set(whole) == {"rooms"}
    assert [line["id"] for line in whole["rooms"]] == rooms
    assert set(whole["rooms"][0]) == {
        *("id", "title", "phase", "owner", "driver", "dataClass", "lastSeq", "role", "updatedAt"),
    }
    assert TS.fullmatch(whole["rooms"][0]["updatedAt"])
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = get(pat, "/v1/rooms", **query)
        seen += [line["id"] for line in page["rooms"]]
        if "nextCursor" not in page:
            break
        assert len(page["rooms"]) == 2
        query["cursor"] = page["nextCursor"]
    assert seen == rooms
    pat.post(f"/v1/rooms/{rooms[0]}/close")
    until(lambda: len(get(pat, "/v1/rooms", phase="Closed")["rooms"]) == 1, what="the projection")
    assert [line["id"] for line in get(pat, "/v1/rooms", phase="Open")["rooms"]] == rooms[1:]
    assert get(pat, "/v1/rooms", phase="Active")["rooms"] == []
    assert pat.get("/v1/rooms", params={"phase": "Ajar"}).status_code == 422
    assert pat.get("/v1/rooms", params={"limit": 201}).status_code == 422


def test_hello_push_and_bye(server: LiveServer, room: str) -> None:
    run = short_id(7003)
    client, hello = start_run(server, room, run)
    assert set(hello) == {"roomId", "lease", "afterHarnessSeq", "afterStatusSeq", "approvals", "seq", "chain"}
    assert (hello["roomId"], hello["afterHarnessSeq"], hello["afterStatusSeq"]) == (room, 0, 0)
    assert set(hello["approvals"]) == {"profile", "classes"}
    items: list[dict[str, Any]] = [
        {"stream": "events", "seq": 4, "type": "turn", "payload": {"runId": run, "turnId": "t", "phase": "started"}},
        {"stream": "status", "seq": 2, "type": "state_changed", "payload": {"kind": "harness_status", "words": "up"}},
    ]
    pushed = client.post("/v1/bridge/events", json={"items": items, "lease": hello["lease"]})
    assert pushed.status_code == 200
    assert pushed.json().items() >= {"afterHarnessSeq": 4, "afterStatusSeq": 2}.items()
    assert set(pushed.json()) == {"afterHarnessSeq", "afterStatusSeq", "seq", "chain"}
    before = get(client, f"/v1/rooms/{room}")["throughSeq"]
    again = client.post("/v1/bridge/events", json={"items": items})
    assert again.json() == pushed.json()
    assert get(client, f"/v1/rooms/{room}")["throughSeq"] == before
    assert client.post("/v1/bridge/events", json={"items": []}).json() == pushed.json()
    second = client.post("/v1/bridge/hello").json()
    assert (second["afterHarnessSeq"], second["afterStatusSeq"]) == (4, 2)
    for items_then in ([], items):
        stale = client.post("/v1/bridge/events", json={"items": items_then, "lease": hello["lease"]})
        assert (stale.status_code, stale.json()["code"]) == (409, "lease_lost")
    other = server.client(f"agent:{short_id(7004)}", room=room)
    busy = other.post("/v1/bridge/hello")
    assert (busy.status_code, busy.json()["code"]) == (409, "room_busy")
    bye = client.post("/v1/bridge/bye", json={"reason": "error"})
    assert bye.status_code == 200
    assert set(bye.json()) == {"seq", "id", "chain"}
    twice = client.post("/v1/bridge/bye")
    assert (twice.status_code, twice.json()["code"]) == (409, "already_ended")
    assert other.post("/v1/bridge/hello").status_code == 200


def test_the_heartbeat_renews_the_lease(server: LiveServer, room: str) -> None:
    client, _ = start_run(server, room, short_id(7005))
    query = (
        "SELECT l.seen_at FROM minutebook.leases l JOIN minutebook.streams s ON s.id = l.stream_id WHERE s.name = %s"
    )
    with server.sql() as connection:
        before = connection.execute(query, (f"room:{room}",)).fetchone()
        assert client.post("/v1/bridge/events", json={"items": []}).status_code == 200
        after = connection.execute(query, (f"room:{room}",)).fetchone()
    assert before is not None
    assert after is not None
    assert after[0] > before[0]


def test_probes_come_by_any_host_name_and_nothing_else_does(server: LiveServer) -> None:
    with httpx.Client(base_url=server.url, headers={"host": "10.1.2.3"}) as probe:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert probe.get(path).status_code == 200, path
        refused = probe.get("/v1/rooms")
    assert (refused.status_code, refused.json()["code"]) == (400, "malformed")
    assert "allowedHosts" in refused.json()["detail"]
