"""Requests for approval and their decisions over HTTP, by people (rooms.md, Approvals; SC-5)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from bridges import Bridge, code, frames, item
from live_server import LiveServer, open_room

ACTION = {"tool": "open_pr", "args": {"title": "Größe", "token": "password=hunter2hunter2Zq9"}}


def decide(client: httpx.Client, bridge: Bridge, asked: dict[str, Any], **fields: Any) -> httpx.Response:
    """Decide a request; approve it where `fields` say nothing else."""
    body = {"decision": "approved", "actionDigest": asked["actionDigest"], **fields}
    return client.post(f"/v1/rooms/{bridge.room}/approvals/{asked['approvalId']}/decision", json=body)


def cards(client: httpx.Client, bridge: Bridge, **query: str) -> list[dict[str, Any]]:
    """The requests that wait, or those that `query` asks for."""
    answer = client.get(f"/v1/rooms/{bridge.room}/approvals", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["approvals"]


def call(number: int, call_id: str, tool: str = "open_pr") -> dict[str, Any]:
    """An item that says which tool a call is of: of an unknown one the request is as secret as any tool."""
    return item(number, "tool_call", {"callId": call_id, "tool": tool, "args": {}, "decidedBy": None})


@pytest.fixture
def bridge(server: LiveServer) -> Bridge:
    """A running run in alice's room; anna and abel may decide, carl may not."""
    alice = server.member("alice")
    people = [
        {"principal": "human:anna", "role": "watcher", "approver": True},
        {"principal": "human:abel", "role": "collaborator", "approver": True},
        {"principal": "human:carl", "role": "collaborator"},
    ]
    bridge = Bridge(server, open_room(alice, members=people)).hello()
    assert bridge.push(call(1, "c1"), call(2, "c2")).status_code == 200
    return bridge


def test_a_card_shows_the_call_and_who_caused_it(server: LiveServer, bridge: Bridge) -> None:
    asked = bridge.ask("e1", action=ACTION).json()
    (card,) = cards(server.client("human:carl"), bridge)
    seq = card["seq"]
    assert card == {
        "approvalId": asked["approvalId"],
        "runId": bridge.run_id,
        "callId": "c1",
        "class": "forge.pr",
        "action": {"tool": "open_pr", "args": card["action"]["args"]},
        "actionDigest": asked["actionDigest"],
        "promptedBy": [],
        "expiresAt": asked["expiresAt"],
        "seq": seq,
        "state": "pending",
    }
    assert "hunter2" not in str(card["action"])
    snapshot = bridge.alice.get(f"/v1/rooms/{bridge.room}").json()
    assert snapshot["phase"] == "AwaitingHuman"
    assert snapshot["approvals"]["pending"] == [
        {
            "approvalId": asked["approvalId"],
            "runId": bridge.run_id,
            "class": "forge.pr",
            "expiresAt": asked["expiresAt"],
            "seq": seq,
        }
    ]


def test_the_first_decision_wins_and_reaches_the_run(server: LiveServer, bridge: Bridge) -> None:
    asked = bridge.ask("e1").json()
    anna, abel = server.client("human:anna"), server.client("human:abel")
    with bridge.stream() as stream:
        first = decide(anna, bridge, asked, reason="looks right")
        assert first.status_code == 200
        assert set(first.json()) == {"seq", "id", "chain", "decision"}
        assert first.json()["decision"] == "approved"
        second = decide(abel, bridge, asked, decision="denied")
        assert code(second) == (409, "already_decided")
        assert second.json()["decision"] == "approved"
        ((event, data),) = frames(stream, 1)
        assert (event, data["allow"], data["reason"]) == ("decision", True, "looks right")
    assert cards(anna, bridge) == []
    (settled,) = cards(anna, bridge, state="settled")
    assert (settled["state"], settled["approvalId"]) == ("approved", asked["approvalId"])
    assert bridge.alice.get(f"/v1/rooms/{bridge.room}").json()["phase"] == "Active"


def test_two_approvers_within_a_second(server: LiveServer, bridge: Bridge) -> None:
    """SC-5: one decision, one already_decided, and the tool result comes after the decision."""
    asked = bridge.ask("e1").json()
    clients = [server.client(f"human:{name}") for name in ("anna", "abel")]
    words = ("approved", "denied")
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda n: decide(clients[n], bridge, asked, decision=words[n]), range(2)))
    won, lost = sorted(answers, key=lambda answer: answer.status_code)
    assert (won.status_code, code(lost)) == (200, (409, "already_decided"))
    assert lost.json()["decision"] == won.json()["decision"]
    result = {"callId": "c1", "status": "ok", "output": "done", "truncated": False, "bytes": 4}
    assert bridge.push(item(3, "tool_result", result)).status_code == 200
    types = [event["type"] for event in bridge.log()]
    assert types.count("approval_decided") == 1
    assert types.index("approval_decided") < types.index("tool_result")


def test_a_decision_is_for_exactly_that_call(server: LiveServer, bridge: Bridge) -> None:
    first, second = (bridge.ask(f"e{n}", action={"n": n}, call_id=f"c{n}").json() for n in (1, 2))
    anna = server.client("human:anna")
    other = decide(anna, bridge, first, actionDigest=second["actionDigest"])
    assert code(other) == (409, "digest_mismatch")
    assert [card["approvalId"] for card in cards(anna, bridge)] == [first["approvalId"], second["approvalId"]]
    assert decide(anna, bridge, first, decision="denied").status_code == 200
    assert [card["approvalId"] for card in cards(anna, bridge)] == [second["approvalId"]]


def test_who_may_not_decide(server: LiveServer, bridge: Bridge) -> None:
    asked = bridge.ask("e1").json()
    for client in (server.client("human:carl"), server.client("system:ci"), bridge.client):
        assert code(decide(client, bridge, asked)) == (403, "forbidden")
    for unknown in ({"approvalId": "01J00000000000000000000000"}, {"approvalId": "x"}):
        assert code(decide(bridge.alice, bridge, {**asked, **unknown})) == (404, "not_found")
    for body in ({"decision": "expired"}, {"reason": "ü" * 129}, {"reason": ""}, {"colour": "red"}):
        assert code(decide(bridge.alice, bridge, asked, **body)) == (422, "invalid")
    assert len(cards(bridge.alice, bridge)) == 1


def test_four_eyes(server: LiveServer) -> None:
    alice = server.member("alice")
    room = open_room(
        alice,
        approvals={"fourEyes": True},
        members=[{"principal": "human:anna", "role": "watcher", "approver": True}],
    )
    wanted = alice.post(f"/v1/rooms/{room}/runs", json={"role": "implementer"}).json()
    bridge = Bridge(server, room, wanted["runId"]).hello()
    assert bridge.push(call(1, "c1")).status_code == 200
    asked = bridge.ask("e1").json()
    assert cards(alice, bridge)[0]["promptedBy"] == ["human:alice"]
    assert code(decide(alice, bridge, asked)) == (403, "four_eyes")
    assert decide(server.client("human:anna"), bridge, asked).status_code == 200


def test_a_request_whose_run_has_left_is_superseded(server: LiveServer, bridge: Bridge) -> None:
    asked = bridge.ask("e1").json()
    assert bridge.bye().status_code == 200
    late = decide(server.client("human:anna"), bridge, asked)
    assert code(late) == (409, "already_decided")
    assert late.json()["decision"] == "superseded"
    (settled,) = cards(bridge.alice, bridge, state="settled")
    assert settled["state"] == "superseded"


def test_what_one_is_not_cleared_for_is_not_there(server: LiveServer, bridge: Bridge) -> None:
    assert bridge.push(call(3, "c9", "vault")).status_code == 200
    asked = bridge.ask("e9", call_id="c9").json()
    anna, cleared = server.client("human:anna"), server.client("human:anna", "sec")
    assert cards(anna, bridge) == []
    assert code(decide(anna, bridge, asked)) == (404, "not_found")
    blind = anna.get(f"/v1/rooms/{bridge.room}").json()
    assert (blind["phase"], blind["approvals"]["pending"]) == ("Active", [])
    assert [card["approvalId"] for card in cards(cleared, bridge)] == [asked["approvalId"]]
    assert cleared.get(f"/v1/rooms/{bridge.room}").json()["phase"] == "AwaitingHuman"
    assert decide(cleared, bridge, asked).status_code == 200
    assert cards(anna, bridge, state="settled") == []


def test_a_request_that_comes_before_its_call_is_for_who_may_see_any_call(server: LiveServer, bridge: Bridge) -> None:
    """Law 14: nobody knows yet what it was made from, unless the run names the tool."""
    asked = bridge.ask("e9", call_id="c9").json()
    anna, cleared = server.client("human:anna"), server.client("human:anna", "sec")
    assert cards(anna, bridge) == []
    events = anna.get(f"/v1/rooms/{bridge.room}/events", params={"limit": 500}).json()["events"]
    assert [(each["type"], each["payload"]) for each in events[-1:]] == [("restricted", {})]
    assert code(decide(anna, bridge, asked)) == (404, "not_found")
    body = {"callId": "c10", "class": "forge.pr", "action": ACTION}
    for tool, seen in (("open_pr", True), ("vault", False)):
        named = bridge.client.post(
            "/v1/bridge/approvals", json={**body, "eventId": tool, "tool": tool}, params={"lease": bridge.lease}
        )
        assert named.status_code == 200, named.text
        assert (named.json()["approvalId"] in [card["approvalId"] for card in cards(anna, bridge)]) is seen
    assert len(cards(cleared, bridge)) == 3
    assert decide(cleared, bridge, asked).status_code == 200


def test_only_two_states_can_be_asked_for(bridge: Bridge) -> None:
    answer = bridge.alice.get(f"/v1/rooms/{bridge.room}/approvals", params={"state": "all"})
    assert code(answer) == (422, "invalid")
