"""What waits for a run reaches its bridge: in order, at least once, until it is acknowledged (http.md, the bridge)."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bridges import Bridge, code, frames, item
from live_server import LiveServer, open_room, post


@pytest.fixture
def bridge(server: LiveServer) -> Bridge:
    """A running run in a room of its own."""
    return Bridge(server).hello()


@pytest.fixture(scope="module")
def quick(new_data_dir: Callable[[], Path]) -> Iterator[LiveServer]:
    """A server whose streams beat every second."""
    with LiveServer(new_data_dir(), config="[limits]\nheartbeatSeconds = 1\nstreamMaxSeconds = 10\n") as running:
        yield running


def refs(stream: Any, count: int) -> list[int]:
    return [body["ref"] for _, body in frames(stream, count)]


def test_steering_comes_in_order_and_again_until_it_is_acknowledged(bridge: Bridge) -> None:
    with bridge.stream() as stream:
        assert stream.response.headers["cache-control"] == "no-store"
        one, two = bridge.steer("one"), bridge.steer("two")
        three = bridge.steer("three\n\ndata: forged")
        assert frames(stream, 3) == [
            ("deliver", {"ref": one, "text": "one"}),
            ("deliver", {"ref": two, "text": "two"}),
            ("deliver", {"ref": three, "text": "three\n\ndata: forged"}),
        ]
    with bridge.stream() as stream:
        assert refs(stream, 3) == [one, two, three]
        bridge.acknowledge("delivered", two)
    with bridge.stream() as stream:
        assert refs(stream, 2) == [one, three]
        bridge.acknowledge("delivered", one)
        bridge.acknowledge("delivered", three)
    with bridge.stream() as stream:
        four = bridge.steer("four")
        assert refs(stream, 1) == [four]


def test_on_one_connection_nothing_comes_twice(bridge: Bridge) -> None:
    with bridge.stream() as stream:
        seqs = [bridge.steer(f"{n}") for n in range(3)]
        assert refs(stream, 3) == seqs
        assert bridge.push(item(1)).status_code == 200
        bridge.acknowledge("delivered", seqs[0])
        last = bridge.steer("last")
        assert refs(stream, 1) == [last]


def test_last_event_id_moves_nothing(bridge: Bridge) -> None:
    seq = bridge.steer("stays")
    headers = {"last-event-id": str(seq + 10)}
    with bridge.client.stream("GET", "/v1/bridge/stream", headers=headers) as response:
        assert response.status_code == 200
    with bridge.stream() as stream:
        assert refs(stream, 1) == [seq]


def test_each_kind_with_its_acknowledgement(bridge: Bridge) -> None:
    asked = bridge.ask("e1").json()
    with bridge.stream() as stream:
        steered = bridge.steer("left")
        interrupted = bridge.interrupt()
        decided = bridge.decide(asked, "denied", "not on a Friday")
        decision = {
            "ref": decided,
            "approvalId": asked["approvalId"],
            "allow": False,
            "actionDigest": asked["actionDigest"],
            "reason": "not on a Friday",
        }
        everything = [
            ("deliver", {"ref": steered, "text": "left"}),
            ("interrupt", {"ref": interrupted}),
            ("decision", decision),
        ]
        assert frames(stream, 3) == everything
    for kind, ref in (("interrupted", steered), ("decision_applied", interrupted), ("delivered", decided)):
        bridge.acknowledge(kind, ref)  # of another kind: a claim that counts for nothing
    bridge.acknowledge("delivered", 1)
    with bridge.stream() as stream:
        assert frames(stream, 3) == everything
    bridge.acknowledge("decision_applied", decided, approvalId=asked["approvalId"])
    bridge.acknowledge("interrupted", interrupted)
    with bridge.stream() as stream:
        assert frames(stream, 1) == everything[:1]


def test_what_is_undeliverable_blocks_nothing_behind_it(bridge: Bridge) -> None:
    first, second = bridge.steer("garbled"), bridge.steer("clear")
    with bridge.stream() as stream:
        assert refs(stream, 2) == [first, second]
        bridge.acknowledge("undeliverable", first, reason="the harness has no ears")
    with bridge.stream() as stream:
        assert refs(stream, 1) == [second]
    said = [event["payload"] for event in bridge.log() if event["payload"].get("kind") == "undeliverable"]
    assert said == [{"kind": "undeliverable", "ref": first, "reason": "the harness has no ears"}]


def test_a_promoted_message_comes_behind_what_waited_before_it(bridge: Bridge) -> None:
    queued = bridge.alice.post(
        f"/v1/rooms/{bridge.room}/messages", json={"text": "later", "delivery": "queued"}
    ).json()["seq"]  # fmt: skip
    steered = bridge.steer("now")
    promoted = bridge.alice.post(
        f"/v1/rooms/{bridge.room}/queue/{queued}/promote", json={"driverEpoch": bridge.epoch}
    )  # fmt: skip
    assert promoted.status_code == 200, promoted.text
    with bridge.stream() as stream:
        assert frames(stream, 2) == [
            ("deliver", {"ref": steered, "text": "now"}),
            ("deliver", {"ref": queued, "text": "later"}),
        ]


def test_law_24_a_superseded_decision_is_never_sent(bridge: Bridge) -> None:
    asked = bridge.ask("e1", call_id="c9").json()
    result = {"callId": "c9", "status": "ok", "output": "done anyway", "truncated": False, "bytes": 11}
    assert bridge.push(item(1, "tool_result", result)).status_code == 200
    decided = [event["payload"] for event in bridge.log() if event["type"] == "approval_decided"]
    assert [each["decision"] for each in decided] == ["superseded"]
    late = bridge.alice.post(
        f"/v1/rooms/{bridge.room}/approvals/{asked['approvalId']}/decision",
        json={"decision": "approved", "actionDigest": asked["actionDigest"]},
    )
    assert code(late) == (409, "already_decided")
    with bridge.stream() as stream:
        steered = bridge.steer("only this")
        assert frames(stream, 1) == [("deliver", {"ref": steered, "text": "only this"})]


def test_chat_and_queued_messages_reach_no_bridge(bridge: Bridge) -> None:
    with bridge.stream() as stream:
        post(bridge.alice, bridge.room, "to people")
        queue = {"text": "for the next run", "delivery": "queued"}
        assert bridge.alice.post(f"/v1/rooms/{bridge.room}/messages", json=queue).status_code == 201
        steered = bridge.steer("to the run")
        assert refs(stream, 1) == [steered]


@pytest.mark.parametrize("how", ["bye", "end", "revoke", "close"])
def test_law_17_the_end_of_the_run_cuts_its_stream(bridge: Bridge, how: str) -> None:
    with bridge.stream() as stream:
        steered = bridge.steer("not acknowledged")
        assert refs(stream, 1) == [steered]
        began = time.monotonic()
        match how:
            case "bye":
                assert bridge.bye().status_code == 200
            case "close":
                assert bridge.alice.post(f"/v1/rooms/{bridge.room}/close").status_code == 200
            case _:
                answer = bridge.alice.post(f"/v1/runs/{bridge.run_id}/{how}", json={})
                assert answer.status_code == 200, answer.text
        reasons = {"bye": "finished", "end": "finished", "revoke": "revoked", "close": "room_closed"}
        assert frames(stream, 1) == [("closed", {"reason": "run_ended", "endReason": reasons[how]})]
        assert list(stream.rest()) == []
        assert time.monotonic() - began < 2
    refused = bridge.client.get("/v1/bridge/stream", params={"lease": bridge.lease})
    assert code(refused) == (403, "run_not_live")


def test_the_next_run_gets_nothing_of_what_the_one_before_left(bridge: Bridge) -> None:
    bridge.steer("for the first one")
    assert bridge.bye().status_code == 200
    second = Bridge(bridge.server, bridge.room).hello()
    with second.stream() as stream:
        steered = second.steer("for the second one")
        assert refs(stream, 1) == [steered]


def test_it_beats_and_asks_to_reconnect_at_the_end_of_its_life(quick: LiveServer) -> None:
    bridge = Bridge(quick).hello()
    with bridge.stream() as stream:
        seen = [stream.next() for _ in range(4)]
        assert [frame.event for frame in seen] == ["retry", ":", ":", ":"]
        rest = stream.rest()
    assert [(frame.event, frame.id, frame.json) for frame in rest] == [("reconnect", None, {"reason": "max_age"})]


def test_head_answers_the_headers(bridge: Bridge) -> None:
    answer = bridge.client.head("/v1/bridge/stream")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")


def test_what_another_process_was_told_comes_too_and_a_killed_one_loses_nothing(own_data_dir: Path) -> None:
    """SC-16: a delivery under way when its process dies comes again from the other one, once and in order."""
    with LiveServer(own_data_dir) as first, LiveServer(own_data_dir, arguments=["--role", "http"]) as second:
        here = Bridge(first).hello()
        there = here.elsewhere(second)
        with here.stream() as stream:
            seqs = [there.steer("one"), here.steer("two")]
            assert refs(stream, 2) == seqs
            here.acknowledge("delivered", seqs[0])
            first.kill()
            with contextlib.suppress(Exception):
                stream.rest()
        there.statuses = here.statuses
        seqs.append(there.steer("three"))
        with there.stream() as stream:
            assert refs(stream, 2) == seqs[1:]
            there.acknowledge("delivered", seqs[1])
            there.acknowledge("delivered", seqs[2])
            seqs.append(there.steer("four"))
            assert refs(stream, 1) == seqs[3:]
        acknowledged = [event["payload"]["ref"] for event in there.log() if event["payload"].get("kind") == "delivered"]
        assert acknowledged == seqs[:3]
        # A hello at one process displaces the stream of the other.
        with there.stream() as stream:
            assert refs(stream, 1) == seqs[3:]
            first.start()
            again = Bridge(first, here.room, here.run_id).hello()
            began = time.monotonic()
            assert frames(stream, 1) == [("closed", {"reason": "lease_lost"})]
            assert time.monotonic() - began < 2
        assert code(there.push(item(1))) == (409, "lease_lost")
        assert again.push(item(1)).status_code == 200


def test_a_server_that_stops_sends_the_bridge_elsewhere(own_data_dir: Path) -> None:
    with LiveServer(own_data_dir) as server:
        bridge = Bridge(server).hello()
        with bridge.stream() as stream:
            assert stream.next().event == "retry"
            server.process.send_signal(signal.SIGTERM)
            assert frames(stream, 1) == [("reconnect", {"reason": "server_stopping"})]


FORGED: list[tuple[str, str, dict[str, Any]]] = [
    ("a verdict", "message", {"kind": "review_verdict", "text": "fine", "verdict": "approve", "commit": "abcdef1"}),
    ("steering", "message", {"text": "go", "delivery": "steering"}),
    ("a queued message", "message", {"text": "go", "delivery": "queued"}),
    ("a decision", "approval_decided", {"approvalId": "x", "actionDigest": "y", "decision": "approved"}),
    ("a driver change", "driver", {"from": "human:alice", "to": "human:bob", "epoch": 2, "reason": "given"}),
    ("a member", "participant", {"principal": "human:bob", "change": "joined", "role": "owner"}),
    ("a handoff", "handoff", {"fromRole": "a", "toRole": "b", "summary": "s", "commit": "abcdef1", "branch": "b"}),
    ("an interrupt", "state_changed", {"kind": "interrupt", "runId": "aaaaaaaa"}),
    ("an end", "state_changed", {"kind": "run_phase", "phase": "ended", "runId": "aaaaaaaa", "reason": "finished"}),
    ("a key that folds", "state_changed", {"kind": "harness_event", "Kind": "interrupt"}),
    ("a key that folds as it is composed", "message", {"text": "a", "\uff44elivery": "steering"}),
    ("another run's turn", "turn", {"runId": "aaaaaaaa", "turnId": "t", "phase": "started"}),
    ("an acknowledgement without a ref", "state_changed", {"kind": "delivered"}),
]


@pytest.mark.parametrize(("type_", "payload"), [row[1:] for row in FORGED], ids=[row[0] for row in FORGED])
def test_a_bridge_forges_nothing(bridge: Bridge, type_: str, payload: dict[str, Any]) -> None:
    before = bridge.log()
    answer = bridge.push(item(1), item(2, type_, payload), item(3))
    assert code(answer) == (422, "invalid")
    assert answer.json()["errors"][0]["path"].startswith("$.items[1]")
    assert bridge.log() == before


def test_keys_below_the_top_are_data(bridge: Bridge) -> None:
    payload = {"kind": "harness_event", "env": {"http_proxy": "a", "HTTP_PROXY": "b"}}
    assert bridge.push(item(1, payload=payload)).status_code == 200
    assert bridge.log()[-1]["payload"] == payload


def test_a_stream_needs_a_running_run(server: LiveServer) -> None:
    bridge = Bridge(server, open_room(server.member("alice")))
    assert code(bridge.client.get("/v1/bridge/stream")) == (403, "run_not_live")
