"""Runs over HTTP by people and systems: asked for, registered, looked at, ended, revoked (rooms.md, Runs)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from bridges import Bridge, code, new_run_id
from live_server import LiveServer, follow, open_room, post


@pytest.fixture
def alice(server: LiveServer) -> httpx.Client:
    """Who owns and drives the rooms."""
    return server.member("alice")


@pytest.fixture
def room(alice: httpx.Client) -> str:
    """A new room."""
    return open_room(alice)


def ask(client: httpx.Client, room: str, body: Any = None, **headers: str) -> httpx.Response:
    """Ask for the next run."""
    return client.post(f"/v1/rooms/{room}/runs", json=body or {"role": "implementer"}, headers=headers)


def queue(client: httpx.Client, room: str, text: str) -> None:
    """A message for the next run."""
    assert client.post(f"/v1/rooms/{room}/messages", json={"text": text, "delivery": "queued"}).status_code == 201


def test_the_next_run_starts_from_its_brief(server: LiveServer, alice: httpx.Client, room: str) -> None:
    queue(alice, room, "Fix the unmistakable thing.")
    asked = ask(alice, room)
    assert asked.status_code == 202, asked.text
    run_id = asked.json()["runId"]
    assert set(asked.json()) == {"seq", "id", "chain", "runId", "brief"}
    assert "Fix the unmistakable thing." in asked.json()["brief"]
    known = alice.get(f"/v1/runs/{run_id}").json()
    assert known == {
        "seq": asked.json()["seq"],
        "runId": run_id,
        "roomId": room,
        "role": "implementer",
        "state": "requested",
        "brief": asked.json()["brief"],
    }
    assert alice.get(f"/v1/rooms/{room}").json()["queue"] == []
    assert code(ask(alice, room)) == (409, "room_busy")
    Bridge(server, room, run_id).hello()
    running = alice.get(f"/v1/runs/{run_id}").json()
    assert (running["state"], "brief" in running) == ("running", False)


def test_no_quotation_is_stored_with_a_key(server: LiveServer, alice: httpx.Client, room: str) -> None:
    queue(alice, room, "Fix the unmistakable thing.")
    first = ask(alice, room, **{"idempotency-key": "next"})
    again = ask(alice, room, **{"idempotency-key": "next"})
    assert (again.status_code, again.json()) == (202, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    with server.sql() as connection:
        rows = connection.execute(
            "SELECT k.body FROM minutebook.idempotency k WHERE k.scope = %s", (f"room:{room}",)
        ).fetchall()
    assert len(rows) == 1
    assert first.json()["runId"] in rows[0][0]
    assert "unmistakable" not in rows[0][0]


@pytest.mark.parametrize(
    ("body", "status", "refusal"),
    [
        ({"role": "reviewer"}, 422, "reviewer_needs_pr"),
        ({"role": "boss"}, 422, "invalid"),
        ({}, 422, "invalid"),
        ({"role": "tester", "driverEpoch": 2}, 409, "stale_epoch"),
        ({"role": "tester", "pullRequest": "a b"}, 422, "invalid"),
    ],
)
def test_runs_that_cannot_be_asked_for(
    alice: httpx.Client, room: str, body: dict[str, Any], status: int, refusal: str
) -> None:
    assert code(alice.post(f"/v1/rooms/{room}/runs", json=body)) == (status, refusal)
    assert alice.get(f"/v1/rooms/{room}").json()["throughSeq"] == 1


def test_a_system_starts_no_run_while_a_human_drives(server: LiveServer, room: str) -> None:
    assert code(ask(server.client("system:triage"), room)) == (409, "human_drives")
    mine = open_room(server.client("system:triage"))
    assert ask(server.client("system:triage"), mine).status_code == 202


def put(client: httpx.Client, room: str, run_id: str, key: str | None = None, **fields: Any) -> httpx.Response:
    """Register a run."""
    headers = {} if key is None else {"idempotency-key": key}
    return client.put(f"/v1/runs/{run_id}", json={"roomId": room, "role": "tester", **fields}, headers=headers)


def test_a_registration_is_new_once(server: LiveServer, alice: httpx.Client, room: str) -> None:
    run_id, key = new_run_id(), "register"
    first = put(alice, room, run_id, key, branch="fix/sign")
    assert first.status_code == 201, first.text
    assert set(first.json()) == {"seq", "id", "chain", "runId", "roomId", "role", "state", "brief"}
    again = put(alice, room, run_id, key, branch="fix/sign")
    assert (again.status_code, again.json(), again.headers["idempotency-replayed"]) == (201, first.json(), "true")
    same = put(alice, room, run_id, branch="fix/sign")
    assert (same.status_code, same.json()["seq"]) == (200, first.json()["seq"])
    other = put(alice, room, run_id, branch="fix/other")
    assert (other.status_code, other.json()["seq"]) == (200, first.json()["seq"] + 1)
    assert code(put(alice, room, run_id, role="triager")) == (409, "conflict")
    assert put(server.client("system:triage"), room, new_run_id()).status_code == 201


def test_a_run_is_of_one_room_on_the_whole_server(alice: httpx.Client, room: str) -> None:
    run_id, other = new_run_id(), open_room(alice)
    assert put(alice, room, run_id).status_code == 201
    taken = put(alice, other, run_id)
    assert code(taken) == (409, "conflict")
    assert room not in taken.text
    assert alice.get(f"/v1/rooms/{other}").json()["throughSeq"] == 1
    assert alice.get(f"/v1/runs/{run_id}").json()["roomId"] == room


@pytest.mark.parametrize("run_id", ["short", "UPPERCAS", "waytoolong"])
def test_ids_that_no_run_has(alice: httpx.Client, room: str, run_id: str) -> None:
    answer = put(alice, room, run_id)
    assert code(answer) == (422, "invalid")
    assert [error["path"] for error in answer.json()["errors"]] == ["runId"]
    assert code(alice.get(f"/v1/runs/{run_id}")) == (404, "not_found")


def test_an_owner_ends_a_run_and_its_reason_outlives_it(server: LiveServer, alice: httpx.Client, room: str) -> None:
    bridge = Bridge(server, room).hello()
    url = f"/v1/runs/{bridge.run_id}"
    assert code(alice.post(f"{url}/end", json={"reason": "revoked"})) == (422, "invalid")
    ended = alice.post(f"{url}/end", json={"reason": "stuck"})
    assert ended.status_code == 200
    known = alice.get(url).json()
    assert (known["state"], known["reason"]) == ("ended", "stuck")
    assert code(alice.post(f"{url}/end", json={})) == (409, "already_ended")
    assert code(alice.post(f"{url}/revoke", json={})) == (409, "already_ended")
    assert alice.get(f"/v1/rooms/{room}").json()["participants"] == ["human:alice"]
    assert code(bridge.client.get(f"/v1/rooms/{room}")) == (403, "run_not_live")


def test_a_revoked_run_is_cut(server: LiveServer, alice: httpx.Client, room: str) -> None:
    """SC-9: its streams end at once, and nothing of it is taken any more."""
    bridge = Bridge(server, room).hello()
    with bridge.stream() as down, follow(bridge.client, room, tail=0) as stream:
        stream.until("state")
        revoked = alice.post(f"/v1/runs/{bridge.run_id}/revoke", json={"reason": "it went strange"})
        assert revoked.status_code == 200
        assert stream.rest()[-1].event == "closed"
        assert down.rest()[-1].event == "closed"
    assert code(bridge.push()) == (403, "run_not_live")
    assert code(bridge.client.post(f"/v1/rooms/{room}/messages", json={"text": "still"})) == (403, "run_not_live")
    last = next(event["payload"] for event in bridge.log() if event["payload"].get("phase") == "ended")
    assert (last["reason"], last["note"]) == ("revoked", "it went strange")


def test_the_run_of_a_room_that_one_left_is_not_there(server: LiveServer, alice: httpx.Client, room: str) -> None:
    bridge = Bridge(server, room).hello()
    alice.put(f"/v1/rooms/{room}/members/human:bob", json={"role": "watcher"})
    bob = server.client("human:bob")
    assert bob.get(f"/v1/runs/{bridge.run_id}").status_code == 200
    alice.delete(f"/v1/rooms/{room}/members/human:bob")
    gone, never = bob.get(f"/v1/runs/{bridge.run_id}"), bob.get("/v1/runs/aaaaaaaa")
    assert gone.status_code == never.status_code == 404
    assert gone.json() | {"instance": ""} == never.json() | {"instance": ""}


def test_a_requested_run_that_is_revoked_gives_the_queue_back(alice: httpx.Client, room: str) -> None:
    queue(alice, room, "still wanted")
    run_id = ask(alice, room).json()["runId"]
    post(alice, room, "never mind")
    assert alice.post(f"/v1/runs/{run_id}/revoke", json={}).status_code == 200
    assert [each["text"] for each in alice.get(f"/v1/rooms/{room}").json()["queue"]] == ["still wanted"]
