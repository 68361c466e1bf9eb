"""room_read: messages and handoffs that the run is cleared for, page by page, within its limits (rooms.md)."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from append_helpers import append, event, item
from live_server import LiveServer, open_room, post
from mcp_steps import MODES, Run, ok, request
from viewers import log_of

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def alice(paceless: LiveServer) -> httpx.Client:
    """Who owns the rooms of these tests."""
    return paceless.member("alice")


@pytest.fixture
def room(alice: httpx.Client) -> str:
    """A new room."""
    return open_room(alice)


def insert(server: LiveServer, room: str, at: int, *texts: str, **fields: Any) -> int:
    """Append these messages behind event `at` past every check of the application; the room's head then."""
    rows = [event({"kind": "chat", "text": text, "to": [], "delivery": "none"}, **fields) for text in texts]
    with server.sql() as connection:
        results = append(connection, item(at, *rows, stream=f"room:{room}"))
    assert {result.outcome for result in results} == {"appended"}
    return at + len(texts)


def push(run: Run, *payloads: tuple[str, dict[str, Any]]) -> None:
    """A batch of the run's bridge."""
    items = [
        {"stream": "events", "seq": seq, "type": type_, "payload": payload}
        for seq, (type_, payload) in enumerate(payloads, 1)
    ]
    answer = run.http.post("/v1/bridge/events", json={"items": items})
    assert answer.status_code == 200, answer.text


def read_all(run: Run, **arguments: Any) -> list[list[dict[str, Any]]]:
    """Pages from the beginning to the end, as the answers say where to go on."""
    pages: list[list[dict[str, Any]]] = []
    since = 0
    while True:
        page = ok(run.call("room_read", {"sinceSeq": since, **arguments}))
        assert set(page) == {"entries", "nextSinceSeq", "more", "lastSeq"}
        assert page["more"] == (page["nextSinceSeq"] < page["lastSeq"])
        assert all(since < entry["seq"] <= page["nextSinceSeq"] for entry in page["entries"])
        pages.append(page["entries"])
        if not page["more"]:
            return pages
        assert page["nextSinceSeq"] > since
        since = page["nextSinceSeq"]


def test_only_messages_and_handoffs_are_read(paceless: LiveServer, alice: httpx.Client, room: str) -> None:
    run = Run(paceless, room, "tester")
    post(alice, room, "one")
    push(
        run,
        ("turn", {"runId": run.id, "turnId": "t", "phase": "started"}),
        ("tool_call", {"callId": "c", "tool": "shell", "args": {}, "decidedBy": None}),
        ("message", {"kind": "chat", "text": "from the bridge", "to": [], "delivery": "none"}),
    )
    for tool in ("room_post", "room_handoff", "room_verdict"):
        ok(run.call(tool))
    page = ok(run.call("room_read", {}))
    expected = [entry for entry in log_of(alice, room) if entry["type"] in ("message", "handoff")]
    assert page["entries"] == expected, "as every other read path has them"
    assert [entry["type"] for entry in expected] == ["message", "message", "message", "handoff", "message"]
    assert (page["more"], page["lastSeq"], page["nextSinceSeq"]) == (False, expected[-1]["seq"], expected[-1]["seq"])
    assert page["lastSeq"] == alice.get(f"/v1/rooms/{room}").json()["throughSeq"]


def test_reading_changes_nothing(paceless: LiveServer, alice: httpx.Client, room: str) -> None:
    run = Run(paceless, room)
    before = log_of(alice, room)
    assert ok(run.call("room_read")) == ok(run.call("room_read"))
    assert log_of(alice, room) == before


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_join_without_gap_or_duplicate(paceless: LiveServer, alice: httpx.Client, room: str, limit: int) -> None:
    run = Run(paceless, room)
    for number in range(5):
        post(alice, room, f"message {number}")
        alice.put(f"/v1/rooms/{room}/members/human:m{number}", json={"role": "watcher"})
    pages = read_all(run, limit=limit)
    assert max(map(len, pages)) <= limit
    assert [entry["payload"]["text"] for page in pages for entry in page] == [f"message {n}" for n in range(5)]


def test_a_cursor_beyond_the_end_goes_on_at_the_end(paceless: LiveServer, alice: httpx.Client, room: str) -> None:
    """As after a restore (field fault B26): the run hears the next message all the same."""
    run = Run(paceless, room)
    page = ok(run.call("room_read", {"sinceSeq": 2**53}))
    assert (page["entries"], page["nextSinceSeq"], page["more"]) == ([], page["lastSeq"], False)
    post(alice, room, "later")
    (entry,) = ok(run.call("room_read", {"sinceSeq": page["nextSinceSeq"]}))["entries"]
    assert entry["payload"]["text"] == "later"


def test_law_12_what_a_run_is_not_cleared_for_is_left_out(paceless: LiveServer, alice: httpx.Client, room: str) -> None:
    run = Run(paceless, room)
    at = insert(paceless, room, len(log_of(alice, room)), "for all")
    at = insert(paceless, room, at, "the combination is 4711", "x" * 60_000, cl=["secret"])
    insert(paceless, room, at, "for all again")
    raw = run.raw("room_read", {})
    assert "4711" not in raw.text
    assert "restricted" not in raw.text
    page = ok(run.call("room_read", {}))
    assert [entry["payload"]["text"] for entry in page["entries"]] == ["for all", "for all again"]
    cleared = paceless.client(f"agent:{run.id}", "sec", room=room)
    answer = cleared.post("/mcp", json=request("tools/call", name="room_read", arguments={})).json()
    assert len(answer["result"]["structuredContent"]["entries"]) == 4


def test_law_13_a_hidden_entry_fills_no_page(paceless: LiveServer, alice: httpx.Client, room: str) -> None:
    """Neither its type nor its size shows: a page ends where it would with anything else in its place."""
    run = Run(paceless, room)
    at = insert(paceless, room, len(log_of(alice, room)), *["x" * 60_000] * 20, cl=["secret"])
    insert(paceless, room, at, *["shown"] * 3)
    page = ok(run.call("room_read", {"limit": 3}))
    assert len(page["entries"]) == 3
    assert not page["more"]


def test_at_most_500_events_are_scanned(paceless: LiveServer, alice: httpx.Client, room: str) -> None:
    run = Run(paceless, room)
    at = insert(paceless, room, len(log_of(alice, room)), *["hidden"] * 600, cl=["secret"])
    at = insert(paceless, room, at, "at last")
    page = ok(run.call("room_read", {}))
    assert (page["entries"], page["nextSinceSeq"], page["more"], page["lastSeq"]) == ([], 500, True, at)
    page = ok(run.call("room_read", {"sinceSeq": 500}))
    assert [entry["payload"]["text"] for entry in page["entries"]] == ["at last"]
    assert not page["more"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "letter", ["x", "ü", "\U0001f600", '"', "\\"], ids=["ascii", "latin", "emoji", "quote", "slash"]
)
def test_an_answer_has_at_most_one_mib(
    paceless: LiveServer, alice: httpx.Client, room: str, letter: str, mode: str
) -> None:
    run = Run(paceless, room)
    text = letter * (60_000 // len(json.dumps(letter, ensure_ascii=False)[1:-1].encode()))
    insert(paceless, room, len(log_of(alice, room)), *[text] * 30)
    headers = {} if mode == "legacy" else MODERN_HEADERS
    pages = 0
    since, more = 0, True
    while more:
        body = request("tools/call", name="room_read", arguments={"sinceSeq": since, "limit": 100})
        if mode != "legacy":
            body["params"]["_meta"] = MODERN_META
        answer = run.http.post("/mcp", json=body, headers=headers)
        assert len(answer.content) <= MIB
        page = answer.json()["result"]["structuredContent"]
        assert page["entries"], "an entry always fits"
        pages += len(page["entries"])
        since, more = page["nextSinceSeq"], page["more"]
    assert pages == 30


MODERN_HEADERS = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "room_read"}
MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def test_erased_words_stay_away(paceless: LiveServer, alice: httpx.Client, room: str) -> None:
    """Law 10: what is erased is in no answer of a tool either."""
    run = Run(paceless, room)
    seq = post(alice, room, "to be forgotten")["seq"]
    with paceless.sql() as connection:
        erasure = event({"kind": "payload_erased", "erasedSeq": seq}, t="state_changed")
        append(connection, item(seq, erasure, stream=f"room:{room}"))
    with paceless.sql("eraser") as connection:
        connection.execute(
            "UPDATE minutebook.events SET payload = NULL, salt = NULL WHERE stream_id ="
            " (SELECT id FROM minutebook.streams WHERE name = %s) AND seq = %s",
            (f"room:{room}", seq),
        )
    (entry,) = ok(run.call("room_read"))["entries"]
    assert entry["payload"] == {"erased": True}
