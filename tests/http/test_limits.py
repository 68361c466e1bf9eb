"""What one principal may take of a process (rooms.md, Limits): 429 with Retry-After, after authorization and replay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from bridges import Bridge, code
from live_server import LiveServer, Stream, follow, open_room, until

BURST = 5
STREAMS = 3
PEOPLE = 2

LIMITS = {
    "MINUTEBOOK_LIMITS_ACTIONS_PER_SECOND": "1",
    "MINUTEBOOK_LIMITS_ACTION_BURST": str(BURST),
    "MINUTEBOOK_LIMITS_STREAMS_PER_PRINCIPAL": str(STREAMS),
    "MINUTEBOOK_LIMITS_PEOPLE_PER_ROOM": str(PEOPLE),
}


@pytest.fixture(scope="module")
def strict(new_data_dir: Callable[[], Path]) -> Iterator[LiveServer]:
    """A server with narrow limits; each test has principals of its own."""
    with LiveServer(new_data_dir(), env=LIMITS) as server:
        yield server


def say(client: httpx.Client, room: str, key: str | None = None) -> httpx.Response:
    """One action."""
    headers = {} if key is None else {"idempotency-key": key}
    return client.post(f"/v1/rooms/{room}/messages", json={"text": "hello"}, headers=headers)


def spend(client: httpx.Client, room: str) -> httpx.Response:
    """Act until it is too much; the refusal."""
    for _ in range(BURST + 20):
        answer = say(client, room)
        if answer.status_code != 201:
            return answer
    raise AssertionError("no limit came")


def test_too_many_actions(strict: LiveServer) -> None:
    ann = strict.member("ann")
    room = open_room(ann)
    with ThreadPoolExecutor(BURST + 5) as pool:
        statuses = [answer.status_code for answer in pool.map(lambda _: say(ann, room), range(BURST + 5))]
    assert statuses.count(201) >= BURST - 1, "opening the room was one of the burst"
    assert statuses.count(429) >= 3
    refused = spend(ann, room)
    assert code(refused) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) >= 1
    assert 0 < refused.json()["retryAfterMs"] <= 1001
    until(lambda: say(ann, room).status_code == 201, what="the pace")


def test_another_principal_and_reading_go_on(strict: LiveServer) -> None:
    bea, cid = strict.member("bea"), strict.member("cid")
    room = open_room(bea, members=[{"principal": "human:cid", "role": "collaborator"}])
    assert spend(bea, room).status_code == 429
    for _ in range(3 * BURST):
        assert bea.get(f"/v1/rooms/{room}").status_code == 200
    assert say(cid, room).status_code == 201


def test_a_404_a_403_and_a_replay_never_become_a_429(strict: LiveServer) -> None:
    dan, eve = strict.member("dan"), strict.member("eve")
    room, other = open_room(dan), open_room(eve)
    first = say(dan, room, "once")
    assert first.status_code == 201
    opened = {"idempotency-key": "opened"}
    made = dan.post("/v1/rooms", json={"dataClass": "public"}, headers=opened)
    assert made.status_code == 201
    assert spend(dan, room).status_code == 429
    for _ in range(3):
        again = say(dan, room, "once")
        assert (again.status_code, again.json(), again.headers["idempotency-replayed"]) == (201, first.json(), "true")
        assert say(dan, "aaaaaaaa").status_code == 404
        assert say(dan, other).status_code == 403, "a watcher by the group"
        assert code(say(dan, room, "new")) == (429, "rate_limited")
    assert dan.post("/v1/rooms", json={"dataClass": "public"}, headers=opened).json() == made.json()
    assert code(dan.post("/v1/rooms", json={"dataClass": "public"})) == (429, "rate_limited")
    stranger = strict.client("human:sam")
    for _ in range(BURST + 2):
        assert code(say(stranger, room)) == (404, "not_found")


def test_a_refused_action_burns_no_key(strict: LiveServer) -> None:
    flo = strict.member("flo")
    room = open_room(flo)
    assert spend(flo, room).status_code == 429
    assert say(flo, room, "later").status_code == 429
    until(lambda: say(flo, room, "later").status_code == 201, what="the pace")


def test_a_bridge_is_not_counted(strict: LiveServer) -> None:
    alice = strict.member("alice")
    bridge = Bridge(strict, open_room(alice)).hello()
    for _ in range(3 * BURST):
        assert bridge.push().status_code == 200


def test_too_many_streams_of_one_principal(strict: LiveServer) -> None:
    gus = strict.member("gus")
    room = open_room(gus)
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(follow(gus, room, tail=0)) for _ in range(STREAMS)]
        for stream in streams:
            stream.until("state")
        refused = gus.get(f"/v1/rooms/{room}/stream")
        assert code(refused) == (429, "rate_limited")
        assert int(refused.headers["retry-after"]) >= 1
        assert gus.get("/v1/rooms/aaaaaaaa/stream").status_code == 404
        with follow(strict.member("hal"), room, tail=0) as other:
            other.until("state")
    until(lambda: gus.head(f"/v1/rooms/{room}/stream").status_code == 200, what="the places")


def test_streams_that_come_at_once_are_counted(strict: LiveServer) -> None:
    ida = strict.member("ida")
    room = open_room(ida)
    with contextlib.ExitStack() as stack:

        def begin(_: int) -> int:
            response = stack.enter_context(ida.stream("GET", f"/v1/rooms/{room}/stream", params={"tail": 0}))
            return response.status_code

        with ThreadPoolExecutor(10) as pool:
            statuses = sorted(pool.map(begin, range(10)))
    assert statuses == [200] * STREAMS + [429] * (10 - STREAMS)


def test_a_full_room_still_takes_driver_owner_and_approvers(strict: LiveServer) -> None:
    owner = strict.member("olga")
    people = [
        {"principal": "human:kim", "role": "collaborator"},
        {"principal": "human:anna", "role": "watcher", "approver": True},
    ]
    room = open_room(owner, members=people)
    assert owner.post(f"/v1/rooms/{room}/driver/give", json={"to": "human:kim", "driverEpoch": 1}).status_code == 200
    with contextlib.ExitStack() as stack:
        streams: list[Stream] = []  # one that nobody refers to is closed

        def joins(client: httpx.Client) -> None:
            streams.append(stack.enter_context(follow(client, room, tail=0)))
            streams[-1].until("state")

        for name in ("w1", "w2"):
            joins(strict.member(name))
        assert code(strict.member("w3").get(f"/v1/rooms/{room}/stream")) == (429, "rate_limited")
        joins(strict.member("w1"))  # who is here already
        for client in (owner, strict.client("human:kim"), strict.client("human:anna")):
            joins(client)
        joins(strict.client("system:ci"))  # no person
    until(lambda: strict.member("w3").head(f"/v1/rooms/{room}/stream").status_code == 200, what="the places")
