"""Real runs end to end: played, watched through a crash, exported, verified, rebuilt."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import LiveServer, open_room
from minutebook.infra.swe_agent import read_run
from scratch import SCRATCH
from verbs import RUNS, process, verb

needs_recordings = pytest.mark.skipif(not RUNS.is_dir(), reason="the recorded runs (../shared/data) are not here")

NAMES = (
    "function-calling-simple", "humanevalfix-python-0", "test-repo-i1", "marshmallow-1867-function-calling",
    "pydicom-1458", "marshmallow-1867-from-source",
)  # fmt: skip


def log_of(client: httpx.Client, room: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = client.get(f"/v1/rooms/{room}/events", params={"afterSeq": len(found), "limit": 500}).json()
        found += page["events"]
        if len(found) == page["lastSeq"]:
            return found


@needs_recordings
@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run_plays_exports_verifies_and_rebuilds_clean(
    server: LiveServer, here: list[object], owner: httpx.Client, tmp_path: Path, name: str
) -> None:
    path = RUNS / f"{name}.traj"
    played = verb("play", path, *here, "--pace", 0, "--json")
    assert played.code == 0, played
    room, beside = played.json["room"], ("--data-dir", server.data_dir)
    events = [event for event in log_of(owner, room) if event["origin"] == "harness"]
    items = read_run(path).items
    assert [event["type"] for event in events] == [item.type for item in items]
    assert [event["payload"] | {"runId": ""} for event in events] == [item.payload | {"runId": ""} for item in items]
    file = tmp_path / "room.jsonl"
    assert verb("export", room, "--out", file, *beside).code == 0
    offline, database = verb("verify", file, "--json"), verb("verify", room, "--json", *beside)
    assert (offline.code, database.code) == (0, 0)
    assert offline.json["head"] == database.json["head"] == owner.get(f"/v1/rooms/{room}").json()["chain"]
    owner.get(f"/v1/rooms/{room}/transcript", params={"minSeq": played.json["seq"]})
    checked = verb("rebuild", "--check", "--json", *beside)
    assert (checked.code, checked.json["ok"]) == (0, True), checked
    assert all(each["compared"] >= 1 for each in checked.json["projections"])


@pytest.fixture
def own_server() -> Iterator[LiveServer]:
    """A server that a test may kill, on a port that it keeps."""
    with tempfile.TemporaryDirectory(prefix="mbr", dir=SCRATCH) as folder, LiveServer(Path(folder) / "data") as live:
        live._arguments = ["--port", str(live.port)]
        yield live


@needs_recordings
def test_a_viewer_and_a_player_survive_kill_9_and_have_exactly_what_the_log_has(own_server: LiveServer) -> None:
    here = ("--url", own_server.url, "--data-dir", own_server.data_dir)
    room = open_room(own_server.member("operator"))
    path = RUNS / "test-repo-i1.traj"
    with (
        process("tail", room, *here, "--after", 0, "--json") as tail,
        process("play", path, *here, "--room", room, "--pace", 0.05, "--json") as play,
    ):
        seen = [tail.line() for _ in range(10)]
        own_server.kill()
        own_server.start()
        while '"change": "left"' not in seen[-1]:
            seen.append(tail.line())
        assert play.wait() == 0, play.errors
        assert "connected again" in tail.errors
        assert tail.interrupt() == 130
    events = log_of(own_server.member("operator"), room)
    assert [json.loads(line) for line in seen] == events
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    pushed = [event["payload"] | {"runId": ""} for event in events if event["origin"] == "harness"]
    assert pushed == [item.payload | {"runId": ""} for item in read_run(path).items]


@needs_recordings
def test_a_viewer_who_is_stopped_goes_on_where_they_were(here: list[object], owner: httpx.Client, room: str) -> None:
    """Two viewers one after the other, the second from the last seq of the first, while the run goes on."""
    path = RUNS / "humanevalfix-python-0.traj"
    with (
        process("tail", room, *here, "--after", 0, "--json") as first,
        process("play", path, *here, "--room", room, "--pace", 0.02) as play,
    ):
        seen = [json.loads(first.line()) for _ in range(8)]
        assert first.interrupt() == 130
        with process("tail", room, *here, "--after", seen[-1]["seq"], "--json") as second:
            while seen[-1]["payload"].get("change") != "left":
                seen.append(json.loads(second.line()))
        assert play.wait() == 0
    assert seen == log_of(owner, room)
