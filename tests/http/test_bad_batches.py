"""What a bridge pushes and cannot be kept becomes a placeholder; what it may not push is refused whole
(rooms.md, the envelope; field faults B42, B44, B45)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx
import pytest
from bad_input import JSON, head, named, nested, refuse_constant, refused
from live_server import LiveServer, follow, open_room
from minutebook.domain.ids import short_id


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the room of these tests."""
    return server.member("alice")


@pytest.fixture(autouse=True)
def unharmed(server: LiveServer) -> Iterator[None]:
    """After every test the process lives, and wrote of no fault of its own."""
    before = len(server.logs())
    yield
    assert server.process.poll() is None
    assert server.client().get("/healthz").status_code == 200
    assert "internal error" not in server.logs()[before:]


class Bridge:
    """A run's bridge that pushes raw JSON, and a reader of what became of it."""

    def __init__(self, server: LiveServer, alice: httpx.Client, number: int) -> None:
        self.room = open_room(alice)
        self.run = short_id(number)
        # Of a call that cannot be read nobody can tell which tool it was for: it has the classes of all.
        self.alice = server.client("human:alice", "agents-member", "sec")
        self.client = server.client(f"agent:{self.run}", room=self.room)
        assert self.client.post("/v1/bridge/hello").status_code == 200
        self.seq = 0
        self.after = head(alice, self.room)

    def push(self, *payloads: str, type_: str = "tool_call") -> httpx.Response:
        """One item a payload, as text."""
        items = ",".join(
            f'{{"stream":"events","seq":{self.seq + place},"type":"{type_}","payload":{payload}}}'
            for place, payload in enumerate(payloads, 1)
        )
        self.seq += len(payloads)
        return self.client.post("/v1/bridge/events", content=f'{{"items":[{items}]}}'.encode(), headers=JSON)

    def stored(self) -> list[Any]:
        """Payloads since the last look, the same by range and by stream."""
        page = self.alice.get(f"/v1/rooms/{self.room}/events", params={"afterSeq": self.after})
        events = json.loads(page.text, parse_constant=refuse_constant)["events"]
        with follow(self.alice, self.room, str(self.after)) as stream:
            assert stream.events(page.json()["lastSeq"]) == events
        self.after = page.json()["lastSeq"]
        return [event["payload"] for event in events]


def call(args: str) -> str:
    """A tool_call payload with those arguments."""
    return f'{{"callId":"c","tool":"shell","args":{args},"decidedBy":null}}'


@pytest.fixture(scope="module")
def bridge(server: LiveServer, alice: httpx.Client) -> Bridge:
    """A running run."""
    return Bridge(server, alice, 8001)


ITEMS: list[tuple[str, str, Any]] = [
    ("NUL", r'{"a":"x\u0000y"}', {"a": "xy"}),
    ("NUL in a name", r'{"a\u0000b":1}', {"ab": 1}),
    ("lone surrogate", r'{"a":"x\ud800y"}', {"a": "x\ufffdy"}),
    ("surrogate in a name", r'{"\udfff":1}', {"\ufffd": 1}),
    ("a pair", r'{"a":"\ud83d\ude00"}', {"a": "😀"}),
    ("names that fall together", r'{"a\u0000":1,"a":2}', "duplicate_key"),
    ("duplicate name", '{"a":1,"a":2}', "duplicate_key"),
    ("NaN", '{"a":NaN}', "syntax"),
    ("Infinity", '{"a":[-Infinity]}', "syntax"),
    ("1e400", '{"a":1e400}', "number"),
    ("2^64", '{"a":18446744073709551616}', "number"),
    ("65 deep", nested(65, "array"), "depth"),
    ("5000 arrays", nested(5_000, "array"), "depth"),
    ("5000 objects", nested(5_000, "object"), "depth"),
    ("200000 arrays", nested(200_000, "array"), "depth"),
    ("raw newline in a string", '{"a":"x\ny"}', "syntax"),
    ("brackets in strings", r'{"a":"]}\"]}","b":"\\"}', {"a": ']}"]}', "b": "\\"}),
]


@pytest.mark.parametrize(("args", "expected"), named(ITEMS))
def test_b42_b44_b45_a_bridges_bad_value_is_a_placeholder_and_blocks_nothing(
    bridge: Bridge, args: str, expected: Any
) -> None:
    good = call('{"command":"ls"}')
    answer = bridge.push(good, call(args), good)
    assert (answer.status_code, answer.json()["afterHarnessSeq"]) == (200, bridge.seq), answer.text
    before, odd, after = bridge.stored()
    assert before == after == json.loads(good)
    if isinstance(expected, str):
        assert odd == {"refused": True, "type": "tool_call", "reason": expected}
    else:
        assert odd["args"] == expected
    assert bridge.push(good).status_code == 200
    assert len(bridge.stored()) == 1


NUMBERS = [
    "-0",
    "0",
    "1.0",
    "1e2",
    "0.1",
    "9007199254740993",
    "-9223372036854775808",
    "9223372036854775807",
    "1.5e300",
    "5e-324",
]


@pytest.mark.parametrize("number", NUMBERS)
def test_b45_numbers_come_back_value_equal(bridge: Bridge, number: str) -> None:
    assert bridge.push(call(f'{{"n":{number}}}')).status_code == 200
    text = bridge.alice.get(f"/v1/rooms/{bridge.room}/events", params={"afterSeq": bridge.after}).text
    document = json.loads(text, parse_constant=refuse_constant, parse_int=Decimal, parse_float=Decimal)
    assert document["events"][-1]["payload"]["args"]["n"] == Decimal(number)
    assert bridge.stored()


@pytest.mark.parametrize("kind", ["array", "object"])
@pytest.mark.parametrize("levels", [32, 62])
def test_b44_nesting_round_trips_up_to_the_published_depth(bridge: Bridge, kind: str, levels: int) -> None:
    assert bridge.push(call(nested(levels, kind))).status_code == 200
    assert bridge.stored()[-1]["args"] == json.loads(nested(levels, kind))


def test_an_oversize_item_is_a_placeholder_that_keeps_its_size(bridge: Bridge) -> None:
    room_for = 65_536 - len(call('""'))
    answer = bridge.push(call(f'"{"x" * room_for}"'), call(f'"{"x" * (room_for + 1)}"'))
    assert answer.status_code == 200, answer.text
    whole, cut = bridge.stored()
    assert len(whole["args"]) == room_for
    assert cut == {"oversize": True, "bytes": 65_537, "type": "tool_call"}


def item(stream: str = '"events"', seq: str = "1", type_: str = '"turn"', rest: str = '"payload":{}') -> bytes:
    """A batch of one item, from the JSON of its members."""
    return f'{{"items":[{{"stream":{stream},"seq":{seq},"type":{type_},{rest}}}]}}'.encode()


FORGED = '"payload":{"kind":"room_phase","phase":"closed"}'

BATCHES: list[tuple[str, bytes, int, str, str | None]] = [
    ("not JSON", b"items", 400, "malformed", None),
    ("no items", b"{}", 422, "invalid", "$.items"),
    ("unknown field", b'{"items":[],"x":1}', 422, "invalid", "$.x"),
    ("duplicate items", b'{"items":[],"items":[]}', 400, "malformed", None),
    ("duplicate by escape", rb'{"items":[],"item\u0073":[]}', 400, "malformed", None),
    ("duplicate seq", item(seq='1,"seq":2'), 400, "malformed", None),
    ("duplicate payload", item(rest='"payload":{},"payload":{"a":NaN}'), 400, "malformed", None),
    ("bad stream", item(stream='"other"'), 422, "invalid", "$.items[0].stream"),
    ("seq 0", item(seq="0"), 422, "invalid", "$.items[0].seq"),
    ("seq as text", item(seq='"1"'), 422, "invalid", "$.items[0].seq"),
    ("a forged type", item(type_='"participant"'), 422, "invalid", "$.items[0].type"),
    ("a forged kind", item(type_='"state_changed"', rest=FORGED), 422, "invalid", "$.items[0].payload"),
    ("lease 0", b'{"items":[],"lease":"0"}', 422, "invalid", "$.lease"),
    ("lease as a number", b'{"items":[],"lease":1}', 422, "invalid", "$.lease"),
    ("lease of another", b'{"items":[],"lease":"999"}', 409, "lease_lost", None),
    ("NaN for a seq", item(seq="NaN"), 400, "malformed", None),
    ("cut off in a payload", item()[:-5] + b'{"a":"', 400, "malformed", None),
    ("too deep around", b'{"items":' + b"[" * 5_000, 422, "invalid", "$.items[0]"),
    ("quotes without end", b'{"items":[{"payload":"' + b'\\"' * 1_000_000, 400, "malformed", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "code", "path"), [row[1:] for row in BATCHES], ids=[row[0] for row in BATCHES]
)
def test_batches(bridge: Bridge, body: bytes, status: int, code: str, path: str | None) -> None:
    before = head(bridge.alice, bridge.room)
    answer = bridge.client.post("/v1/bridge/events", content=body, headers=JSON)
    refused(answer, status, code)
    if path is not None:
        assert answer.json()["errors"][0]["path"].startswith(path)
    assert head(bridge.alice, bridge.room) == before


def test_one_bad_item_refuses_the_whole_batch_and_is_named(bridge: Bridge) -> None:
    before = head(bridge.alice, bridge.room)
    answer = bridge.push(call("1"), '{"callId":1}', call("2"))
    refused(answer, 422, "invalid")
    assert answer.json()["errors"][0]["path"].startswith("$.items[1].payload")
    assert head(bridge.alice, bridge.room) == before
    bridge.seq -= 3


def test_501_items_are_too_many(bridge: Bridge) -> None:
    refused(bridge.push(*[call("1")] * 501), 422, "invalid")
    bridge.seq -= 501


def test_a_batch_over_2_mib_is_refused(bridge: Bridge) -> None:
    answer = bridge.client.post("/v1/bridge/events", content=b" " * 2_097_153, headers=JSON)
    refused(answer, 413, "payload_too_large")
