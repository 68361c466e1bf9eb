"""Taking the log along over HTTP: what verify accepts, who sees what, and that nothing is held (http.md, Rooms)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import LiveServer, open_room, post
from minutebook.domain.ids import short_id
from minutebook.infra.postgres.export import export_stream, verify_file

SECRET = "the combination is 4711"


@pytest.fixture(scope="module")
def olga(server: LiveServer) -> httpx.Client:
    """An owner who is not cleared for `secret`."""
    return server.member("olga")


@pytest.fixture(scope="module")
def room(server: LiveServer, olga: httpx.Client) -> str:
    """A room with all kinds of lines; entries of the tool `vault` are restricted."""
    room = open_room(olga, title="Export")
    run = short_id(9101)
    bridge = server.client(f"agent:{run}", room=room)
    assert bridge.post("/v1/bridge/hello").status_code == 200
    payloads: list[dict[str, Any]] = [
        {"callId": "c1", "tool": "vault", "args": {"name": "safe"}, "decidedBy": None},
        {"callId": "c1", "status": "ok", "output": SECRET, "truncated": False, "bytes": len(SECRET)},
    ]
    items = [
        {"stream": "events", "seq": seq, "type": type_, "payload": payload}
        for seq, (type_, payload) in enumerate(zip(("tool_call", "tool_result"), payloads, strict=True), 1)
    ]
    assert bridge.post("/v1/bridge/events", json={"items": items}).status_code == 200
    for number in range(5):
        post(olga, room, f"ünï {number}\n\u2028")
    return room


def taken(client: httpx.Client, room: str, path: Path, **query: Any) -> list[dict[str, Any]]:
    """The lines of an export, which verify must accept."""
    answer = client.get(f"/v1/rooms/{room}/export", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["cache-control"] == "no-store"
    assert f"room-{room}.jsonl" in answer.headers["content-disposition"]
    path.write_bytes(answer.content)
    report = verify_file(path)
    assert report.ok, report.findings
    return [json.loads(line) for line in answer.content.splitlines()]


def test_an_export_verifies_and_says_where_it_ends(olga: httpx.Client, room: str, tmp_path: Path) -> None:
    *lines, trailer = taken(olga, room, tmp_path / "all.jsonl")
    snapshot = olga.get(f"/v1/rooms/{room}").json()
    assert [line["seq"] for line in lines] == list(range(1, snapshot["throughSeq"] + 1))
    assert trailer == {
        "trailer": True,
        "stream": f"room:{room}",
        "logId": snapshot["logId"],
        "count": len(lines),
        "fromSeq": 1,
        "throughSeq": len(lines),
        "head": snapshot["chain"],
        "sealed": False,
        "remaining": 0,
    }


def test_what_the_caller_is_not_cleared_for_is_its_place_in_the_chain(
    server: LiveServer, olga: httpx.Client, room: str, tmp_path: Path
) -> None:
    answer = olga.get(f"/v1/rooms/{room}/export")
    assert SECRET not in answer.text
    assert "vault" not in answer.text
    lines = taken(olga, room, tmp_path / "bare.jsonl")[:-1]
    restricted = [line for line in lines if line["type"] == "restricted"]
    assert len(restricted) == 2
    for line in restricted:
        assert set(line) == {"v", "id", "seq", "roomId", "ts", "type", "payload", "prevHash", "hash"}
        assert line["payload"] == {}
    cleared = server.client("human:cleo", "agents-auditor", "sec")
    full = taken(cleared, room, tmp_path / "full.jsonl")[:-1]
    assert [line["hash"] for line in full] == [line["hash"] for line in lines]
    assert SECRET in json.dumps(full)
    assert "restricted" not in {line["type"] for line in full}


def test_it_is_byte_for_byte_what_the_command_line_exports(
    server: LiveServer, olga: httpx.Client, room: str, tmp_path: Path
) -> None:
    cleared = server.client("human:cleo", "agents-auditor", "sec")
    with server.sql() as connection, (tmp_path / "cli.jsonl").open("wb") as out:
        export_stream(connection.info.dsn, room, out)
    assert cleared.get(f"/v1/rooms/{room}/export").content == (tmp_path / "cli.jsonl").read_bytes()


def test_a_part_verifies_too(olga: httpx.Client, room: str, tmp_path: Path) -> None:
    whole = taken(olga, room, tmp_path / "whole.jsonl")
    part = taken(olga, room, tmp_path / "part.jsonl", afterSeq=4)
    assert part[:-1] == whole[4:-1]
    assert (part[-1]["fromSeq"], part[-1]["count"], part[-1]["head"]) == (5, len(whole) - 5, whole[-1]["head"])
    nothing = taken(olga, room, tmp_path / "nothing.jsonl", afterSeq=len(whole) - 1)
    assert [line.get("head") for line in nothing] == [whole[-1]["head"]]


def test_more_than_a_page_and_a_seal(server: LiveServer, olga: httpx.Client, tmp_path: Path) -> None:
    room = open_room(olga)
    bridge = server.client(f"agent:{short_id(9102)}", room=room)
    bridge.post("/v1/bridge/hello")
    items = [
        {"stream": "events", "seq": seq, "type": "state_changed", "payload": {"kind": "harness_event", "n": seq}}
        for seq in range(1, 451)
    ]
    assert bridge.post("/v1/bridge/events", json={"items": items}).status_code == 200
    olga.post(f"/v1/rooms/{room}/close")
    *lines, trailer = taken(olga, room, tmp_path / "pages.jsonl")
    assert len(lines) == trailer["count"] > 450
    assert trailer["sealed"] is True


def test_an_unread_export_holds_no_connection(server: LiveServer, olga: httpx.Client) -> None:
    room = open_room(olga)
    bridge = server.client(f"agent:{short_id(9103)}", room=room)
    bridge.post("/v1/bridge/hello")
    for batch in range(20):
        payload = {"kind": "harness_event", "x": "y" * 50_000}
        items = [
            {"stream": "status", "seq": batch * 30 + n, "type": "state_changed", "payload": payload}
            for n in range(1, 31)
        ]
        assert bridge.post("/v1/bridge/events", json={"items": items}).status_code == 200
    busy = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'minutebook app' AND state <> 'idle'"
    )  # fmt: skip
    with olga.stream("GET", f"/v1/rooms/{room}/export") as answer, server.sql() as connection:
        assert next(answer.iter_raw(1024)).startswith(b'{"id":')
        # The page under way is read to its end first; then the client's silence must leave the database alone.
        deadline = time.monotonic() + 20
        idle = 0
        while idle < 50:
            idle = idle + 1 if connection.execute(busy).fetchone() == (0,) else 0
            assert time.monotonic() < deadline, "a connection is busy although nobody reads"
    assert olga.get(f"/v1/rooms/{room}").status_code == 200
