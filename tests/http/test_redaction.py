"""Secrets reach no table, no frame, no answer and no log line, whatever they ride in (rules.md, law 28)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from bad_input import JSON, refused
from live_server import LiveServer, follow, open_room
from minutebook.domain.ids import short_id
from minutebook.infra.dev_issuer import DevelopmentIssuer
from minutebook.infra.server_key import server_key
from minutebook.infra.settings_load import load
from table_rows import rows

TOKEN = "ghp_" + "aB3dE5" * 6
JWT = "eyJ" + "hbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJodW1hbjphbGljZSJ9." + "c2lnbmF0dXJlLWluLWJhc2U2NA"
CORP = "corp_" + "0123456789"
IN_BASE64 = base64.b64encode(f"user:{TOKEN}".encode()).decode()
IN_URL = "password%3Dkq9%21xv2Zq"
WHY = f"because of {TOKEN} {JWT}"

CONFIG = """
[[redaction.rules]]
id = "corp-token"
description = "ours"
keywords = ["corp_"]
pattern = "corp_[0-9]{10}"
positive = ["a corp_0000000000"]
"""


class Scene:
    """A server with a room and a running run, and every byte that it answered."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.answers: list[bytes] = []
        issuer_key = DevelopmentIssuer.open(server.data_dir).key
        self.known = [issuer_key.hex(), base64.b64encode(server_key(load(server.data_dir, {}))).decode()]
        self.planted = [TOKEN, JWT, CORP, IN_BASE64, *self.known, IN_URL.partition("%3D")[2]]
        self.alice = server.member("alice")
        self.room = open_room(self.alice, title=f"about {TOKEN}", repository=f"https://x:{TOKEN}@forge.example/a")
        self.run = short_id(77)
        self.bridge = server.client(f"agent:{self.run}", room=self.room)
        self.say(self.bridge, "POST", "/v1/bridge/hello")
        self.seq = 0

    @property
    def text(self) -> str:
        """A text with all that is planted."""
        return " and ".join([*self.planted[:-1], IN_URL])

    def say(self, client: httpx.Client, method: str, path: str, **sent: Any) -> httpx.Response:
        """A request whose answer is kept."""
        answer = client.request(method, path, **sent)
        self.answers.append(answer.content + repr(answer.headers).encode())
        return answer

    def push(self, type_: str, **payload: Any) -> httpx.Response:
        """One item of the bridge."""
        self.seq += 1
        item = {"stream": "events", "seq": self.seq, "type": type_, "payload": payload}
        return self.say(self.bridge, "POST", "/v1/bridge/events", json={"items": [item]})

    def events(self) -> list[dict[str, Any]]:
        """All envelopes of the room."""
        return self.say(self.alice, "GET", f"/v1/rooms/{self.room}/events").json()["events"]


@pytest.fixture(scope="module")
def scene(new_data_dir: Callable[[], Path]) -> Iterator[Scene]:
    """A server of its own, with a rule of its operator."""
    with LiveServer(new_data_dir(), config=CONFIG) as server:
        yield Scene(server)


def plant_everywhere(scene: Scene) -> None:
    """Everything into everything that a client may choose."""
    text, room, alice = scene.text, f"/v1/rooms/{scene.room}", scene.alice
    assert scene.say(alice, "POST", f"{room}/messages", json={"text": text}).status_code == 201
    assert (
        scene.say(alice, "POST", f"{room}/messages", json={"text": "x"}, headers={"idempotency-key": TOKEN}).status_code
        == 201
    )
    assert scene.say(alice, "PUT", f"{room}/members/human:{TOKEN}", json={"role": "watcher"}).status_code == 200
    args = {"cmd": f"curl -H 'Authorization: Bearer {TOKEN}'", "env": {TOKEN: JWT, "deep": [[{"a": [text]}]]}}
    assert scene.push("tool_call", callId="c1", tool="shell", args=args, decidedBy=None).status_code == 200
    assert (
        scene.push("tool_call", callId=TOKEN, tool=JWT, args=json.dumps(json.dumps(args)), decidedBy=None).status_code
        == 200
    )
    result = {"callId": "c1", "status": "ok", "output": f"{text}\n{text}", "truncated": False, "bytes": 9}
    assert scene.push("tool_result", **result).status_code == 200
    assert scene.push("state_changed", kind="harness_event", note=text, **{f"k {JWT}": text}).status_code == 200
    assert scene.push("message", text=text, to=[f"human:{CORP}"]).status_code == 200
    collision = {TOKEN: 1, TOKEN[:-1] + "Z": 2}
    assert scene.push("tool_call", callId="c2", tool="shell", args=collision, decidedBy=None).status_code == 200


def plant_in_acts(scene: Scene) -> None:
    """Everything into the queue, an action that asks for approval, and the reasons and notes of what people do."""
    text, room, alice = scene.text, f"/v1/rooms/{scene.room}", scene.alice
    queued = {"text": text, "delivery": "queued"}
    assert scene.say(alice, "POST", f"{room}/messages", json=queued).status_code == 201
    asked = {"eventId": "e1", "callId": "c9", "class": "forge.pr", "action": {"run": text, TOKEN: [text]}}
    action = scene.say(scene.bridge, "POST", "/v1/bridge/approvals", json=asked)
    assert action.status_code == 200
    denied = {"decision": "denied", "actionDigest": action.json()["actionDigest"], "reason": WHY}
    path = f"{room}/approvals/{action.json()['approvalId']}/decision"
    assert scene.say(alice, "POST", path, json=denied).status_code == 200
    assert scene.say(alice, "GET", f"{room}/approvals", params={"state": "denied"}).status_code < 500
    verdict = {"kind": "review_verdict", "text": text, "verdict": "changes", "commit": "abcdef0"}
    assert scene.say(alice, "POST", f"{room}/messages", json=verdict).status_code == 201
    for act in ("hold", "release", "driver/take"):
        assert scene.say(alice, "POST", f"{room}/{act}", json={"reason": WHY}).status_code == 200
    fork = scene.say(alice, "POST", f"{room}/fork", json={"seq": 3, "note": WHY})
    assert fork.status_code == 201
    for path in ("", "/events", "/export"):
        assert scene.say(alice, "GET", f"/v1/rooms/{fork.json()['id']}{path}").status_code == 200
    assert scene.say(alice, "POST", f"/v1/runs/{scene.run}/revoke", json={"reason": WHY}).status_code == 200


def plant_in_refusals(scene: Scene) -> None:
    """Everything into what is refused; the answers are kept."""
    text, room, alice = scene.text, f"/v1/rooms/{scene.room}", scene.alice
    bodies: list[Any] = [
        {"text": "x", text: 1},
        {"text": "x", "delivery": text},
        {"text": "x", "to": [text]},
        {"text": {text: text}},
        {"text": "x", "kind": JWT},
    ]
    for body in bodies:
        assert scene.say(alice, "POST", f"{room}/messages", json=body).status_code == 422
    twice = f'{{"text":"x","{TOKEN}":1,"{TOKEN}":2}}'
    nul = f'{{"text":"x","{JWT}":"a\\u0000b"}}'
    cut = f'{{"text":"x","{"x" * 150}{JWT}":1}}'
    for raw in (twice, nul, cut, f'{{"text":"{TOKEN}'):
        assert scene.say(alice, "POST", f"{room}/messages", content=raw.encode(), headers=JSON).status_code in (
            400,
            422,
        )
    for path in (f"/v1/{TOKEN}", f"/v1/rooms/{CORP}", f"{room}/members/agent:{TOKEN}", f"{room}/explain?action={JWT}"):
        assert scene.say(alice, "GET", path).status_code >= 400
    assert scene.say(alice, "GET", f"{room}/events", params={"afterSeq": TOKEN}).status_code >= 400
    assert scene.say(alice, "GET", f"{room}/stream", headers={"last-event-id": TOKEN}).status_code >= 400
    assert scene.say(alice, "PUT", f"{room}/members/{TOKEN}", json={"role": "watcher"}).status_code == 422
    by_key = {"idempotency-key": JWT * 3}
    assert scene.say(alice, "POST", f"{room}/messages", json={"text": "x"}, headers=by_key).status_code == 201
    forged = {"items": [{"stream": "events", "seq": 99, "type": TOKEN, "payload": {}}]}
    assert scene.say(scene.bridge, "POST", "/v1/bridge/events", json=forged).status_code == 422
    alike = {"items": [{"stream": "events", "seq": 99, "type": "turn", "payload": {"Phase": JWT, TOKEN: 1}}]}
    assert scene.say(scene.bridge, "POST", "/v1/bridge/events", json=alike).status_code == 422
    assert scene.server.client().get("/v1/rooms", headers={"authorization": f"Bearer {JWT}"}).status_code == 401


def holds(text: str, planted: list[str]) -> list[str]:
    """Which of the planted are in a text, also as the bytes of a bytea."""
    return [each for each in planted if each in text or each.encode().hex() in text]


def test_sc_8_a_planted_token_and_jwt_are_in_no_row_frame_answer_or_log_line(scene: Scene) -> None:
    plant_everywhere(scene)
    plant_in_refusals(scene)
    plant_in_acts(scene)
    room = f"/v1/rooms/{scene.room}"
    events = scene.events()
    for path in ("", "/transcript", "/export"):
        assert scene.say(scene.alice, "GET", room + path).status_code in (200, 403)
    scene.say(scene.alice, "GET", "/v1/rooms")
    with follow(scene.alice, scene.room, "0") as stream:
        frames = [stream.until("event")[-1] for _ in events]
    closed = scene.say(scene.alice, "POST", f"{room}/close", json={"reason": f"because of {TOKEN} {JWT}"})
    assert closed.status_code == 200
    for path in (room, f"{room}/transcript"):  # the read models have it all
        assert scene.say(scene.alice, "GET", path, params={"minSeq": closed.json()["seq"]}).status_code == 200

    for answer in scene.answers:
        assert holds(answer.decode(), scene.planted) == [], answer[:300]
    for frame in frames:
        assert holds(frame.raw.decode(), scene.planted) == []
    assert holds(scene.server.logs(), scene.planted) == []
    with scene.server.sql() as connection:
        stored = list(rows(connection))
    for table, row in stored:
        assert holds(row, scene.planted) == [], f"{table}: {row[:300]}"
    masked = {table for table, row in stored if "[REDACTED:" in row}
    assert masked >= {"minutebook.events"}, "nothing was planted where it could have been found"
    assert len(masked) >= 2, masked


def test_redactions_are_listed_and_the_text_around_stays(scene: Scene) -> None:
    room = open_room(scene.alice)
    for text in ("nothing", f"see {TOKEN}, {JWT}, {CORP} and {TOKEN}. {scene.known[0]}"):
        scene.say(scene.alice, "POST", f"/v1/rooms/{room}/messages", json={"text": text})
    _, plain, masked = scene.alice.get(f"/v1/rooms/{room}/events").json()["events"]
    assert (plain["payload"]["text"], plain["redactions"]) == ("nothing", [])
    assert masked["payload"]["text"] == (
        "see [REDACTED:github-token], [REDACTED:jwt], [REDACTED:corp-token] and [REDACTED:github-token]."
        " [REDACTED:configured-secret]"
    )
    assert masked["redactions"] == ["configured-secret", "corp-token", "github-token", "jwt"]


def test_names_that_become_one_are_a_placeholder_from_a_bridge(scene: Scene) -> None:
    room = open_room(scene.alice)
    bridge = scene.server.client(f"agent:{short_id(78)}", room=room)
    bridge.post("/v1/bridge/hello")
    args: list[Any] = [{TOKEN: 1}, {TOKEN: 1, TOKEN[:-1] + "Z": 2}, {"a": 1}]
    items = [
        {
            "stream": "events",
            "seq": n,
            "type": "tool_call",
            "payload": {"callId": "c", "tool": "t", "args": each, "decidedBy": None},
        }
        for n, each in enumerate(args, 1)
    ]
    assert bridge.post("/v1/bridge/events", json={"items": items}).json()["afterHarnessSeq"] == 3
    one, collided, other = scene.alice.get(f"/v1/rooms/{room}/events").json()["events"][-3:]
    assert one["payload"]["args"] == {"[REDACTED:github-token]": 1}
    assert collided["payload"] == {"refused": True, "type": "tool_call", "reason": "key_collision"}
    assert other["payload"]["args"] == {"a": 1}
    assert (one["redactions"], collided["redactions"], other["redactions"]) == (["github-token"], [], [])


def test_masks_that_are_longer_than_their_secrets_block_no_cursor(scene: Scene) -> None:
    """Redaction comes before the limit: what grows over it is a placeholder from a bridge."""
    room = open_room(scene.alice)
    bridge = scene.server.client(f"agent:{short_id(79)}", room=room)
    bridge.post("/v1/bridge/hello")
    payload = {"callId": "c", "tool": "t", "args": f"{CORP} " * 4000, "decidedBy": None}
    size = len(json.dumps(payload, separators=(",", ":")))
    grown = size + 4000 * (len("[REDACTED:corp-token]") - len(CORP))
    assert size < 65_536 < grown
    pushed = bridge.post(
        "/v1/bridge/events", json={"items": [{"stream": "events", "seq": 1, "type": "tool_call", "payload": payload}]}
    )
    assert pushed.json()["afterHarnessSeq"] == 1
    last = scene.alice.get(f"/v1/rooms/{room}/events").json()["events"][-1]
    assert last["payload"] == {"oversize": True, "bytes": grown, "type": "tool_call"}


def test_a_key_that_holds_a_secret_still_is_one_key(scene: Scene) -> None:
    room = open_room(scene.alice)
    path, key = f"/v1/rooms/{room}/messages", f"retry-{TOKEN}"
    first = scene.alice.post(path, json={"text": "once"}, headers={"idempotency-key": key})
    again = scene.alice.post(path, json={"text": "once"}, headers={"idempotency-key": key})
    assert (first.json(), again.headers["idempotency-replayed"]) == (again.json(), "true")
    other = scene.alice.post(path, json={"text": "twice"}, headers={"idempotency-key": key})
    refused(other, 422, "idempotency_key_reused")
    different = scene.alice.post(path, json={"text": "twice"}, headers={"idempotency-key": f"{key}x"})
    assert different.status_code == 201


def test_a_problem_says_what_it_did_without_secrets(scene: Scene) -> None:
    answer = scene.alice.post(f"/v1/rooms/{scene.room}/messages", json={"text": "x", TOKEN: 1, "a": 2})
    refused(answer, 422, "invalid", "$.[REDACTED:github-token]")
    assert int(answer.headers["content-length"]) == len(answer.content)
    plain = scene.alice.post(f"/v1/rooms/{scene.room}/messages", json={"text": "x", "other": 1})
    refused(plain, 422, "invalid", "$.other")
