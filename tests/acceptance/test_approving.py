"""SC-5, SC-6: one decision, whoever is asked and however late (rooms.md, Done means)."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from approvers import APPROVERS, WORDS, approved_room, approvers_at, both_decide, decide, decisions
from bridges import code, frames, item
from live_server import LiveServer, until

ROUNDS = 500
ROOMS = 20
"""A run waits for at most 32 requests, decisions that it has not acknowledged among them."""


def test_sc_5_two_approvers_within_a_second_are_one_decision(server: LiveServer, other: LiveServer) -> None:
    bridge = approved_room(server)
    asked = bridge.ask("e1").json()
    with bridge.elsewhere(other).stream() as stream, ThreadPoolExecutor(2) as pool:
        decision, winner = both_decide(pool, approvers_at(server, other), bridge.room, asked)
        ((event, data),) = frames(stream, 1)
        assert (event, data["approvalId"], data["allow"]) == ("decision", asked["approvalId"], decision == WORDS[0])
    result = {"callId": "c1", "status": "ok", "output": "done", "truncated": False, "bytes": 4}
    assert bridge.push(item(1, "tool_result", result)).status_code == 200
    (decided,) = decisions(bridge)
    assert decided["actor"]["id"] == APPROVERS[winner]
    (returned,) = [event["seq"] for event in bridge.log() if event["type"] == "tool_result"]
    assert returned > decided["seq"]


def test_sc_5_five_hundred_times_at_the_same_instant(server: LiveServer, other: LiveServer) -> None:
    clients = approvers_at(server, other)
    won: Counter[int] = Counter()
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROOMS):
            bridge = approved_room(server)
            words: dict[str, str] = {}
            for number in range(ROUNDS // ROOMS):
                asked = bridge.ask(f"e{number}", call_id=f"c{number}").json()
                words[asked["approvalId"]], winner = both_decide(pool, clients, bridge.room, asked)
                won[winner] += 1
            stored = [event["payload"] for event in decisions(bridge)]
            assert {each["approvalId"]: each["decision"] for each in stored} == words
            assert len(stored) == len(words)
    assert min(won[0], won[1]) > 0, "they did race"


def passed(expires_at: str) -> bool:
    """Whether that time is over."""
    return datetime.now(UTC) > datetime.fromisoformat(expires_at)


def test_sc_6_a_decision_after_the_time_is_the_expiry(server: LiveServer, other: LiveServer) -> None:
    bridge = approved_room(server, profile="unattended", overrides={"forge.pr": "human"}, ttl="1s")
    asked = bridge.ask("e1").json()
    with bridge.elsewhere(other).stream() as stream:
        until(lambda: passed(asked["expiresAt"]), what="the end of its time")
        clients = approvers_at(server, other)
        for client in clients:
            late = decide(client, bridge.room, asked)
            assert code(late) == (409, "already_decided")
            assert late.json()["decision"] == "expired"
        ((event, data),) = frames(stream, 1)
        assert (event, data["approvalId"], data["allow"]) == ("decision", asked["approvalId"], False)
    (decided,) = decisions(bridge)
    assert decided["actor"] == {"kind": "system", "id": "minutebook"}
    assert (decided["payload"]["decision"], decided["payload"]["approvalId"]) == ("expired", asked["approvalId"])
