"""Forks over HTTP: copies as the source has them, a room of the forker's own, a first run (rooms.md, Fork; SC-7)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from bridges import Bridge, code, item
from live_server import LiveServer, open_room, post

COPIED = ("seq", "runId", "actor", "type", "causedBy", "origin", "ts", "redactions", "payload")
"""What a copy keeps of its entry."""


@pytest.fixture
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the sources."""
    return server.member("alice")


def fork(client: httpx.Client, room: str, seq: int, key: str | None = None, **fields: Any) -> httpx.Response:
    """Fork the room at an event."""
    headers = {} if key is None else {"idempotency-key": key}
    return client.post(f"/v1/rooms/{room}/fork", json={"seq": seq, **fields}, headers=headers)


def log(client: httpx.Client, room: str, through: int) -> list[dict[str, Any]]:
    """What a copy keeps, of the first entries of a room."""
    events = client.get(f"/v1/rooms/{room}/events", params={"limit": 500, "beforeSeq": through + 1}).json()["events"]
    return [{name: event.get(name) for name in COPIED} for event in events]


def test_a_fork_is_the_forkers_and_its_copies_are_the_sources(server: LiveServer, alice: httpx.Client) -> None:
    """SC-7: what is copied is the same, entry by entry, and the fork says up to which hash of the source."""
    people = [{"principal": "human:wanda", "role": "watcher"}]
    room = open_room(alice, title="Source", members=people, retention="7d", approvals={"profile": "unattended"})
    chain = post(alice, room, "one")["chain"]
    post(alice, room, "two")
    wanda = server.client("human:wanda")
    made = fork(wanda, room, 2, note="another way")
    assert made.status_code == 201, made.text
    assert set(made.json()) == {"id", "seq", "chain", "forkedFrom"}
    assert made.json()["forkedFrom"] == {"room": room, "seq": 2, "chain": chain}
    copy = made.json()["id"]
    assert log(wanda, copy, 2) == log(alice, room, 2)
    snapshot = wanda.get(f"/v1/rooms/{copy}").json()
    assert (snapshot["owner"], snapshot["driver"], snapshot["driverEpoch"]) == ("human:wanda", "human:wanda", 2)
    assert snapshot["members"] == [{"principal": "human:wanda", "role": "owner", "approver": False}]
    assert (snapshot["retention"], snapshot["approvals"]["profile"]) == ("7d", "unattended")
    assert (snapshot["throughSeq"], snapshot["chain"]) == (made.json()["seq"], made.json()["chain"])
    assert code(server.client("human:alice").get(f"/v1/rooms/{copy}")) == (404, "not_found"), "none of its members"
    assert post(wanda, copy, "mine")["seq"] == 4


def test_a_closed_room_is_forked_too(alice: httpx.Client) -> None:
    room = open_room(alice)
    closed = alice.post(f"/v1/rooms/{room}/close").json()
    made = fork(alice, room, closed["seq"])
    assert made.status_code == 201
    copy = alice.get(f"/v1/rooms/{made.json()['id']}").json()
    assert (copy["sealed"], copy["phase"]) == (False, "Open")


def test_a_fork_under_one_key_is_one_room(alice: httpx.Client) -> None:
    room = open_room(alice)
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: fork(alice, room, 1, "once"), range(5)))
    assert [answer.status_code for answer in answers] == [201] * 5
    assert all(answer.json() == answers[0].json() for answer in answers)
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    assert all(answer.json()["forkedFrom"]["chain"] for answer in answers)
    assert code(fork(alice, room, 1, "once", note="other")) == (422, "idempotency_key_reused")


def test_a_first_run_starts_from_the_latest_commit(server: LiveServer, alice: httpx.Client) -> None:
    room = open_room(alice)
    bridge = Bridge(server, room).hello()
    tool = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    arguments = {"toRole": "reviewer", "summary": "Half of it.", "commit": "0a1b2c3d"}
    headers = {"accept": "application/json, text/event-stream"}
    call = {**tool, "params": {"name": "room_handoff", "arguments": arguments}}
    assert bridge.client.post("/mcp", json=call, headers=headers).status_code == 200
    seq = alice.get(f"/v1/rooms/{room}").json()["throughSeq"]
    made = fork(alice, room, seq, "with-a-run", role="implementer")
    assert made.status_code == 201, made.text
    body = made.json()
    assert (body["commit"], body["forkedFrom"]["seq"], body["seq"]) == ("0a1b2c3d", seq, seq + 2)
    assert "Half of it." in body["brief"]
    run = alice.get(f"/v1/runs/{body['runId']}").json()
    assert (run["roomId"], run["state"]) == (body["id"], "requested")
    again = fork(alice, room, seq, "with-a-run", role="implementer")
    assert (again.status_code, again.json(), again.headers["idempotency-replayed"]) == (201, body, "true")
    assert Bridge(server, body["id"], body["runId"]).hello().lease
    assert alice.get(f"/v1/rooms/{room}").json()["run"]["runId"] == bridge.run_id, "the source goes on"


def test_a_source_takes_events_while_it_is_forked(server: LiveServer, alice: httpx.Client) -> None:
    bridge = Bridge(server, open_room(alice)).hello()
    items = [item(n) for n in range(1, 401)]
    assert bridge.push(*items).status_code == 200
    with ThreadPoolExecutor(2) as pool:
        forking = pool.submit(fork, alice, bridge.room, 400)
        said = post(alice, bridge.room, "meanwhile")
    assert forking.result().status_code == 201
    assert said["seq"] > 400


@pytest.mark.parametrize(
    ("body", "refusal", "path"),
    [
        ({}, "invalid", "$.seq"),
        ({"seq": 0}, "invalid", "$.seq"),
        ({"seq": 2}, "invalid", "$.seq"),
        ({"seq": 1, "note": ""}, "invalid", "$.note"),
        ({"seq": 1, "role": "boss"}, "invalid", "$.role"),
        ({"seq": 1, "role": "reviewer"}, "reviewer_needs_pr", None),
        ({"seq": 1, "pullRequest": "https://forge.example/1"}, "invalid", "$.pullRequest"),
    ],
)
def test_forks_that_cannot_be_made(
    server: LiveServer, alice: httpx.Client, body: dict[str, Any], refusal: str, path: str | None
) -> None:
    room = open_room(alice)
    with server.sql() as connection:
        before = connection.execute("SELECT count(*) FROM minutebook.streams").fetchone()
        answer = alice.post(f"/v1/rooms/{room}/fork", json=body)
        assert code(answer) == (422, refusal)
        assert path is None or [error["path"] for error in answer.json()["errors"]] == [path]
        assert connection.execute("SELECT count(*) FROM minutebook.streams").fetchone() == before
