"""B55: many triggers at one moment, at two processes, are one run, and each message is in one brief."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import httpx
from bridges import Bridge, new_run_id
from live_server import LiveServer, open_room

POSTS = 20
STARTS = 8
HELLOS = 6


def at_once(calls: list[Callable[[], httpx.Response]]) -> list[httpx.Response]:
    """All of them at the same instant; their answers in the order of the calls."""
    barrier = Barrier(len(calls))

    def one(call: Callable[[], httpx.Response]) -> httpx.Response:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result() for each in [pool.submit(one, call) for call in calls]]


def test_b55_twenty_messages_and_eight_starts_are_one_run(server: LiveServer, other: LiveServer) -> None:
    clients = [server.member("alice"), other.member("alice")]
    room = open_room(clients[0])
    queued: dict[str, Any] = {"text": "look at this", "delivery": "queued"}

    def post(n: int) -> Callable[[], httpx.Response]:
        return lambda: clients[n % 2].post(f"/v1/rooms/{room}/messages", json=queued)

    def start(n: int) -> Callable[[], httpx.Response]:
        return lambda: clients[n % 2].post(f"/v1/rooms/{room}/runs", json={"role": "implementer"})

    answers = at_once([*map(post, range(POSTS)), *map(start, range(STARTS))])
    assert Counter(each.status_code for each in answers) == {201: POSTS, 202: 1, 409: STARTS - 1}
    (asked,) = [each.json()["runId"] for each in answers if each.status_code == 202]
    # Whatever came too late for its brief waits for the next run; nothing is in both.
    Bridge(server, room, asked).hello().bye()
    again = at_once([start(n) for n in range(STARTS)])
    assert Counter(each.status_code for each in again) == {202: 1, 409: STARTS - 1}
    log = clients[1].get(f"/v1/rooms/{room}/events", params={"limit": 500}).json()["events"]
    said = [each["seq"] for each in log if each["type"] == "message"]
    briefed = [ref for each in log if each["payload"].get("kind") == "run_requested" for ref in each["payload"]["refs"]]
    assert sorted(briefed) == said
    assert len(said) == POSTS


def test_b55_of_many_bridges_that_come_at_once_one_has_the_room(server: LiveServer, other: LiveServer) -> None:
    alice = server.member("alice")
    room = open_room(alice)
    runs = [new_run_id() for _ in range(HELLOS)]
    for run_id in runs:
        assert alice.put(f"/v1/runs/{run_id}", json={"roomId": room, "role": "tester"}).status_code == 201
    bridges = [Bridge((server, other)[n % 2], room, run_id) for n, run_id in enumerate(runs)]
    answers = at_once([lambda each=each: each.client.post("/v1/bridge/hello") for each in bridges * 2])
    won = {bridges[n % HELLOS].run_id for n, each in enumerate(answers) if each.status_code == 200}
    assert len(won) == 1
    # A run's later hello displaces its earlier one, be that between its lease and its start.
    assert {each.json()["code"] for each in answers if each.status_code != 200} <= {"room_busy", "lease_lost"}
    log = alice.get(f"/v1/rooms/{room}/events", params={"limit": 500}).json()["events"]
    running = [each["payload"]["runId"] for each in log if each["payload"].get("phase") == "running"]
    assert running == list(won)
    busy = Counter(each["payload"].get("runId") for each in log if each["payload"].get("kind") == "limit")
    assert set(busy.values()) <= {1}, "each contender is told of once"
