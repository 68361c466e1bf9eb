"""Messages for the next run over HTTP: queued, removed, promoted, consumed (rooms.md, Messages)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from bridges import Bridge, code, frames
from live_server import LiveServer, open_room

QUEUED = {"delivery": "queued"}


@pytest.fixture
def alice(server: LiveServer) -> httpx.Client:
    """Who owns and drives the rooms."""
    return server.member("alice")


@pytest.fixture
def room(alice: httpx.Client) -> str:
    """A room with two collaborators."""
    people = [{"principal": f"human:{name}", "role": "collaborator"} for name in ("carl", "bob")]
    return open_room(alice, members=people)


def queue(client: httpx.Client, room: str, text: str) -> int:
    """Queue a message; its seq."""
    answer = client.post(f"/v1/rooms/{room}/messages", json={"text": text, **QUEUED})
    assert answer.status_code == 201, answer.text
    return answer.json()["seq"]


def waiting(client: httpx.Client, room: str) -> list[dict[str, Any]]:
    """The queue as the snapshot has it."""
    return client.get(f"/v1/rooms/{room}").json()["queue"]


def test_the_queue_is_in_order_and_its_author_may_take_back(server: LiveServer, alice: httpx.Client, room: str) -> None:
    carl, bob = server.client("human:carl"), server.client("human:bob")
    first, second = queue(carl, room, "first"), queue(bob, room, "second")
    assert waiting(alice, room) == [
        {"ref": first, "author": "human:carl", "text": "first"},
        {"ref": second, "author": "human:bob", "text": "second"},
    ]
    url = f"/v1/rooms/{room}/queue"
    assert code(bob.delete(f"{url}/{first}")) == (403, "forbidden")
    assert carl.delete(f"{url}/{first}").status_code == 200
    assert alice.delete(f"{url}/{second}").status_code == 200, "the driver"
    assert waiting(alice, room) == []
    assert code(carl.delete(f"{url}/{first}")) == (409, "not_queued")


def test_a_promoted_message_goes_into_the_running_run(server: LiveServer, alice: httpx.Client, room: str) -> None:
    ref = queue(server.client("human:carl"), room, "now, please")
    url, body = f"/v1/rooms/{room}/queue/{ref}/promote", {"driverEpoch": 1}
    assert code(alice.post(url, json=body)) == (409, "no_running_run")
    bridge = Bridge(server, room).hello()
    with bridge.stream() as stream:
        assert alice.post(url, json=body).status_code == 200
        ((event, data),) = frames(stream, 1)
        assert (event, data["ref"], data["text"]) == ("deliver", ref, "now, please")
    assert waiting(alice, room) == []
    assert code(alice.post(url, json=body)) == (409, "not_queued")
    assert code(alice.post(url, json={"driverEpoch": 2})) == (409, "stale_epoch")


def test_steering_without_a_run_and_without_an_epoch(alice: httpx.Client, room: str) -> None:
    url = f"/v1/rooms/{room}/messages"
    without = alice.post(url, json={"text": "x", "delivery": "steering"})
    assert code(without) == (422, "invalid")
    assert [error["path"] for error in without.json()["errors"]] == ["$.driverEpoch"]
    body = {"text": "x", "delivery": "steering", "driverEpoch": 1}
    assert code(alice.post(url, json=body)) == (409, "no_running_run")


def test_a_full_queue_says_when_to_come_back(own_data_dir: Path) -> None:
    with LiveServer(own_data_dir, config="[limits]\nqueuedMessages = 2\n") as server:
        alice = server.member("alice")
        room = open_room(alice)
        for _ in range(2):
            queue(alice, room, "wait")
        full = alice.post(f"/v1/rooms/{room}/messages", json={"text": "more", **QUEUED})
        assert code(full) == (429, "queue_full")
        assert int(full.headers["retry-after"]) * 1000 >= full.json()["retryAfterMs"] > 0


def test_verdicts_of_people_and_states_of_systems(server: LiveServer, alice: httpx.Client, room: str) -> None:
    url = f"/v1/rooms/{room}/messages"
    verdict = {"kind": "review_verdict", "text": "Wrong sign.", "verdict": "changes", "commit": "0a1b2c3d"}
    said = alice.post(url, json=verdict)
    assert said.status_code == 201
    state = {"kind": "task_state", "text": "merged"}
    assert server.client("system:ci").post(url, json=state).status_code == 201
    stored = [event["payload"] for event in alice.get(f"/v1/rooms/{room}/events").json()["events"][1:]]
    assert [each["kind"] for each in stored] == ["review_verdict", "task_state"]
    assert (stored[0]["verdict"], stored[0]["commit"]) == ("changes", "0a1b2c3d")
    assert code(alice.post(url, json=state)) == (403, "forbidden")
    assert code(server.client("system:ci").post(url, json=verdict)) == (403, "forbidden")


BAD: list[tuple[str, Callable[[str], tuple[str, str, Any]], int, str, str | None]] = [
    ("ref 0", lambda room: ("DELETE", f"/v1/rooms/{room}/queue/0", None), 422, "invalid", "ref"),
    ("ref too large", lambda room: ("DELETE", f"/v1/rooms/{room}/queue/{2**53 + 1}", None), 422, "invalid", "ref"),
    ("ref no number", lambda room: ("DELETE", f"/v1/rooms/{room}/queue/first", None), 404, "not_found", None),
    ("no epoch", lambda room: ("POST", f"/v1/rooms/{room}/queue/2/promote", {}), 422, "invalid", "$.driverEpoch"),
    ("verdict in chat", lambda room: ("POST", f"/v1/rooms/{room}/messages", {"text": "x", "verdict": "approve"}), 422,
     "invalid", "$.verdict"),
    ("no commit", lambda room: ("POST", f"/v1/rooms/{room}/messages",
     {"text": "x", "kind": "review_verdict", "verdict": "approve"}), 422, "invalid", "$.commit"),
    ("commit of 6", lambda room: ("POST", f"/v1/rooms/{room}/messages",
     {"text": "x", "kind": "review_verdict", "verdict": "approve", "commit": "0a1b2c"}), 422, "invalid", "$.commit"),
    ("queued verdict", lambda room: ("POST", f"/v1/rooms/{room}/messages",
     {"text": "x", "kind": "review_verdict", "verdict": "approve", "commit": "0a1b2c3", **QUEUED}), 422, "invalid",
     "$.delivery"),
]  # fmt: skip


@pytest.mark.parametrize(("request_of", "status", "refusal", "path"), [row[1:] for row in BAD], ids=[r[0] for r in BAD])
def test_what_cannot_be_said(
    alice: httpx.Client,
    room: str,
    request_of: Callable[[str], tuple[str, str, Any]],
    status: int,
    refusal: str,
    path: str | None,
) -> None:
    method, url, body = request_of(room)
    answer = alice.request(method, url, json=body)
    assert code(answer) == (status, refusal), answer.text
    if path is not None:
        assert [error["path"] for error in answer.json()["errors"]] == [path]
    assert alice.get(f"/v1/rooms/{room}").json()["throughSeq"] == 1
