"""The driver token over HTTP, and what only its holder may do (rooms.md, Driver token, Messages; SC-3)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from bridges import Bridge, code, frames
from live_server import LiveServer, follow, open_room


@pytest.fixture
def bridge(server: LiveServer) -> Bridge:
    """A running run in a room that alice owns and drives, with carl and bob as collaborators."""
    alice = server.member("alice")
    people = [{"principal": f"human:{name}", "role": "collaborator"} for name in ("carl", "bob")]
    return Bridge(server, open_room(alice, members=people)).hello()


def send(client: httpx.Client, bridge: Bridge, what: str, body: Any, **headers: str) -> httpx.Response:
    """A command of the room."""
    return client.post(f"/v1/rooms/{bridge.room}/{what}", json=body, headers=headers)


def steering(text: str, epoch: int) -> dict[str, Any]:
    """The body of a steering message."""
    return {"text": text, "delivery": "steering", "driverEpoch": epoch}


def test_only_the_driver_steers_and_after_a_give_the_new_one(server: LiveServer, bridge: Bridge) -> None:
    """SC-3: the epoch moves by one, and what carries the old one is refused."""
    alice, carl = bridge.alice, server.client("human:carl")
    with bridge.stream() as stream:
        first = send(alice, bridge, "messages", steering("left", 1))
        assert first.status_code == 201, first.text
        assert code(send(carl, bridge, "messages", steering("right", 1))) == (403, "forbidden")
        given = send(alice, bridge, "driver/give", {"to": "human:carl", "driverEpoch": 1})
        assert (given.status_code, given.json()["driver"], given.json()["driverEpoch"]) == (200, "human:carl", 2)
        late = send(alice, bridge, "messages", steering("once more", 1))
        assert code(late) == (409, "stale_epoch")
        assert (late.json()["driver"], late.json()["driverEpoch"]) == ("human:carl", 2)
        assert code(send(alice, bridge, "messages", steering("once more", 2))) == (403, "forbidden")
        second = send(carl, bridge, "messages", steering("right", 2))
        assert second.status_code == 201
        got = frames(stream, 2)
        assert [(event, data["text"]) for event, data in got] == [("deliver", "left"), ("deliver", "right")]
        assert [data["ref"] for _, data in got] == [first.json()["seq"], second.json()["seq"]]


def test_whoever_drove_until_now_gets_the_answer_of_what_they_did(bridge: Bridge) -> None:
    alice, key = bridge.alice, {"idempotency-key": "once"}
    first = send(alice, bridge, "messages", steering("left", 1), **key)
    given = send(alice, bridge, "driver/give", {"to": "human:carl", "driverEpoch": 1}, **key)
    again = send(alice, bridge, "messages", steering("left", 1), **key)
    assert (again.status_code, again.json(), again.headers["idempotency-replayed"]) == (201, first.json(), "true")
    given_again = send(alice, bridge, "driver/give", {"to": "human:carl", "driverEpoch": 1}, **key)
    assert (given_again.status_code, given_again.json()) == (200, given.json())


def test_a_request_is_seen_by_all_and_take_needs_a_reason(server: LiveServer, bridge: Bridge) -> None:
    carl, bob = server.client("human:carl"), server.client("human:bob")
    asked = send(carl, bridge, "driver/request", {})
    assert (asked.status_code, asked.json()["driver"], asked.json()["driverEpoch"]) == (200, "human:alice", 1)
    again = send(carl, bridge, "driver/request", {})
    assert again.json()["seq"] == asked.json()["seq"], "asking again adds nothing"
    assert send(bridge.alice, bridge, "driver/give", {"to": "human:carl", "driverEpoch": 1}).status_code == 200
    assert code(send(bob, bridge, "driver/take", {"reason": "mine"})) == (403, "forbidden")
    assert code(send(bridge.alice, bridge, "driver/take", {})) == (422, "invalid")
    assert code(send(bridge.alice, bridge, "driver/take", {"reason": "ü" * 129})) == (422, "invalid")
    taken = send(bridge.alice, bridge, "driver/take", {"reason": "carl is ill"})
    assert (taken.status_code, taken.json()["driver"], taken.json()["driverEpoch"]) == (200, "human:alice", 3)
    moved = [event["payload"] for event in bridge.log() if event["type"] == "driver"]
    assert [each["reason"] for each in moved] == ["given", "taken"]
    assert moved[1]["note"] == "carl is ill"


def test_a_system_holder_yields_at_once(server: LiveServer) -> None:
    system = server.client("system:triage")
    room = open_room(system, members=[{"principal": "human:carl", "role": "collaborator"}])
    carl = server.client("human:carl")
    asked = carl.post(f"/v1/rooms/{room}/driver/request", json={})
    assert (asked.json()["driver"], asked.json()["driverEpoch"]) == ("human:carl", 2)
    body = {"to": "system:triage", "driverEpoch": 2}
    assert carl.post(f"/v1/rooms/{room}/driver/give", json=body).json()["driver"] == "system:triage"


@pytest.mark.parametrize(
    ("to", "status", "refusal"),
    [
        ("human:wanda", 422, "invalid"),
        ("human:nobody", 422, "invalid"),
        ("system:other", 422, "invalid"),
        ("agent:aaaaaaaa", 422, "invalid"),
        ("carl", 422, "invalid"),
    ],
)
def test_the_token_goes_to_collaborators_alone(bridge: Bridge, to: str, status: int, refusal: str) -> None:
    bridge.alice.put(f"/v1/rooms/{bridge.room}/members/human:wanda", json={"role": "watcher"})
    answer = send(bridge.alice, bridge, "driver/give", {"to": to, "driverEpoch": 1})
    assert code(answer) == (status, refusal)
    assert [error["path"] for error in answer.json()["errors"]] == ["$.to"]


def test_an_interrupt_reaches_the_run_once(bridge: Bridge) -> None:
    with bridge.stream() as stream:
        first = send(bridge.alice, bridge, "interrupt", {"driverEpoch": 1})
        assert first.status_code == 202
        second = send(bridge.alice, bridge, "interrupt", {"driverEpoch": 1})
        assert (second.status_code, second.json()["seq"]) == (202, first.json()["seq"])
        ((event, data),) = frames(stream, 1)
        assert (event, data) == ("interrupt", {"ref": first.json()["seq"]})
    bridge.bye()
    assert code(send(bridge.alice, bridge, "interrupt", {"driverEpoch": 1})) == (409, "no_running_run")


def test_the_driver_cannot_be_removed_and_others_stop_hearing(server: LiveServer, bridge: Bridge) -> None:
    alice, carl = bridge.alice, server.client("human:carl")
    send(alice, bridge, "driver/give", {"to": "human:carl", "driverEpoch": 1})
    url = f"/v1/rooms/{bridge.room}/members/human:carl"
    assert code(alice.delete(url)) == (409, "holds_driver")
    assert alice.put(url, json={"role": "watcher"}).status_code == 200
    members = {each["principal"]: each["role"] for each in alice.get(f"/v1/rooms/{bridge.room}").json()["members"]}
    assert members["human:carl"] == "collaborator", "an invite never demotes the driver"
    send(alice, bridge, "driver/take", {"reason": "back"})
    with follow(carl, bridge.room, tail=0) as stream:
        stream.until("state")
        assert alice.delete(url).status_code == 200
        rest = stream.rest()
        assert [frame.event for frame in rest] == ["event", "closed"]
        assert rest[-1].json == {"reason": "removed"}
