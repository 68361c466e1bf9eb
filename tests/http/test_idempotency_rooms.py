"""Every keyed command of rooms and runs: the same key again is one effect and the first answer (rules.md law 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from bridges import Bridge, item, new_run_id
from live_server import LiveServer, open_room

CARL = {"principal": "human:carl", "role": "collaborator"}


class Scene:
    """A room of alice's with a running run, a queued message, and a request that waits."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.alice = server.member("alice")
        self.room = open_room(self.alice, members=[CARL])
        self.bridge = Bridge(server, self.room).hello()
        called = {"callId": "c1", "tool": "open_pr", "args": {}, "decidedBy": None}
        assert self.bridge.push(item(1, "tool_call", called)).status_code == 200
        self.asked = self.bridge.ask("e1").json()
        queued = {"text": "for the next run", "delivery": "queued"}
        self.ref = self.alice.post(f"/v1/rooms/{self.room}/messages", json=queued).json()["seq"]

    def idle(self) -> Scene:
        """The scene once its run has ended."""
        assert self.bridge.bye().status_code == 200
        return self


Command = tuple[str, str, Any, Any]
"""Method, path within the room or below /v1, body, and another body that is taken for another request."""


def in_room(method: str, path: str, body: Any = None, other: Any = None) -> Callable[[Scene], Command]:
    """A command whose words do not depend on the scene."""
    return lambda scene: (method, f"/v1/rooms/{scene.room}/{path}", body, other)


def of_run(method: str, path: str, body: Any, other: Any) -> Callable[[Scene], Command]:
    """A command on the scene's run."""
    return lambda scene: (method, f"/v1/runs/{scene.bridge.run_id}{path}", body, other)


def promoted(scene: Scene) -> Command:
    return "POST", f"/v1/rooms/{scene.room}/queue/{scene.ref}/promote", {"driverEpoch": 1}, {"driverEpoch": 2}


def unqueued(scene: Scene) -> Command:
    return "DELETE", f"/v1/rooms/{scene.room}/queue/{scene.ref}", None, None


def requested(scene: Scene) -> Command:
    return "POST", f"/v1/rooms/{scene.idle().room}/runs", {"role": "tester"}, {"role": "triager"}


def registered(scene: Scene) -> Command:
    body = {"roomId": scene.room, "role": "tester"}
    return "PUT", f"/v1/runs/{new_run_id()}", body, {**body, "branch": "other"}


def decided(scene: Scene) -> Command:
    body = {"decision": "approved", "actionDigest": scene.asked["actionDigest"]}
    url = f"/v1/rooms/{scene.room}/approvals/{scene.asked['approvalId']}/decision"
    return "POST", url, body, {**body, "decision": "denied"}


def opened(scene: Scene) -> Command:
    return "POST", "/v1/rooms", {"dataClass": "internal"}, {"dataClass": "public"}


STEERING = {"text": "left", "delivery": "steering", "driverEpoch": 1}
VERDICT = {"kind": "review_verdict", "text": "Fine.", "verdict": "approve", "commit": "0a1b2c3d"}

COMMANDS: list[tuple[str, Callable[[Scene], Command], int]] = [
    ("openRoom", opened, 201),
    ("postMessage", in_room("POST", "messages", {"text": "once"}, {"text": "twice"}), 201),
    ("postMessage", in_room("POST", "messages", {"text": "x", "delivery": "queued"}, {"text": "x"}), 201),
    ("postMessage", in_room("POST", "messages", STEERING, {**STEERING, "text": "right"}), 201),
    ("postMessage", in_room("POST", "messages", VERDICT, {**VERDICT, "verdict": "changes"}), 201),
    ("removeQueued", unqueued, 200),
    ("promoteQueued", promoted, 200),
    ("requestDriver", in_room("POST", "driver/request", {}), 200),
    ("giveDriver", in_room("POST", "driver/give", {"to": "human:carl", "driverEpoch": 1},
                           {"to": "human:alice", "driverEpoch": 1}), 200),
    ("takeDriver", in_room("POST", "driver/take", {"reason": "mine"}, {"reason": "still mine"}), 200),
    ("interruptRun", in_room("POST", "interrupt", {"driverEpoch": 1}, {"driverEpoch": 2}), 202),
    ("requestRun", requested, 202),
    ("registerRun", registered, 201),
    ("endRun", of_run("POST", "/end", {"reason": "stuck"}, {"reason": "error"}), 200),
    ("revokeRun", of_run("POST", "/revoke", {"reason": "odd"}, {}), 200),
    ("decideApproval", decided, 200),
    ("putMember", in_room("PUT", "members/human:bob", {"role": "watcher"}, {"role": "owner"}), 200),
    ("deleteMember", in_room("DELETE", "members/human:carl"), 200),
    ("setHold", in_room("POST", "hold", {"reason": "lawsuit"}, {"reason": "audit"}), 200),
    ("releaseHold", in_room("POST", "release", {"reason": "settled"}, {"reason": "over"}), 200),
    ("forkRoom", in_room("POST", "fork", {"seq": 1}, {"seq": 2}), 201),
    ("closeRoom", in_room("POST", "close", {"reason": "over"}, {}), 200),
]  # fmt: skip


def is_replay(answer: httpx.Response) -> bool:
    return answer.headers.get("idempotency-replayed") == "true"


def assert_receipt(server: LiveServer, url: str, answer: dict[str, Any]) -> None:
    """Every command's answer says what the chain is at its seq: who keeps it can prove a later rewrite (rooms.md)."""
    with server.sql() as connection:
        found = connection.execute(
            "SELECT s.name FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
            " WHERE e.seq = %s AND encode(e.hash, 'hex') = %s",
            (answer["seq"], answer["chain"]),
        ).fetchall()
    assert len(found) == 1, (url, answer)
    room = url.split("/")[3] if url.startswith("/v1/rooms/") and not url.endswith("/fork") else None
    assert room is None or found[0][0] == f"room:{room}"


@pytest.mark.parametrize(("prepare", "status"), [row[1:] for row in COMMANDS], ids=[row[0] for row in COMMANDS])
def test_b48_one_key_is_one_effect(server: LiveServer, prepare: Callable[[Scene], Command], status: int) -> None:
    scene = Scene(server)
    method, url, body, other = prepare(scene)
    headers = {"idempotency-key": f"again-{scene.room}"}
    first = scene.alice.request(method, url, json=body, headers=headers)
    assert first.status_code == status, first.text
    assert not is_replay(first)
    assert_receipt(server, url, first.json())
    with server.sql() as connection:
        count = "SELECT count(*) FROM minutebook.events"
        after = connection.execute(count).fetchone()
        for _ in range(2):
            again = scene.alice.request(method, url, json=body, headers=headers)
            assert (again.status_code, again.json(), is_replay(again)) == (status, first.json(), True)
        if other is not None:
            reused = scene.alice.request(method, url, json=other, headers=headers)
            assert (reused.status_code, reused.json()["code"]) == (422, "idempotency_key_reused")
        assert connection.execute(count).fetchone() == after


def test_every_keyed_command_is_among_them(server: LiveServer) -> None:
    document = server.member("alice").get("/v1/openapi.json").json()
    keyed = {
        operation["operationId"]
        for url, path in document["paths"].items()
        # Those are in test_conversations.py, test_ops_deliveries.py and test_background.py.
        if not url.startswith(("/v1/conversations", "/v1/ops", "/v1/continuations", "/v1/links"))
        for operation in path.values()
        if any(parameter["name"] == "Idempotency-Key" for parameter in operation.get("parameters", ()))
    }
    assert keyed == {row[0] for row in COMMANDS}


NO_RECEIPT = {
    "acknowledge",
    "beginSession",
    "endSession",
    "noteSeen",
    "reconcileDeliveries",
    "takeInbound",
    "takeReceipts",
}
"""What appends nothing."""


def test_a_bridge_gets_receipts_too(server: LiveServer) -> None:
    """Its pushes, requests and its end: whoever runs it can keep them."""
    scene = Scene(server)
    again = scene.bridge.client.post("/v1/bridge/hello").json()
    scene.bridge.lease = again["lease"]
    answers = {
        "hello": again,
        "push": scene.bridge.push(item(2)).json(),
        "heartbeat": scene.bridge.push().json(),
        "ask": scene.bridge.ask("e1").json(),
        "ask again": scene.bridge.ask("e2", "forge.push").json(),
        "bye": scene.bridge.bye().json(),
    }
    for what, answer in answers.items():
        assert {"seq", "chain"} <= set(answer), (what, answer)
        assert_receipt(server, f"/v1/rooms/{scene.room}/{what}", answer)


def test_every_command_of_the_document_promises_a_receipt(server: LiveServer) -> None:
    document = server.member("alice").get("/v1/openapi.json").json()
    schemas = document["components"]["schemas"]
    without: dict[str, Any] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method == "get" or not path.startswith("/v1/"):
                continue
            for status, response in operation["responses"].items():
                if status.startswith("2"):
                    content = response.get("content", {}).get("application/json", {}).get("schema", {})
                    schema = schemas.get(content.get("$ref", "").rpartition("/")[2], content)
                    if not {"seq", "chain"} <= set(schema.get("required", ())):
                        without[operation["operationId"]] = schema.get("required")
    assert set(without) == NO_RECEIPT
