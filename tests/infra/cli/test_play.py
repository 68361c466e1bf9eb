"""`minutebook play`: a recording becomes a run in a room, once, whatever happens on the way."""

from __future__ import annotations

import json
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import LiveServer, open_room
from minutebook.infra.cli.play import Pace, end_reason
from minutebook.infra.swe_agent import Item, Run
from verbs import process, verb


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "release-notes.traj"
    with as_file(files("minutebook.infra") / "demo" / "release-notes.traj") as shipped:
        path.write_bytes(shipped.read_bytes())
    return path


def events_of(owner: httpx.Client, room: str) -> list[dict[str, Any]]:
    return owner.get(f"/v1/rooms/{room}/events", params={"limit": 500}).json()["events"]


def pushed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["origin"] == "harness"]


def test_it_opens_a_room_and_pushes_the_run(here: list[object], owner: httpx.Client, recording: Path) -> None:
    done = verb("play", recording, *here, "--pace", 0, "--json")
    assert done.code == 0, done
    answer = done.json
    assert answer | {"room": "", "runId": ""} == {
        "room": "", "runId": "", "items": 52, "already": 0, "reason": "finished", "seq": 57,
    }  # fmt: skip
    events = events_of(owner, answer["room"])
    assert len(pushed(events)) == 52
    assert {event["actor"]["id"] for event in pushed(events)} == {answer["runId"]}
    assert events[0]["payload"]["title"] == "The oldest release never gets its notes"
    assert owner.get(f"/v1/rooms/{answer['room']}").json().get("run") is None


def test_each_item_names_what_caused_it(here: list[object], owner: httpx.Client, room: str, recording: Path) -> None:
    assert verb("play", recording, *here, "--room", room, "--speed", "100000x").code == 0
    events = {event["seq"]: event for event in events_of(owner, room)}
    results = [event for event in pushed(list(events.values())) if event["type"] == "tool_result"]
    assert len(results) == 10
    for result in results:
        cause = events[result["causedBy"]]
        assert (cause["type"], cause["payload"]["callId"]) == ("tool_call", result["payload"]["callId"])
    assert all(event["causedBy"] < event["seq"] for event in events.values() if "causedBy" in event)
    assert sum("causedBy" in event for event in events.values()) == 30


def test_a_run_that_was_cut_off_goes_on_where_it_was(
    here: list[object], owner: httpx.Client, room: str, recording: Path
) -> None:
    there = ("play", recording, *here, "--room", room, "--run-id", "run22222")
    with process("tail", room, *here, "--json") as tail, process(*there, "--pace", 0.02) as play:
        seen = 0
        while seen < 20:
            seen += json.loads(tail.line())["origin"] == "harness"
        assert play.interrupt() == 130
    done = verb(*there, "--speed", "100000", "--json")
    assert done.code == 0, done
    assert 20 <= done.json["already"] < 52
    events = events_of(owner, room)
    assert len(pushed(events)) == 52
    results = [event for event in pushed(events) if event["type"] == "tool_result"]
    assert all("causedBy" in event for event in results)


def test_a_busy_room_and_an_ended_run_are_refused(
    server: LiveServer, here: list[object], owner: httpx.Client, room: str, recording: Path
) -> None:
    other = server.client("agent:another2", room=room)
    assert other.post("/v1/bridge/hello").status_code == 200
    busy = verb("play", recording, *here, "--room", room)
    assert (busy.code, "Another run is running" in busy.said) == (1, True), busy
    assert other.post("/v1/bridge/bye", json={"reason": "finished"}).status_code == 200
    ended = verb("play", recording, *here, "--room", room, "--run-id", "another2")
    assert (ended.code, "This run has ended" in ended.said) == (1, True), ended
    assert owner.post(f"/v1/rooms/{room}/close", json={}).status_code == 200
    closed = verb("play", recording, *here, "--room", room)
    assert (closed.code, "closed" in closed.said) == (1, True), closed


def test_a_given_token_needs_the_run_and_its_own_room(
    server: LiveServer, owner: httpx.Client, room: str, recording: Path
) -> None:
    token = server.token("agent:tokened2", room=room, role="tester")
    there = ("play", recording, "--url", server.url, "--token", token, "--pace", 0)
    assert "--run-id" in verb(*there).said
    other = open_room(owner)
    wrong = verb(*there, "--run-id", "tokened2", "--room", other)
    assert (wrong.code, f"for room {room}, not for {other}" in wrong.said) == (2, True), wrong
    assert verb(*there, "--run-id", "tokened2").code == 0
    assert {event["actor"]["role"] for event in pushed(events_of(owner, room))} == {"tester"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--pace", 1, "--speed", 2), "not both"),
        (("--pace", -1), "--pace must be"),
        (("--speed", "fast"), "--speed must be a factor"),
        (("--speed", "0x"), "--speed must be a factor"),
        (("--room", "x"), "is not the id of a room"),
        (("--run-id", "x"), "--run-id must be"),
    ],
)
def test_options_that_make_no_sense_are_named(here: list[object], recording: Path, args: Any, words: str) -> None:
    done = verb("play", recording, *here, *args)
    assert (done.code, words in done.said) == (2, True), done


def test_a_file_that_is_no_recording_is_refused_before_anything_is_opened(
    here: list[object], owner: httpx.Client, tmp_path: Path
) -> None:
    before = len(owner.get("/v1/rooms", params={"limit": 200}).json()["rooms"])
    bad = tmp_path / "bad.traj"
    bad.write_text('{"trajectory": 3}')
    done = verb("play", bad, *here)
    assert (done.code, "trajectory must be a list" in done.said) == (2, True), done
    assert "there is no such file" in verb("play", tmp_path / "none.traj", *here).said
    assert len(owner.get("/v1/rooms", params={"limit": 200}).json()["rooms"]) == before


def test_the_pace_is_the_recorded_one_its_multiple_or_fixed() -> None:
    item = Item("events", 1, "turn", {}, None, 3.0)
    assert [pace.wait_s(item) for pace in (Pace(), Pace(speed=2), Pace(0.5), Pace(0))] == [3.0, 1.5, 0.5, 0.0]


@pytest.mark.parametrize(
    ("status", "reason"),
    [("submitted", "finished"), ("submitted (exit_cost)", "finished"), ("exit_cost", "deadline"),
     ("exit_context", "stuck"), ("exit_error", "error"), ("whatever", "error")],
)  # fmt: skip
def test_the_end_of_a_run_comes_from_its_exit_status(status: str, reason: str) -> None:
    last = Item("status", 1, "state_changed", {"kind": "harness_status", "status": status}, None, 0.0)
    assert end_reason(Run("", "implementer", [last])) == reason
    assert end_reason(Run("", "implementer", [])) == "finished"
