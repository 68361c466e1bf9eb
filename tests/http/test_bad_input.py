"""What cannot be kept as sent is refused whole, with words that help; from bridges it becomes a placeholder
(issue "Bad input"; rules.md laws 20 and 21; field faults B42, B44, B45)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import httpx
import pytest
from live_server import LiveServer, follow, open_room, post
from minutebook.domain.ids import short_id

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the room of these tests."""
    return server.member("alice")


@pytest.fixture(scope="module")
def room(alice: httpx.Client) -> str:
    """One room, which must stay at its first event."""
    return open_room(alice)


@pytest.fixture(autouse=True)
def unharmed(request: pytest.FixtureRequest, server: LiveServer) -> Iterator[None]:
    """After every test the process lives, and wrote of no fault of its own."""
    before = len(server.logs())
    yield
    assert server.process.poll() is None
    assert server.client().get("/healthz").status_code == 200
    assert "internal error" not in server.logs()[before:]


def head(client: httpx.Client, room: str) -> int:
    return client.get(f"/v1/rooms/{room}").json()["throughSeq"]


def named(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Rows for parametrize whose first column is their name."""
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


def nested(levels: int, kind: str) -> str:
    """That many arrays or objects in one another."""
    return "[" * levels + "]" * levels if kind == "array" else '{"a":' * levels + "1" + "}" * levels


def refused(answer: httpx.Response, status: int, code: str, path: str | None = None) -> None:
    """That refusal, with all fields, and with the path where one is named."""
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert len(answer.content) < 2_000
    if path is not None:
        assert [error["path"] for error in answer.json()["errors"]] == [path]


MESSAGES: list[tuple[str, bytes, int, str, str | None]] = [
    ("NUL in the text", rb'{"text":"a\u0000b"}', 422, "invalid", "$.text"),
    ("NUL in a name", rb'{"text":"a","x\u0000y":1}', 422, "invalid", "$"),
    ("NUL in a list", rb'{"text":"a","to":["human:a\u0000"]}', 422, "invalid", "$.to[0]"),
    ("high surrogate", rb'{"text":"a\ud800"}', 422, "invalid", "$.text"),
    ("low surrogate", rb'{"text":"\udc00"}', 422, "invalid", "$.text"),
    ("halves turned round", rb'{"text":"\udc00\ud800"}', 422, "invalid", "$.text"),
    ("surrogate in a name", rb'{"text":"a","\ud800":1}', 422, "invalid", "$"),
    ("surrogate as bytes", b'{"text":"\xed\xa0\x80"}', 400, "malformed", None),
    ("not UTF-8", b'{"text":"\xff"}', 400, "malformed", None),
    ("overlong UTF-8", b'{"text":"\xc0\xaf"}', 400, "malformed", None),
    ("byte order mark", b'\xef\xbb\xbf{"text":"a"}', 400, "malformed", None),
    ("UTF-16", '{"text":"a"}'.encode("utf-16"), 400, "malformed", None),
    ("no body", b"", 400, "malformed", None),
    ("blank body", b"  ", 400, "malformed", None),
    ("not JSON", b"text=hello", 400, "malformed", None),
    ("cut off", b'{"text":"a"', 400, "malformed", None),
    ("two documents", b'{"text":"a"}{"text":"b"}', 400, "malformed", None),
    ("trailing comma", b'{"text":"a",}', 400, "malformed", None),
    ("comment", b'{"text":"a"} // b', 400, "malformed", None),
    ("raw newline in a string", b'{"text":"a\nb"}', 400, "malformed", None),
    ("single quotes", b"{'text':'a'}", 400, "malformed", None),
    ("duplicate name", b'{"text":"a","text":"b"}', 400, "malformed", None),
    ("duplicate by escape", rb'{"text":"a","te\u0078t":"b"}', 400, "malformed", None),
    ("NaN", b'{"text":"a","causedBy":NaN}', 400, "malformed", None),
    ("Infinity", b'{"text":"a","causedBy":Infinity}', 400, "malformed", None),
    ("-Infinity", b'{"text":"a","causedBy":-Infinity}', 400, "malformed", None),
    ("1e400", b'{"text":"a","causedBy":1e400}', 400, "malformed", None),
    ("2^64", b'{"text":"a","causedBy":18446744073709551616}', 400, "malformed", None),
    ("5000 digits", b'{"text":"a","causedBy":' + b"9" * 5_000 + b"}", 400, "malformed", None),
    ("2^53+1", b'{"text":"a","causedBy":9007199254740993}', 422, "invalid", "$.causedBy"),
    ("leading zero", b'{"text":"a","causedBy":01}', 400, "malformed", None),
    ("an array", b"[]", 422, "invalid", "$"),
    ("a string", b'"text"', 422, "invalid", "$"),
    ("null", b"null", 422, "invalid", "$"),
    ("unknown field", b'{"text":"a","colour":"red"}', 422, "invalid", "$.colour"),
    ("missing field", b"{}", 422, "invalid", "$.text"),
    ("wrong case", b'{"Text":"a"}', 422, "invalid", "$.Text"),
    ("number for text", b'{"text":1}', 422, "invalid", "$.text"),
    ("text for a number", b'{"text":"a","causedBy":"1"}', 422, "invalid", "$.causedBy"),
    ("float for a seq", b'{"text":"a","causedBy":1.5}', 422, "invalid", "$.causedBy"),
    ("zero for a seq", b'{"text":"a","causedBy":0}', 422, "invalid", "$.causedBy"),
    ("a seq of the future", b'{"text":"a","causedBy":2}', 422, "invalid", "$.causedBy"),
    ("empty text", b'{"text":""}', 422, "invalid", "$.text"),
    ("unknown kind", b'{"text":"a","kind":"review_verdict"}', 422, "invalid", "$.kind"),
    ("unknown delivery", b'{"text":"a","delivery":"steering"}', 422, "invalid", "$.delivery"),
    ("no principal", b'{"text":"a","to":["bob"]}', 422, "invalid", "$.to[0]"),
    ("invisible principal", '{"text":"a","to":["human:a\u200b"]}'.encode(), 422, "invalid", "$.to[0]"),
    ("not NFC", '{"text":"a","to":["human:e\u0301"]}'.encode(), 422, "invalid", "$.to[0]"),
    ("21 recipients", json.dumps({"text": "a", "to": ["human:b"] * 21}).encode(), 422, "invalid", "$.to"),
    ("text of 16 KiB and a byte", json.dumps({"text": "x" * 16_385}).encode(), 413, "payload_too_large", None),
    ("4-byte text over 16 KiB", f'{{"text":"{"😀" * 4_097}"}}'.encode(), 413, "payload_too_large", None),
    ("body over its limit", b'{"text":"' + b"x" * 131_072 + b'"}', 413, "payload_too_large", None),
    *((f"{levels} {kind}s", f'{{"text":"a","to":{nested(levels, kind)}}}'.encode(), 400, "malformed", None)
      for levels in (100, 1_000, 5_000) for kind in ("array", "object")),
    ("40000 arrays", b"[" * 40_000, 400, "malformed", None),
    ("a long unknown name", b'{"text":"a","' + b"n" * 60_000 + b'":1}', 422, "invalid", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "code", "path"), [row[1:] for row in MESSAGES], ids=[row[0] for row in MESSAGES]
)
def test_bodies(alice: httpx.Client, room: str, body: bytes, status: int, code: str, path: str | None) -> None:
    answer = alice.post(f"/v1/rooms/{room}/messages", content=body, headers=JSON)
    refused(answer, status, code, path)
    assert head(alice, room) == 1


@pytest.mark.parametrize(
    "media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"]
)
def test_other_content_types(alice: httpx.Client, room: str, media: str) -> None:
    answer = alice.post(f"/v1/rooms/{room}/messages", content=b'{"text":"a"}', headers={"content-type": media})
    refused(answer, 415, "unsupported_media_type")
    assert head(alice, room) == 1


def test_a_charset_beside_the_content_type_is_fine(alice: httpx.Client) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert alice.post("/v1/rooms", content=b'{"dataClass":"public"}', headers=headers).status_code == 201


ROOMS: list[tuple[dict[str, Any], str]] = [
    ({}, "$.dataClass"),
    ({"dataClass": "secret"}, "$.dataClass"),
    ({"dataClass": "public", "retention": "0d"}, "$.retention"),
    ({"dataClass": "public", "retention": "10000d"}, "$.retention"),
    ({"dataClass": "public", "retention": "90d\n"}, "$.retention"),
    ({"dataClass": "public", "title": ""}, "$.title"),
    ({"dataClass": "public", "title": "t" * 201}, "$.title"),
    ({"dataClass": "public", "members": [{"principal": "human:b"}]}, "$.members[0].role"),
    ({"dataClass": "public", "members": [{"principal": "human:b", "role": "watcher", "x": 1}]}, "$.members[0].x"),
    ({"dataClass": "public", "members": [{"principal": "human:b", "role": "boss"}]}, "$.members[0].role"),
    ({"dataClass": "public", "members": [{"principal": "agent:aaaaaaa2", "role": "owner"}]}, "$.members[0].principal"),
    ({"dataClass": "public", "members": [{"principal": "system:ci", "role": "watcher"}]}, "$.members[0].principal"),
    ({"dataClass": "public", "members": [{"principal": "human:alice", "role": "watcher"}]}, "$.members[0].principal"),
    ({"dataClass": "public", "members": [{"principal": " human:b", "role": "watcher"}]}, "$.members[0].principal"),
    ({"dataClass": "public", "approvals": []}, "$.approvals"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "path"), ROOMS)
def test_rooms_that_cannot_be_opened(server: LiveServer, alice: httpx.Client, body: dict[str, Any], path: str) -> None:
    count = "SELECT count(*) FROM minutebook.streams"
    with server.sql() as connection:
        before = connection.execute(count).fetchone()
        refused(alice.post("/v1/rooms", json=body), 422, "invalid", path)
        assert connection.execute(count).fetchone() == before


TARGETS: list[tuple[str, int, str]] = [
    ("/v1/rooms/a%00b", 400, "malformed"),
    ("/v1/rooms/{room}/events?type=a%00b", 400, "malformed"),
    ("/v1/rooms?cursor=%00", 400, "malformed"),
    ("/v1/rooms/{room}/members/human:a%00b", 400, "malformed"),
    ("/v1/rooms/%ff", 400, "malformed"),
    ("/v1/rooms/%ed%a0%80", 400, "malformed"),
    ("/v1/rooms/{room}/events?type=%ff", 400, "malformed"),
    ("/v1/rooms?cursor=zzz", 400, "invalid_cursor"),
    ("/v1/rooms?cursor=AAAAAAAA", 400, "invalid_cursor"),
    ("/v1/rooms?cursor=aaaaaaaa%0a", 400, "invalid_cursor"),
    ("/v1/rooms/{room}/stream?afterSeq=01", 400, "invalid_cursor"),
    ("/v1/rooms/{room}/stream?afterSeq=-1", 400, "invalid_cursor"),
    ("/v1/rooms/{room}/stream?afterSeq=%2B1", 400, "invalid_cursor"),
    ("/v1/rooms/{room}/stream?afterSeq=1.0", 400, "invalid_cursor"),
    ("/v1/rooms/{room}/stream?afterSeq=", 400, "invalid_cursor"),
    ("/v1/rooms/{room}/stream?afterSeq=%D9%A1", 400, "invalid_cursor"),
    ("/v1/rooms/{room}/stream?afterSeq=" + "9" * 33, 422, "invalid"),
    ("/v1/rooms/{room}/stream?tail=501", 422, "invalid"),
    ("/v1/rooms/{room}/stream?tail=-1", 422, "invalid"),
    ("/v1/rooms/{room}/stream?logId=" + "a" * 65, 422, "invalid"),
    ("/v1/rooms/{room}/events?afterSeq=99999999999999999999", 422, "invalid"),
    ("/v1/rooms/{room}/events?limit=NaN", 422, "invalid"),
    ("/v1/rooms/{room}/events?limit=1e3", 422, "invalid"),
    ("/v1/rooms/{room}/events?minSeq=-1", 422, "invalid"),
    ("/v1/rooms/{room}/export?afterSeq=2", 422, "invalid"),
    ("/v1/rooms/{room}/export?afterSeq=x", 422, "invalid"),
    ("/v1/rooms/{room}/explain?action=fly", 422, "invalid"),
    ("/v1/rooms/{room}/explain", 422, "invalid"),
    ("/v1/rooms?x=" + "y" * 8_200, 400, "malformed"),
]


@pytest.mark.parametrize(("target", "status", "code"), TARGETS)
def test_b42_targets(alice: httpx.Client, room: str, target: str, status: int, code: str) -> None:
    refused(alice.get(httpx.URL(f"{alice.base_url}{target.format(room=room)}")), status, code)


@pytest.mark.parametrize("cursor", ["", "01", "+1", "-1", "1.0", "0x1", "١", "x", "9" * 17])  # noqa: RUF001
def test_last_event_ids_that_no_server_issued(alice: httpx.Client, room: str, cursor: str) -> None:
    headers = [(b"last-event-id", cursor.encode())]
    refused(alice.get(f"/v1/rooms/{room}/stream", headers=headers), 400, "invalid_cursor")


def test_a_cursor_beyond_the_head_is_a_reset(alice: httpx.Client, room: str) -> None:
    for query, last in (({"afterSeq": "1000"}, None), ({}, "1000"), ({"afterSeq": "0"}, "9007199254740993")):
        with follow(alice, room, last, **query) as stream:
            frames = stream.until("state")
            assert [frame.event for frame in frames] == ["reset", "state"]
            assert frames[0].id is None
            log_id = frames[1].json["logId"]
            assert frames[0].json == {"lastSeq": 1, "logId": log_id}
            assert frames[1].json["fromSeq"] == 2


def test_a_cursor_of_another_log_is_a_reset_and_new_events_flow(alice: httpx.Client) -> None:
    mine = open_room(alice)
    with follow(alice, mine, "1", logId="another") as stream:
        assert [frame.event for frame in stream.until("state")] == ["reset", "state"]
        post(alice, mine, "after the reset")
        assert stream.until("event")[-1].json["payload"]["text"] == "after the reset"
    log_id = alice.get(f"/v1/rooms/{mine}").json()["logId"]
    with follow(alice, mine, "1", logId=log_id) as stream:
        assert [frame.event for frame in stream.until("state")] == ["state"]


def approvals_of(size: int) -> dict[str, Any]:
    """A room whose first event has a payload of exactly that many bytes of compact JSON."""
    probe = {"owner": "human:alice", "driver": "human:alice", "dataClass": "public", "retention": "90d", "members": []}
    probe |= {"approvals": {"x": ""}, "kind": "room_phase", "phase": "open"}
    room_for = size - len(json.dumps(probe, separators=(",", ":")).encode())
    return {"dataClass": "public", "approvals": {"x": "é" * (room_for // 2) + "x" * (room_for % 2)}}


def test_a_payload_is_measured_in_bytes_up_to_64_kib(alice: httpx.Client) -> None:
    at_the_edge = alice.post("/v1/rooms", json=approvals_of(65_536))
    assert at_the_edge.status_code == 201, at_the_edge.text
    refused(alice.post("/v1/rooms", json=approvals_of(65_537)), 413, "payload_too_large")


def test_a_text_is_measured_in_bytes_up_to_16_kib(alice: httpx.Client) -> None:
    mine = open_room(alice)
    for text in ("x" * 16_384, "😀" * 4_096, "é" * 8_192):
        seq = post(alice, mine, text)["seq"]
        event = alice.get(f"/v1/rooms/{mine}/events", params={"afterSeq": seq - 1}).json()["events"][0]
        assert event["payload"]["text"] == text


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
def test_b45_numbers_come_back_value_equal(alice: httpx.Client, number: str) -> None:
    body = f'{{"dataClass":"public","approvals":{{"n":{number}}}}}'
    opened = alice.post("/v1/rooms", content=body.encode(), headers=JSON)
    assert opened.status_code == 201, opened.text
    text = alice.get(f"/v1/rooms/{opened.json()['id']}/events").text
    document = json.loads(text, parse_constant=_refuse, parse_int=Decimal, parse_float=Decimal)
    assert document["events"][0]["payload"]["approvals"]["n"] == Decimal(number)


def _refuse(name: str) -> None:
    raise AssertionError(f"the answer has {name} in it")


@pytest.mark.parametrize(
    "number", ["1e400", "-1e400", "18446744073709551616", "9" * 30, "9" * 5_000, "NaN", "0.1234567890123456789012"]
)
def test_b45_numbers_that_would_change_are_refused(server: LiveServer, alice: httpx.Client, number: str) -> None:
    body = f'{{"dataClass":"public","approvals":{{"n":{number}}}}}'
    refused(alice.post("/v1/rooms", content=body.encode(), headers=JSON), 400, "malformed")


@pytest.mark.parametrize("kind", ["array", "object"])
def test_b44_nesting_round_trips_up_to_the_published_depth(alice: httpx.Client, kind: str) -> None:
    def opened(levels: int) -> httpx.Response:
        body = f'{{"dataClass":"public","approvals":{{"deep":{nested(levels, kind)}}}}}'
        return alice.post("/v1/rooms", content=body.encode(), headers=JSON)

    for levels in (32, 62):
        answer = opened(levels)
        assert answer.status_code == 201, answer.text
        event = alice.get(f"/v1/rooms/{answer.json()['id']}/events").json()["events"][0]
        assert event["payload"]["approvals"]["deep"] == json.loads(nested(levels, kind))
    for levels in (63, 1_000, 5_000):
        refused(opened(levels), 400, "malformed")
    body = f'{{"dataClass":"public","approvals":{{"deep":{json.dumps(nested(5_000, kind))}}}}}'
    assert alice.post("/v1/rooms", content=body.encode(), headers=JSON).status_code == 201


class Bridge:
    """A run's bridge that pushes raw JSON, and a reader of what became of it."""

    def __init__(self, server: LiveServer, alice: httpx.Client, number: int) -> None:
        self.room = open_room(alice)
        self.run = short_id(number)
        self.alice = alice
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
        events = json.loads(page.text, parse_constant=_refuse)["events"]
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


def test_a_body_without_a_length_is_measured_too(alice: httpx.Client, room: str) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(200):
            yield b"x" * 1_000

    refused(alice.post(f"/v1/rooms/{room}/messages", content=chunks(), headers=JSON), 413, "payload_too_large")
