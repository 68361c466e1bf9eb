"""`minutebook rooms`: look, say, keep; with the token of a command-line client only what such a client may."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from bridges import Bridge
from live_server import LiveServer, open_room, post
from verbs import Done, verb


@pytest.fixture
def rooms(here: list[object]) -> Any:
    """Runs a verb of `minutebook rooms` at the server."""
    return lambda *args, **more: verb("rooms", *args, *here, **more)


def log(client: httpx.Client, room: str) -> list[dict[str, Any]]:
    """The room's events."""
    return client.get(f"/v1/rooms/{room}/events").json()["events"]


def fine(done: Done) -> Done:
    """A verb that went well."""
    assert done.code == 0, done.said
    return done


def test_a_room_from_its_opening_to_its_close(rooms: Any, owner: httpx.Client) -> None:
    room = fine(rooms("open", "--title", "By hand", "--retention", "7d")).out.strip()
    assert (
        "human:bob is a collaborator and approves"
        in fine(rooms("invite", room, "human:bob", "--role", "collaborator", "--approver")).out
    )
    assert "posted (entry 3, chain " in fine(rooms("post", room, "Hello, all", "--to", "human:bob")).out
    assert "queued as 4" in fine(rooms("queue", room, "-", stdin="for the next one\n")).out
    assert fine(rooms("queued", room)).out.split() == [
        "REF",
        "AUTHOR",
        "TEXT",
        "4",
        "human:operator",
        "for",
        "the",
        "next",
        "one",
    ]
    assert "4 is not queued any more" in fine(rooms("unqueue", room, 4)).out
    assert fine(rooms("queued", room, "--json")).json == {"queue": []}
    assert "human:bob is no member" in fine(rooms("remove", room, "human:bob")).out
    assert "on legal hold" in fine(rooms("hold", room, "--reason", "lawsuit 7")).out
    shown = fine(rooms("show", room)).out
    for words in (room, "By hand", "Open, on legal hold", "human:operator (epoch 1)", "kept 7d", "chain ", "steer"):
        assert words in shown, shown
    assert "released" in fine(rooms("release", room, "--reason", "settled")).out
    assert "closed (entry " in fine(rooms("close", room, "--reason", "done")).out
    events = log(owner, room)
    assert [event["type"] for event in events][:4] == ["state_changed", "participant", "message", "message"]
    assert (events[2]["payload"]["text"], events[2]["payload"]["to"]) == ("Hello, all", ["human:bob"])
    assert events[-1]["payload"]["phase"] == "closed"
    assert rooms("post", room, "too late").code == 1
    assert "This room is closed" in rooms("post", room, "too late").said


def test_the_list_is_a_table_or_json_over_all_pages(
    rooms: Any, owner: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {open_room(owner, title=f"listed \u001b[31m{n}") for n in range(5)}
    monkeypatch.setattr("minutebook.infra.cli.rooms.PAGE", 2)
    found = fine(rooms("list", "--json")).json["rooms"]
    assert made <= {room["id"] for room in found}
    table = fine(rooms("list", "--phase", "Open")).out
    assert all(room in table for room in made)
    assert "\x1b[31m" not in table
    assert rooms("list", "--phase", "Sleeping").code == 2


def test_runs_come_from_the_log(rooms: Any, server: LiveServer) -> None:
    bridge = Bridge(server).hello()
    bridge.bye("stuck")
    wanted = bridge.alice.post(f"/v1/rooms/{bridge.room}/runs", json={"role": "tester"}).json()["runId"]
    runs = fine(rooms("runs", bridge.room, "--json")).json["runs"]
    assert [(run["runId"], run["role"], run["state"], run.get("reason")) for run in runs] == [
        (bridge.run_id, "implementer", "ended", "stuck"),
        (wanted, "tester", "requested", None),
    ]
    assert bridge.run_id in fine(rooms("runs", bridge.room)).out
    fork = fine(rooms("fork", bridge.room)).out.strip()
    assert fine(rooms("runs", fork, "--json")).json == {"runs": []}


def test_a_queued_message_can_be_promoted_by_the_driver(server: LiveServer, here: list[object]) -> None:
    bridge = Bridge(server).hello()
    as_alice = (*here, "--principal", "human:alice")
    ref = fine(verb("rooms", "queue", bridge.room, "look here", *as_alice, "--json")).json["seq"]
    assert f"{ref} goes to the running run" in fine(verb("rooms", "promote", bridge.room, ref, *as_alice)).out
    assert verb("rooms", "promote", bridge.room, ref, *as_alice).code == 1


def test_explain_says_why_and_its_exit_code_says_whether(rooms: Any, room: str, server: LiveServer) -> None:
    assert fine(rooms("explain", room, "close")).out == "yes: a owner may close\n"
    done = rooms("explain", room, "close", "--token", server.token("human:wanda", "agents-member"))
    assert (done.code, done.out) == (1, "no: a watcher may not close\n")
    assert rooms("explain", room, "fly").code == 2


def test_fork_copies_up_to_an_entry(rooms: Any, owner: httpx.Client, room: str) -> None:
    for text in ("one", "two"):
        post(owner, room, text)
    fork = fine(rooms("fork", room, "--at", 2, "--note", "another way", "--json")).json
    assert fork["forkedFrom"]["seq"] == 2
    assert [event["payload"].get("text") for event in log(owner, fork["id"])] == [None, "one", None]
    assert rooms("fork", room, "--at", 99).code == 2


def test_an_export_is_whole_and_verifies_offline(rooms: Any, owner: httpx.Client, room: str, tmp_path: Path) -> None:
    for text in ("short", "line\u2028 " + "x" * 15_000, "short"):
        post(owner, room, text)
    file = tmp_path / "room.jsonl"
    answer = fine(rooms("export", room, "--out", file, "--json")).json
    assert (answer["events"], answer["head"]) == (4, owner.get(f"/v1/rooms/{room}").json()["chain"])
    assert fine(verb("verify", file, "--json")).json["ok"] is True
    assert fine(rooms("export", room)).out.encode() == file.read_bytes()
    trailer = json.loads(fine(rooms("export", room, "--after", 3)).out.splitlines()[-1])
    assert (trailer["fromSeq"], trailer["count"]) == (4, 1)
    stranger = ("--out", tmp_path / "other", "--principal", "human:wanda")
    assert rooms("export", room, *stranger).code == 2
    assert not (tmp_path / "other").exists()


def test_a_token_that_acts_for_somebody_is_said_to_be_for_conversations(server: LiveServer, room: str) -> None:
    token = fine(
        verb("token", "--principal", "human:operator", "--act", "system:desk", "--data-dir", server.data_dir)
    ).out.strip()  # fmt: skip
    refused = verb("rooms", "show", room, "--url", server.url, "--token-file", "-", stdin=token)
    assert refused.code == 2
    assert "acts for somebody" in refused.said
    assert verb("token", "--principal", "human:a", "--act", "desk", "--data-dir", server.data_dir).code != 0


def test_what_a_command_line_client_may_not_is_said_with_exit_code_2(
    server: LiveServer, here: list[object], room: str, owner: httpx.Client, tmp_path: Path
) -> None:
    token = fine(
        verb("token", "--principal", "human:operator", "--group", "agents-member", "--client", "terminal",
             "--data-dir", server.data_dir)
    ).out.strip()  # fmt: skip
    ref = fine(verb("rooms", "queue", room, "later", *here, "--json")).json["seq"]

    def as_client(*args: object) -> Done:
        return verb("rooms", *args, "--url", server.url, "--token-file", "-", stdin=token)

    for allowed in (("list",), ("show", room), ("runs", room), ("queued", room), ("post", room, "hi"),
                    ("queue", room, "next"), ("fork", room), ("explain", room, "chat")):  # fmt: skip
        fine(as_client(*allowed))
    before = log(owner, room)
    for refused in (("open",), ("invite", room, "human:bob"), ("remove", room, "human:bob"), ("unqueue", room, ref),
                    ("promote", room, ref), ("hold", room, "--reason", "x"), ("release", room, "--reason", "x"),
                    ("export", room, "--out", tmp_path / "x"), ("close", room)):  # fmt: skip
        done = as_client(*refused)
        assert (done.code, "may" in done.said, "client" in done.said) == (2, True, True), (refused, done.said)
    assert log(owner, room) == before
    assert as_client("explain", room, "decide").code == 1


def test_what_goes_wrong_is_a_sentence(rooms: Any, room: str) -> None:
    for args, code, words in (
        (("show", "no-room"), 2, "is not the id of a room"),
        (("show", "zzzzzzzz"), 2, "Check the id"),
        (("unqueue", room, 99), 1, "No message of this seq waits"),
        (("invite", room, "agent:x"), 2, "principal"),
        (("invite", room, "human:a/b?c#d", "--role", "king"), 2, "role"),
        (("post", room, ""), 2, "no words"),
        (("export", room, "--json"), 2, "--json needs --out"),
    ):
        done = rooms(*args)
        assert done.code == code, done.said
        assert words in done.said
        assert "Traceback" not in done.said
    done = verb("rooms", "list", "--url", "http://127.0.0.1:9", "--token", "x")
    assert (done.code, "No server answers at http://127.0.0.1:9" in done.said) == (3, True)
