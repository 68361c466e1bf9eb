"""`minutebook bridge`: a growing log is in the room once, whatever is killed; what the room says reaches a command."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from bridges import Bridge, item
from live_server import LiveServer, until
from scratch import SCRATCH
from verbs import Process, process, verb


def line(number: int, **payload: Any) -> str:
    return json.dumps({"type": "state_changed", "payload": {"kind": "harness_event", "n": number, **payload}}) + "\n"


BYE = '{"type": "bye", "payload": {"reason": "finished"}}\n'


class Scene:
    """A room of alice's, a run that will work in it, and the run's log."""

    def __init__(self, server: LiveServer, folder: Path) -> None:
        self.bridge = Bridge(server)
        self.log = folder / "harness.jsonl"
        self.folder = folder
        self.arguments: list[object] = [
            *("bridge", self.log, "--run-id", self.bridge.run_id, "--room", self.bridge.room),
            *("--url", server.url, "--data-dir", server.data_dir),
        ]  # fmt: skip

    def write(self, *lines: str) -> None:
        """Append to the log."""
        with self.log.open("a") as file:
            file.writelines(lines)

    def pushed(self) -> list[dict[str, Any]]:
        """Payloads that came from the log."""
        return [
            event["payload"] for event in whole_log(self.bridge)
            if event["origin"] == "harness" and "ref" not in event["payload"]
        ]  # fmt: skip

    def said(self, *kinds: str) -> list[dict[str, Any]]:
        """Payloads of what the bridge said on deliveries."""
        return [e["payload"] for e in whole_log(self.bridge) if e["payload"].get("kind") in kinds]

    @contextlib.contextmanager
    def run(self, *arguments: object) -> Generator[Process]:
        """The verb as a process, once it said hello."""
        with process(*self.arguments, *arguments) as started:
            until(lambda: " in room " in started.errors or started.is_over, 30, "hello")
            yield started


def whole_log(bridge: Bridge) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        query = {"afterSeq": len(found), "limit": 500}
        page = bridge.alice.get(f"/v1/rooms/{bridge.room}/events", params=query).json()
        found += page["events"]
        if len(found) >= page["lastSeq"]:
            return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: that of a Unix socket has 107 characters at most."""
    with tempfile.TemporaryDirectory(prefix="mbb", dir=SCRATCH) as made:
        yield Path(made)


@pytest.fixture
def scene(server: LiveServer, folder: Path) -> Scene:
    """See Scene."""
    return Scene(server, folder)


def test_a_log_that_is_there_is_pushed_and_the_run_ends(scene: Scene) -> None:
    scene.write(*(line(n) for n in range(1, 501)))
    done = verb(*scene.arguments, "--no-follow", "--json")
    assert done.code == 0, done
    assert done.json == {
        "room": scene.bridge.room, "runId": scene.bridge.run_id, "items": 500, "reason": "finished",
    }  # fmt: skip
    assert [payload["n"] for payload in scene.pushed()] == list(range(1, 501))
    again = verb(*scene.arguments, "--no-follow")
    assert (again.code, "has ended" in again.said) == (1, True), again


@pytest.mark.timeout(300)
@pytest.mark.parametrize("rounds", [8, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_at_any_moment_nothing_is_lost_or_doubled(server: LiveServer, scene: Scene, rounds: int) -> None:
    """kill -9 in mid-batch, many times, while the log grows by whole lines and by halves of lines."""
    chance = random.Random(7)  # noqa: S311 - for moments, not for secrets
    written, stop = 0, threading.Event()

    def grow() -> None:
        nonlocal written
        with scene.log.open("ab", buffering=0) as file:
            while not stop.is_set():
                burst = b""
                for _ in range(chance.randint(1, 60)):
                    written += 1
                    burst += line(written, filler="x" * chance.randint(0, 2000)).encode()
                cut = chance.randint(0, len(burst))
                file.write(burst[:cut])
                stop.wait(chance.uniform(0, 0.05))
                file.write(burst[cut:])

    with server.sql() as sql:

        def head() -> int:
            row = sql.execute("SELECT version FROM minutebook.streams WHERE name = %s", (f"room:{scene.bridge.room}",))
            return row.fetchone()[0]  # pyright: ignore[reportOptionalSubscript]

        growing = threading.Thread(target=grow)
        growing.start()
        try:
            for _ in range(rounds):
                with process(*scene.arguments) as bridge:
                    target = head() + chance.randint(0, 400)
                    until(lambda: head() >= target or bridge.is_over, 60, "some items")  # noqa: B023
                    assert not bridge.is_over, bridge.errors
                    bridge.kill()
        finally:
            stop.set()
            growing.join()
    scene.write(BYE)
    done = verb(*scene.arguments, "--json")
    assert done.code == 0, done
    assert done.json["items"] == written
    assert [payload["n"] for payload in scene.pushed()] == list(range(1, written + 1))
    assert verb("verify", scene.bridge.room, "--data-dir", server.data_dir).code == 0


def test_one_bad_item_in_the_middle_is_stood_in_for_and_nothing_else(scene: Scene) -> None:
    lines = [line(n) for n in range(1, 101)]
    lines[22] = '{"type": "participant", "payload": {"principal": "human:eve", "change": "joined", "role": "owner"}}\n'
    lines[39] = "Traceback (most recent call last):\n"
    lines[59] = json.dumps({"type": "state_changed", "payload": {"kind": "harness_event", "Kind": "interrupt"}}) + "\n"
    lines[79] = line(80, filler="x" * 70_000)
    lines[80] = line(81, lone="\ud800")
    scene.write(*lines)
    done = verb(*scene.arguments, "--no-follow", "--json")
    assert (done.code, done.json["items"]) == (0, 100), done
    pushed = scene.pushed()
    assert len(pushed) == 100
    for number, payload in enumerate(pushed, 1):
        match number:
            case 23 | 60:
                assert (payload["kind"], payload["error"]) == ("harness_error", "refused")
                assert payload["code"] == "invalid"
            case 40:
                assert payload == {"kind": "harness_error", "error": "unreadable_line", "bytes": 34}
            case 80:
                assert payload["oversize"] is True
            case 81:
                assert payload["lone"] == "\ufffd"
            case _:
                assert payload["n"] == number
    assert "human:eve" not in scene.bridge.alice.get(f"/v1/rooms/{scene.bridge.room}").text


def test_a_line_can_name_the_one_that_caused_it(scene: Scene) -> None:
    with scene.run() as bridge:
        scene.write(line(1), line(2))
        until(lambda: len(scene.pushed()) == 2, what="two items")
        scene.bridge.alice.post(f"/v1/rooms/{scene.bridge.room}/messages", json={"text": "between"})
        effect = {"type": "state_changed", "payload": {"kind": "harness_event", "n": 3}, "causedBy": 2}
        scene.write(json.dumps(effect) + "\n", BYE)
        assert bridge.wait() == 0, bridge.errors
    events = {event["payload"].get("n"): event for event in whole_log(scene.bridge)}
    assert events[3]["causedBy"] == events[2]["seq"]


COMMAND = """
import json, os, sys
delivery = json.loads(sys.stdin.readline())
with open({path!r}, "a") as file:
    file.write(json.dumps(delivery) + "\\n")
text = delivery.get("text", "")
if text == "impossible":
    print("the harness has no ears")
    sys.exit(65)
if text == "at the second try" and sum("second try" in line for line in open({path!r})) == 1:
    sys.exit(1)
"""

RUNS_ON = """
import json, sys
print("not for the bridge", file=sys.stderr)
for line in sys.stdin:
    delivery = json.loads(line)
    with open({path!r}, "a") as file:
        file.write(json.dumps(delivery) + "\\n")
    text = delivery.get("text", "")
    if text == "at the second try" and sum("second try" in line for line in open({path!r})) == 1:
        sys.exit(1)
    answer = {{"ref": delivery["ref"], "ok": text != "impossible"}}
    if text == "impossible":
        answer["reason"] = "the harness has no ears"
    print(json.dumps(answer), flush=True)
"""


def command(scene: Scene, source: str) -> tuple[list[object], Callable[[], list[dict[str, Any]]]]:
    """Options with a command that keeps what it is given, and a look at that."""
    kept, script = scene.folder / "kept", scene.folder / "command.py"
    script.write_text(source.format(path=str(kept)))
    kept.touch()

    def given() -> list[dict[str, Any]]:
        return [json.loads(each) for each in kept.read_text().splitlines()]

    mode = "one" if source is RUNS_ON else "each"
    return ["--command", shlex.join([sys.executable, str(script)]), "--command-mode", mode], given


@pytest.mark.parametrize("source", [COMMAND, RUNS_ON], ids=["each", "one"])
def test_steering_and_interrupts_reach_the_command_in_order(scene: Scene, source: str) -> None:
    options, given = command(scene, source)
    with scene.run(*options) as bridge:
        first = scene.bridge.steer("left")
        second = scene.bridge.interrupt()
        third = scene.bridge.steer("impossible")
        fourth = scene.bridge.steer("at the second try")
        fifth = scene.bridge.steer("right")
        until(lambda: len(scene.said("delivered")) == 3, 30, "the last acknowledgement")
        assert given() == [
            {"kind": "deliver", "ref": first, "text": "left"},
            {"kind": "interrupt", "ref": second},
            {"kind": "deliver", "ref": third, "text": "impossible"},
            {"kind": "deliver", "ref": fourth, "text": "at the second try"},
            {"kind": "deliver", "ref": fourth, "text": "at the second try"},
            {"kind": "deliver", "ref": fifth, "text": "right"},
        ]
        assert scene.said("delivered", "interrupted", "undeliverable") == [
            {"kind": "delivered", "ref": first},
            {"kind": "interrupted", "ref": second},
            {"kind": "undeliverable", "ref": third, "reason": "the harness has no ears"},
            {"kind": "delivered", "ref": fourth},
            {"kind": "delivered", "ref": fifth},
        ]
        scene.write(BYE)
        assert bridge.wait() == 0, bridge.errors


def test_without_a_command_steering_is_undeliverable_and_the_room_hears_of_it(scene: Scene) -> None:
    with scene.run():
        ref = scene.bridge.steer("anybody?")
        until(lambda: len(scene.said("undeliverable")) == 1, what="the acknowledgement")
        assert scene.said("undeliverable")[0]["ref"] == ref


WAITS = """
import json, sys, time, pathlib
delivery = json.loads(sys.stdin.readline())
with open({path!r}, "a") as file:
    file.write(json.dumps(delivery) + "\\n")
while not pathlib.Path({path!r} + ".go").exists():
    time.sleep(0.02)
"""


def test_what_a_killed_bridge_did_not_acknowledge_comes_again_and_the_rest_not(scene: Scene) -> None:
    options, given = command(scene, WAITS)
    go = scene.folder / "kept.go"
    with scene.run(*options) as bridge:
        go.touch()
        first = scene.bridge.steer("acknowledged")
        until(lambda: len(scene.said("delivered")) == 1, what="the first acknowledgement")
        go.unlink()
        second = scene.bridge.steer("taken, then the bridge is killed")
        until(lambda: len(given()) == 2, what="the second delivery")
        bridge.kill()
        go.touch()
    third = scene.bridge.steer("while nobody was there")
    with scene.run(*options) as bridge:
        until(lambda: len(scene.said("delivered")) == 3, 20, "the rest")
        scene.write(BYE)
        assert bridge.wait() == 0, bridge.errors
    assert [each["ref"] for each in given()] == [first, second, second, third]
    assert [each["ref"] for each in scene.said("delivered")] == [first, second, third]


class Caller:
    """A process beside the bridge that asks for approvals."""

    def __init__(self, path: Path) -> None:
        until(path.exists, what="the socket")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(str(path))
        self._file = self._socket.makefile("rwb", buffering=0)

    def send(self, event_id: str, class_: str = "forge.pr", **action: Any) -> None:
        """Ask, and do not wait."""
        request = {"eventId": event_id, "callId": f"call {event_id}", "class": class_, "action": action}
        self._file.write(json.dumps(request).encode() + b"\n")

    def answer(self) -> dict[str, Any]:
        """What the bridge says."""
        return json.loads(self._file.readline())

    def close(self) -> None:
        """Go away."""
        self._file.close()
        self._socket.close()


def pending(scene: Scene) -> list[dict[str, Any]]:
    url = f"/v1/rooms/{scene.bridge.room}/approvals"
    return scene.bridge.alice.get(url, params={"state": "pending"}).json()["approvals"]


def test_a_local_caller_asks_and_hears_the_decision(scene: Scene) -> None:
    path = scene.folder / "ask"
    with scene.run("--socket", path) as bridge:
        caller = Caller(path)
        assert path.stat().st_mode & 0o077 == 0
        caller.send("e1", open="a pull request")
        until(lambda: len(pending(scene)) == 1, what="the request")
        asked = pending(scene)[0]
        ref = scene.bridge.decide(asked)
        answer = caller.answer()
        assert answer == {
            "eventId": "e1", "allow": True, "decision": "approved",
            "approvalId": asked["approvalId"], "actionDigest": asked["actionDigest"],
        }  # fmt: skip
        caller.send("e2", open="another one")
        until(lambda: len(pending(scene)) == 1, what="the second request")
        other = scene.bridge.decide(pending(scene)[0], "denied", "no")
        assert (answer := caller.answer())["allow"] is False
        assert answer["reason"] == "no"
        caller.send("e3", "forge.push", push=1)
        assert caller.answer()["allow"] is True
        caller.send("e1", open="something else")
        assert caller.answer()["error"]["code"] == "idempotency_key_reused"
        caller._file.write(b"[]\n")
        assert caller.answer()["error"]["code"] == "malformed"
        caller.close()
        until(lambda: len(scene.said("decision_applied")) == 2, what="the acknowledgements")
        assert [each["ref"] for each in scene.said("decision_applied")] == [ref, other]
        scene.write(BYE)
        assert bridge.wait() == 0, bridge.errors
    assert not path.exists()


def test_a_decision_that_came_while_the_bridge_was_away_is_there_when_it_is_asked_again(scene: Scene) -> None:
    path = scene.folder / "ask"
    with scene.run("--socket", path) as bridge:
        caller = Caller(path)
        caller.send("e1", open="a pull request")
        until(lambda: len(pending(scene)) == 1, what="the request")
        bridge.kill()
        caller.close()
    ref = scene.bridge.decide(pending(scene)[0])
    with scene.run("--socket", path) as bridge:
        caller = Caller(path)
        caller.send("e1", open="a pull request")
        assert caller.answer()["allow"] is True
        caller.close()
        until(lambda: len(scene.said("decision_applied")) == 1, what="the acknowledgement")
        assert scene.said("decision_applied")[0]["ref"] == ref
        scene.write(BYE)
        assert bridge.wait() == 0, bridge.errors


def test_a_second_bridge_of_the_run_displaces_the_first_which_stops(scene: Scene) -> None:
    scene.write(line(1))
    with scene.run() as first, scene.run() as second:
        assert first.wait() == 1
        assert "Another" in first.errors
        scene.write(line(2), BYE)
        assert second.wait() == 0, second.errors
    assert [payload["n"] for payload in scene.pushed()] == [1, 2]


def test_a_bridge_of_another_run_is_told_that_the_room_is_busy(server: LiveServer, scene: Scene) -> None:
    running = Bridge(server, scene.bridge.room).hello()
    scene.write(line(1))
    done = verb(*scene.arguments, "--no-follow")
    assert (done.code, "Another run is running" in done.said) == (1, True), done
    assert running.push(item(1)).status_code == 200


def test_a_revoked_run_ends_its_bridge(scene: Scene) -> None:
    with scene.run() as bridge:
        scene.write(line(1))
        until(lambda: len(scene.pushed()) == 1, what="an item")
        began = time.monotonic()
        assert scene.bridge.alice.post(f"/v1/runs/{scene.bridge.run_id}/revoke", json={}).status_code == 200
        assert bridge.wait() == 1
        assert time.monotonic() - began < 5
        assert "ended this run (revoked)" in bridge.errors


def test_a_cut_log_stops_the_bridge(scene: Scene) -> None:
    scene.write(line(1), line(2))
    with scene.run() as bridge:
        until(lambda: len(scene.pushed()) == 2, what="two items")
        os.truncate(scene.log, 10)
        assert bridge.wait() == 1
        assert "was cut or replaced" in " ".join(bridge.errors.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--run-id", "x", "--room", "aaaaaaaa"), "--run-id must be"),
        (("--run-id", "aaaaaaaa"), "Give --room"),
        (("--run-id", "aaaaaaaa", "--room", "aaaaaaaa", "--no-follow"), "is no file"),
        (("--run-id", "aaaaaaaa", "--room", "aaaaaaaa", "--command", "'"), "cannot be taken apart"),
        (("--run-id", "aaaaaaaa", "--room", "aaaaaaaa", "--command", " "), "--command is empty"),
    ],
)
def test_options_that_make_no_sense_are_named(folder: Path, arguments: Any, words: str) -> None:
    done = verb("bridge", folder / "none.jsonl", "--data-dir", folder, *arguments)
    assert (done.code, words in done.said) == (2, True), done


def test_the_server_may_die_and_come_back(folder: Path) -> None:
    """Items and a delivery that were under way are there afterwards, once."""
    with LiveServer(folder / "data") as server:
        server.keep_port()
        scene = Scene(server, folder)
        options, given = command(scene, COMMAND)
        scene.write(*(line(n) for n in range(1, 1001)))
        with scene.run(*options) as bridge:
            until(lambda: len(scene.pushed()) > 100, what="some items")
            server.kill()
            scene.write(*(line(n) for n in range(1001, 2001)))
            server.start()
            ref = scene.bridge.steer("welcome back")
            until(lambda: len(scene.said("delivered")) == 1, 30, "the delivery")
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(20)
            server.start()
            scene.write(BYE)
            assert bridge.wait(60) == 0, bridge.errors
        assert [each["ref"] for each in given()] == [ref]
        assert [payload["n"] for payload in scene.pushed()] == list(range(1, 2001))
