"""SC-3, SC-4: one driver, one running run, and work that is handed on (rooms.md, Done means)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from approvers import at_once
from bridges import Bridge, code, frames
from live_server import LiveServer, open_room
from mcp_steps import ok, request, result_of
from viewers import log_of

COMMIT = "0123abc"
PULL = "https://github.com/acme/widget/pull/7"
RACES = 40


def with_people(server: LiveServer) -> str:
    """A room of alice, with carl and bob as collaborators."""
    people = [{"principal": f"human:{name}", "role": "collaborator"} for name in ("carl", "bob")]
    return open_room(server.member("alice"), members=people, repository="acme/widget")


def send(client: httpx.Client, room: str, what: str, body: Any) -> httpx.Response:
    """A command of the room."""
    return client.post(f"/v1/rooms/{room}/{what}", json=body)


def steer(client: httpx.Client, room: str, text: str, epoch: int) -> httpx.Response:
    """A steering message."""
    return send(client, room, "messages", {"text": text, "delivery": "steering", "driverEpoch": epoch})


def test_sc_3_only_the_driver_steers_and_after_a_give_the_new_one(server: LiveServer, other: LiveServer) -> None:
    room = with_people(server)
    bridge = Bridge(server, room).hello()
    alice, carl = bridge.alice, other.client("human:carl")
    with bridge.stream() as stream:
        assert code(steer(carl, room, "mine", 1)) == (403, "forbidden")
        first = steer(alice, room, "left", 1).json()["seq"]
        given = send(alice, room, "driver/give", {"to": "human:carl", "driverEpoch": 1})
        assert (given.status_code, given.json()["driver"], given.json()["driverEpoch"]) == (200, "human:carl", 2)
        assert code(steer(other.member("alice"), room, "too late", 1)) == (409, "stale_epoch")
        assert code(steer(other.member("alice"), room, "not mine", 2)) == (403, "forbidden")
        second = steer(carl, room, "right", 2).json()["seq"]
        assert frames(stream, 2) == [
            ("deliver", {"ref": first, "text": "left"}),
            ("deliver", {"ref": second, "text": "right"}),
        ]
    moves = [event["payload"] for event in bridge.log() if event["type"] == "driver"]
    assert [(each["to"], each["epoch"]) for each in moves] == [("human:carl", 2)]


def test_take_and_give_at_the_same_instant(server: LiveServer, other: LiveServer) -> None:
    """The take stands; the give was before it or is refused; each move has the next epoch, and begins where the last
    one ended."""
    room = with_people(server)
    alice, carl = server.member("alice"), other.client("human:carl")
    epoch, gave = 1, 0
    with ThreadPoolExecutor(2) as pool:
        for number in range(RACES):
            ready = send(alice, room, "driver/give", {"to": "human:carl", "driverEpoch": epoch})
            assert ready.status_code == 200, ready.text
            body = {"to": "human:bob", "driverEpoch": epoch + 1}
            calls = [
                lambda number=number: send(alice, room, "driver/take", {"reason": f"round {number}"}),
                lambda body=body: send(carl, room, "driver/give", body),
            ]
            taken, given = at_once(pool, *calls)
            assert (taken.status_code, taken.json()["driver"]) == (200, "human:alice"), taken.text
            assert given.status_code == 200 or code(given) in ((409, "stale_epoch"), (403, "forbidden")), given.text
            gave += given.is_success
            assert taken.json()["driverEpoch"] == epoch + (3 if given.is_success else 2)
            epoch = taken.json()["driverEpoch"]
    log = log_of(alice, room)
    moves = [event["payload"] for event in log if event["type"] == "driver"]
    assert [each["epoch"] for each in moves] == list(range(2, epoch + 1))
    assert [each["from"] for each in moves[1:]] == [each["to"] for each in moves[:-1]]
    assert [each["reason"] for each in moves].count("taken") == RACES
    assert len(moves) == 2 * RACES + gave


def tool(bridge: Bridge, name: str, **arguments: Any) -> dict[str, Any]:
    """What one of the run's room tools answers."""
    return ok(result_of(bridge.client.post("/mcp", json=request("tools/call", name=name, arguments=arguments))))


def next_run(server: LiveServer, room: str, role: str, **fields: Any) -> tuple[Bridge, str]:
    """The bridge of the run that alice asks for, and the run's brief. While it runs there is no other one."""
    asked = send(server.member("alice"), room, "runs", {"role": role, **fields})
    assert asked.status_code == 202, asked.text
    bridge = Bridge(server, room, asked.json()["runId"], role=role).hello()
    assert code(Bridge(server, room, role=role).client.post("/v1/bridge/hello")) == (409, "room_busy")
    assert code(send(bridge.alice, room, "runs", {"role": "tester"})) == (409, "room_busy")
    return bridge, asked.json()["brief"]


def test_sc_4_work_goes_from_implementer_to_reviewer_and_back(server: LiveServer, other: LiveServer) -> None:
    room = with_people(server)
    first, _ = next_run(server, room, "implementer")
    tool(first, "room_handoff", toRole="reviewer", summary="The sign was wrong; it is turned.", commit=COMMIT)
    first.bye()
    assert code(send(first.alice, room, "runs", {"role": "reviewer"})) == (422, "reviewer_needs_pr")
    reviewer, brief = next_run(other, room, "reviewer", pullRequest=PULL)
    assert "The sign was wrong; it is turned." in brief
    tool(reviewer, "room_verdict", verdict="changes", summary="A test is missing.", commit=COMMIT)
    reviewer.bye()
    last, brief = next_run(server, room, "implementer")
    assert "A test is missing." in brief
    last.bye()
    phases = [event["payload"] for event in last.log() if event["payload"].get("kind") == "run_phase"]
    runs = [first.run_id, reviewer.run_id, last.run_id]
    assert [(each["runId"], each["phase"]) for each in phases if each["phase"] in ("running", "ended")] == [
        (run, phase) for run in runs for phase in ("running", "ended")
    ]
