"""A run asks for leave: once per number of its own, answered at once where the room's policy knows (rooms.md)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from bridges import Bridge, code, frames
from live_server import LiveServer, open_room

ACTION = {"command": "gh pr create", "z": [1, 2.5, None], "a": {"token": "ü"}}


@pytest.fixture
def bridge(server: LiveServer) -> Bridge:
    """A running run in an attended room."""
    return Bridge(server).hello()


def entries(bridge: Bridge) -> list[tuple[str, dict[str, Any]]]:
    """The entries on approvals."""
    return [(event["type"], event) for event in bridge.log() if event["type"].startswith("approval")]


def digest(approval_id: str) -> str:
    """As rooms.md has it: SHA-256 over the id and the canonical JSON of the action."""
    canonical = '{"a":{"token":"ü"},"command":"gh pr create","z":[1,2.5,null]}'
    return hashlib.sha256((approval_id + canonical).encode()).hexdigest()


def test_a_request_waits_for_a_person_and_the_same_number_is_the_same_request(bridge: Bridge) -> None:
    first = bridge.ask("e1", action=ACTION)
    assert first.status_code == 200, first.text
    asked = first.json()
    assert set(asked) == {"approvalId", "actionDigest", "expiresAt", "seq", "chain"}
    assert asked["actionDigest"] == digest(asked["approvalId"])
    assert bridge.ask("e1", action=ACTION).json() == asked
    assert bridge.hello().ask("e1", action=ACTION).json() == asked
    assert len(entries(bridge)) == 1
    decided = bridge.decide(asked)
    after = bridge.ask("e1", action=ACTION).json()
    assert after == {**asked, "decision": "approved", "seq": decided, "chain": after["chain"]}
    with bridge.stream() as stream:
        assert frames(stream, 1)[0][1]["ref"] == decided
    assert [kind for kind, _ in entries(bridge)] == ["approval_requested", "approval_decided"]


@pytest.mark.parametrize("change", [{"action": {"command": "rm"}}, {"call_id": "c2"}, {"class_": "mcp.write"}])
def test_a_number_stands_for_one_action(bridge: Bridge, change: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"action": ACTION}
    assert bridge.ask("e1", **asked).status_code == 200
    assert code(bridge.ask("e1", **(asked | change))) == (422, "idempotency_key_reused")
    assert len(entries(bridge)) == 1


@pytest.mark.parametrize(("class_", "decision"), [("forge.push", "approved"), ("mcp.write", "denied")])
def test_what_the_policy_knows_is_answered_at_once_and_recorded(server: LiveServer, class_: str, decision: str) -> None:
    room = open_room(server.member("alice"), approvals={"profile": "unattended"})
    bridge = Bridge(server, room).hello()
    asked = bridge.ask("e1", class_).json()
    assert asked["decision"] == decision
    (_, requested), (_, decided) = entries(bridge)
    assert decided["actor"] == {"kind": "system", "id": "policy"}
    assert (requested["seq"], decided["causedBy"]) == (decided["seq"] - 1, requested["seq"])
    assert decided["payload"]["actionDigest"] == asked["actionDigest"]
    assert bridge.ask("e1", class_).json() == asked
    with bridge.stream() as stream:
        steered = bridge.steer("nothing of it is sent again")
        assert frames(stream, 1)[0][1]["ref"] == steered


def test_the_log_has_the_action_without_its_secrets_and_the_digest_of_what_it_was(bridge: Bridge) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    asked = bridge.ask("e1", action={"token": secret}).json()
    stored = entries(bridge)[0][1]["payload"]
    assert secret not in str(stored)
    expected = hashlib.sha256(f'{asked["approvalId"]}{{"token":"{secret}"}}'.encode()).hexdigest()
    assert stored["actionDigest"] == asked["actionDigest"] == expected


def test_a_run_decides_nothing(bridge: Bridge) -> None:
    asked = bridge.ask("e1").json()
    url = f"/v1/rooms/{bridge.room}/approvals/{asked['approvalId']}/decision"
    body = {"decision": "approved", "actionDigest": asked["actionDigest"]}
    assert code(bridge.client.post(url, json=body)) == (403, "forbidden")
    assert len(entries(bridge)) == 1


def test_too_many_at_once_and_too_large_ones_are_refused(bridge: Bridge) -> None:
    assert code(bridge.ask("big", action={"text": "x" * 65_536})) == (413, "payload_too_large")
    for number in range(32):
        assert bridge.ask(f"e{number}", call_id=f"c{number}").status_code == 200
    assert code(bridge.ask("one more")) == (409, "too_many_pending")
    assert bridge.ask("e0", call_id="c0").status_code == 200


def test_the_end_of_the_run_supersedes_what_waits(bridge: Bridge) -> None:
    bridge.ask("e1")
    assert bridge.bye().status_code == 200
    assert [each["payload"].get("decision") for _, each in entries(bridge)] == [None, "superseded"]
    assert code(bridge.ask("e2")) == (403, "run_not_live")
