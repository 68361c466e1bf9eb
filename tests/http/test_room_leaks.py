"""Nobody finds a byte of an entry that they are not cleared for, on any path of a room or its fork (laws 12 to 14)."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from bridges import Bridge, item
from canaries import Net, calls, canary, received
from live_server import LiveServer, open_room
from mcp_steps import request
from minutebook.domain.ids import short_id
from verbs import verb

CALLED, RETURNED, UNKNOWN, OVERSIZE, ASKED, NAMED, REASON = PLACES = (
    *("a call", "a result", "a result of an unknown call", "a call that is too large", "a request for approval"),
    *("a request that names its tool", "the reason of a decision"),
)
ENDING = ("/close", "/revoke", "/end", "/bye", "/hello", "/give", "/take", "/hold")
"""What the paths of operations end with after which the room is another one."""

BYTES = 66_123
"""Of the call that is too large: its size is told to those who are cleared alone."""


class Scene:
    """A room of olga, who is not cleared, and its fork, which is hers too; cleo is cleared. All that is restricted in
    it has a canary. run: of the room, not cleared for what it did itself."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.canaries = {place: canary(place) for place in PLACES}
        self.cleo = server.client("human:cleo", "agents-member", "sec")
        self.olga = server.client("human:olga", "agents-member")
        people = [
            {"principal": "human:cleo", "role": "collaborator", "approver": True},
            {"principal": "human:wim", "role": "watcher", "approver": True},
        ]
        self.room = open_room(self.olga, members=people)
        self.run = Bridge(server, self.room).hello()
        self._push()
        self._ask()
        self.head = self.olga.get(f"/v1/rooms/{self.room}").json()["throughSeq"]
        made = self.olga.post(f"/v1/rooms/{self.room}/fork", json={"seq": self.head})
        assert made.status_code == 201, made.text
        self.fork = made.json()["id"]

    def word(self, place: str) -> str:
        """The canary of that place."""
        return self.canaries[place].word

    def _push(self) -> None:
        result = {"status": "ok", "truncated": False, "bytes": 1}
        large = {"callId": "c3", "tool": "vault", "args": self.word(OVERSIZE), "decidedBy": None}
        room = BYTES - len(json.dumps(large, separators=(",", ":")))
        large["args"] += "x" * room
        call = {"callId": "c2", "tool": "vault", "args": {"q": self.word(CALLED)}, "decidedBy": None}
        batch = (
            item(1, "tool_call", {"callId": "c1", "tool": "shell", "args": {}, "decidedBy": None}),
            item(2, "tool_call", call),
            item(3, "tool_result", {**result, "callId": "c2", "output": self.word(RETURNED)}),
            item(4, "tool_result", {**result, "callId": "c9", "output": self.word(UNKNOWN)}),
            item(5, "tool_call", large),
            item(6, "tool_result", {**result, "callId": "c1", "output": "fine"}),
            item(7, "tool_call", {"callId": "c5", "tool": "vault", "args": {}, "decidedBy": None}),
        )
        answer = self.run.push(*batch)
        assert answer.status_code == 200, answer.text

    def _ask(self) -> None:
        """Two requests: one whose call is in the log and is decided, one that names its tool and waits."""
        first = self.run.ask("e1", action={"command": self.word(ASKED)}, call_id="c5")
        body = {"eventId": "e2", "callId": "c6", "class": "forge.pr", "action": self.word(NAMED), "tool": "vault"}
        second = self.run.client.post("/v1/bridge/approvals", json=body, params={"lease": self.run.lease})
        assert (first.status_code, second.status_code) == (200, 200), second.text
        self.approvals = [first.json()["approvalId"], second.json()["approvalId"]]
        decision = {"decision": "denied", "actionDigest": first.json()["actionDigest"], "reason": self.word(REASON)}
        decided = self.cleo.post(f"/v1/rooms/{self.room}/approvals/{self.approvals[0]}/decision", json=decision)
        assert decided.status_code == 200, decided.text


@pytest.fixture(scope="module")
def scene(server: LiveServer) -> Scene:
    """The room of these tests."""
    return Scene(server)


@pytest.fixture
def net(scene: Scene) -> Net:
    """What catches its canaries, and what else tells of them."""
    return Net(scene.canaries.values(), "vault")


def test_who_is_cleared_finds_everything(scene: Scene) -> None:
    """So that the hunts below look for what is there."""
    for room, through in ((scene.room, scene.head), (scene.fork, scene.head)):
        events = scene.cleo.get(f"/v1/rooms/{room}/events", params={"limit": 500}).text
        missing = {place for place in PLACES if scene.word(place) not in events}
        assert missing == {OVERSIZE}, "which nobody can store"
        assert str(BYTES) in events
        streamed = received(scene.cleo, f"/v1/rooms/{room}/stream", f"id: {through}\n".encode())
        assert scene.word(RETURNED).encode() in streamed


@pytest.mark.parametrize("who", ["owner", "watcher", "admin", "auditor", "run", "stranger"])
def test_law_12_no_route_and_no_stream_has_a_byte_of_it(scene: Scene, net: Net, who: str) -> None:
    client = {
        "owner": lambda: scene.olga,
        "watcher": lambda: scene.server.client("human:wim"),
        "admin": lambda: scene.server.client("human:root", "agents-admin"),
        "auditor": lambda: scene.server.client("human:otto", "agents-auditor"),
        "run": lambda: scene.run.client,
        "stranger": lambda: scene.server.client("human:eve", "agents-member", tenant="elsewhere"),
    }[who]()
    document = client.get("/v1/openapi.json").json()
    fills: dict[str, list[str]] = {
        "room_id": [scene.room, scene.fork],
        "run_id": [scene.run.run_id],
        "approval_id": scene.approvals,
        "ref": ["5"],
        "principal": [],  # who is a member stays as it is
        "job_id": [short_id(1)],
        "conversation_id": [],
        "turn": [],
        "ord_": [],
        "delivery_id": [scene.room],
        "token": ["t0ken" * 8],
        **{key: ["nowhere"] for key in ("channel", "name", "issuer")},
        **{key: [scene.room] for key in ("link_id", "plan_id", "continuation_id")},
    }
    fork, decide = "/v1/rooms/{room_id}/fork", "/v1/rooms/{room_id}/approvals/{approval_id}/decision"
    bodies: dict[tuple[str, str], list[Any]] = {
        ("post", fork): [{"seq": 7}, {"seq": 10**6}],
        ("post", decide): [{"decision": "approved", "actionDigest": "ab" * 32}],
    }
    for operation, method, path, body in calls(document, fills, bodies):
        if path.endswith("/stream") or operation.endswith(ENDING):
            continue
        net.heard(client.request(method, path, json=body), operation)
    for room in (scene.room, scene.fork):
        _read(client, room, scene.head, net)
    assert net.caught == []
    assert net.bytes > 10_000


def _read(client: httpx.Client, room: str, head: int, net: Net) -> None:
    path = f"/v1/rooms/{room}"
    for type_ in ("restricted", "tool_call", "tool_result", "approval_requested", "approval_decided"):
        net.heard(client.get(f"{path}/events", params={"type": type_, "limit": 500}), f"events of type {type_}")
    for state in ("pending", "settled"):
        net.heard(client.get(f"{path}/approvals", params={"state": state}), f"approvals that are {state}")
    events = client.get(f"{path}/events", params={"limit": 500}).text
    assert str(BYTES) not in events
    last = f"id: {head}\n".encode()
    net.look(received(client, f"{path}/stream", last, afterSeq=0), "the stream")
    net.look(received(client, f"{path}/stream", last, last_event_id=3), "a stream that is resumed")
    net.look(received(client, f"{path}/stream", b"event: state", tail=0), "a snapshot")


def test_law_12_neither_has_a_tool_or_the_command_line(scene: Scene, net: Net) -> None:
    for since in (0, 4, 7):
        read = request("tools/call", name="room_read", arguments={"sinceSeq": since})
        net.heard(scene.run.client.post("/mcp", json=read), "room_read")
    with scene.run.stream() as stream:
        decided = stream.next()
        while decided.event != "decision":
            decided = stream.next()
        assert scene.word(REASON) in decided.data, "a run hears what became of its own request"
    token = scene.server.token("human:olga", "agents-member")
    access = ("--url", scene.server.url, "--token", token)
    for arguments in (
        ("tail", scene.room, "--no-follow", "--tail", "500", "--json", *access),
        ("tail", scene.room, "--no-follow", "--tail", "500", "--full", *access),
        ("tail", scene.fork, "--no-follow", "--tail", "500", *access),
        ("rooms", "show", scene.room, *access),
        ("rooms", "list", *access),
        ("rooms", "export", scene.fork, *access),
    ):
        done = verb(*arguments)
        assert done.code == 0, done.said
        net.look(done.out + done.err, " ".join(arguments[:2]))
    assert net.caught == []


def test_law_13_no_number_tells_of_a_request_that_one_may_not_see(scene: Scene) -> None:
    for room in (scene.room, scene.fork):
        for client, count in ((scene.olga, 0), (scene.cleo, 1 if room == scene.room else 0)):
            seen = client.get(f"/v1/rooms/{room}").json()
            assert len(seen["approvals"]["pending"]) == count
            listed = {each["id"]: each for each in client.get("/v1/rooms", params={"limit": 200}).json()["rooms"]}
            if room in listed:
                assert listed[room]["phase"] == seen["phase"]
            assert (seen["phase"] == "AwaitingHuman") == (count == 1)


def test_the_log_of_the_server_and_its_metrics_have_none_of_it(scene: Scene, net: Net) -> None:
    for path in ("/metrics", "/healthz", "/readyz", "/v1/openapi.json"):
        net.heard(scene.olga.get(path), path)
    net.look(scene.server.logs(), "the server's log")
    assert net.caught == []
