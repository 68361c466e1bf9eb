"""What cannot be kept as sent is refused whole, with words that help; from bridges it becomes a placeholder
(issue "Bad input"; rules.md laws 20 and 21; field faults B42, B44, B45)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from bad_input import JSON, head, nested, refused
from live_server import LiveServer, follow, open_room, post


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
    ("unknown kind", b'{"text":"a","kind":"policy"}', 422, "invalid", "$.kind"),
    ("unknown delivery", b'{"text":"a","delivery":"soon"}', 422, "invalid", "$.delivery"),
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


def test_a_text_is_measured_in_bytes_up_to_16_kib(alice: httpx.Client) -> None:
    mine = open_room(alice)
    for text in ("x" * 16_384, "😀" * 4_096, "é" * 8_192):
        seq = post(alice, mine, text)["seq"]
        event = alice.get(f"/v1/rooms/{mine}/events", params={"afterSeq": seq - 1}).json()["events"][0]
        assert event["payload"]["text"] == text


@pytest.mark.parametrize(
    "number", ["1e400", "-1e400", "18446744073709551616", "9" * 30, "9" * 5_000, "NaN", "0.1234567890123456789012"]
)
def test_b45_numbers_that_would_change_are_refused(server: LiveServer, alice: httpx.Client, number: str) -> None:
    body = f'{{"dataClass":"public","approvals":{{"n":{number}}}}}'
    refused(alice.post("/v1/rooms", content=body.encode(), headers=JSON), 400, "malformed")


@pytest.mark.parametrize("kind", ["array", "object"])
def test_b44_nesting_is_bounded_before_anything_is_read(alice: httpx.Client, kind: str) -> None:
    def opened(deep: str) -> httpx.Response:
        body = f'{{"dataClass":"public","approvals":{{"deep":{deep}}}}}'
        return alice.post("/v1/rooms", content=body.encode(), headers=JSON)

    for levels in (63, 1_000, 5_000):
        refused(opened(nested(levels, kind)), 400, "malformed")
    for deep in (nested(32, kind), nested(62, kind), json.dumps(nested(5_000, kind))):
        answer = opened(deep)
        refused(answer, 422, "invalid")
        assert answer.json()["errors"][0]["path"] == "$.approvals.deep", "it is read, and is no field of a policy"


def test_a_body_without_a_length_is_measured_too(alice: httpx.Client, room: str) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(200):
            yield b"x" * 1_000

    refused(alice.post(f"/v1/rooms/{room}/messages", content=chunks(), headers=JSON), 413, "payload_too_large")
