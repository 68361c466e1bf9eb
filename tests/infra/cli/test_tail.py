"""`minutebook tail`: live, resuming, in lines or JSON, and clear when it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from live_server import LiveServer, post
from verbs import process, verb


def test_it_shows_the_end_of_a_room_and_stops_when_asked_to(here: list[object], owner: httpx.Client, room: str) -> None:
    for number in range(3):
        post(owner, room, f"word {number}")
    done = verb("tail", room, *here, "--no-follow", "--tail", 2)
    assert done.code == 0
    assert [line.split(" ", 1)[1] for line in done.out.splitlines()] == [
        "#3 human:operator (owner) word 1",
        "#4 human:operator (owner) word 2",
    ]
    assert f"room {room}: A room" in done.said
    assert verb("tail", f"room:{room}", *here, "--no-follow", "--after", 4).out == ""


def test_json_prints_the_envelopes_as_the_log_has_them(here: list[object], owner: httpx.Client, room: str) -> None:
    post(owner, room, "line\u2028separator \u001b[31m \U0001f600")
    done = verb("tail", room, *here, "--no-follow", "--after", 0, "--json")
    assert done.code == 0
    events = owner.get(f"/v1/rooms/{room}/events").json()["events"]
    assert [json.loads(line) for line in done.out.split("\n") if line] == events


def test_it_follows_live_and_ends_with_the_room(here: list[object], owner: httpx.Client, room: str) -> None:
    with process("tail", room, *here, "--json") as tail:
        assert json.loads(tail.line())["seq"] == 1
        post(owner, room, "now")
        assert json.loads(tail.line())["payload"]["text"] == "now"
        assert owner.post(f"/v1/rooms/{room}/close", json={}).status_code == 200
        assert json.loads(tail.line())["payload"]["phase"] == "closed"
        assert tail.wait() == 0
        assert "the stream is over (room_closed)" in tail.errors


def test_ctrl_c_ends_it_quietly(here: list[object], room: str) -> None:
    with process("tail", room, *here, "--json") as tail:
        assert tail.line()
        assert tail.interrupt() == 130
        assert tail.errors.count("\n") == 1  # the heading
        assert "Traceback" not in tail.errors


def test_a_position_beyond_the_room_is_answered_with_reset(here: list[object], room: str) -> None:
    done = verb("tail", room, *here, "--no-follow", "--after", 99)
    assert (done.code, done.out) == (0, "")
    assert "going on behind entry 1" in done.said


def test_a_token_can_be_given_by_file_or_stdin(server: LiveServer, room: str, tmp_path: Path) -> None:
    token = server.token("human:reader", "agents-member")
    path = tmp_path / "token"
    path.write_text(token + "\n")
    there = ("tail", room, "--url", server.url, "--no-follow", "--json")
    assert verb(*there, "--token-file", path).code == 0
    assert verb(*there, "--token-file", "-", stdin=token).code == 0
    assert verb(*there, "--token", token).code == 0
    assert verb(*there, "--principal", "human:operator", "--data-dir", server.data_dir).code == 0


def test_what_cannot_be_followed_is_said_in_a_sentence(server: LiveServer, here: list[object], room: str) -> None:
    stranger = server.token("human:stranger")
    for args, code, words in (
        (("tail", "no-room", *here), 2, "'no-room' is not the id of a room"),
        (("tail", "../../x", *here), 2, "is not the id of a room"),
        (("tail", "zzzzzzzz", *here), 2, "Check the id"),
        (("tail", room, "--url", server.url, "--token", stranger), 2, "Check the id"),
        (("tail", room, "--url", server.url, "--token", "nonsense"), 2, "token still valid?"),
        (("tail", room, "--url", server.url, "--token", "a b"), 2, "copy it whole"),
        (("tail", room, "--url", server.url, "--token", "a", "--token-file", "b"), 2, "not both"),
        (("tail", room, "--url", server.url, "--token-file", "/nonexistent"), 2, "--token-file: /nonexistent cannot"),
        (("tail", room, *here, "--after", 1, "--tail", 1), 2, "not both"),
        (("tail", room, *here, "--tail", 501), 2, "--tail must be 0 to 500"),
        (("tail", room, *here, "--after", -1), 2, "--after must be"),
        (("tail", room, *here, "--principal", "nobody"), 1, "must start with one of"),
        (("tail", room, "--url", "ftp://x", "--data-dir", server.data_dir), 2, "is not the URL of a server"),
        (("tail", room, "--url", "http://127.0.0.1:1", "--data-dir", server.data_dir), 3, "No server answers at"),
    ):
        done = verb(*args)
        assert (done.code, words in done.said) == (code, True), (args, done)
        assert stranger not in done.said


def test_another_kind_of_server_is_recognised(tmp_path: Path) -> None:
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<html>hello</html>"
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            done = verb("tail", "aaaaaaaa", "--url", f"http://127.0.0.1:{other.server_port}", "--data-dir", tmp_path)
        finally:
            other.shutdown()
            thread.join()
    assert done.code == 2
    assert "is this a Minutebook server?" in done.said


@pytest.mark.parametrize("value", ["http://127.0.0.1:99999", "http://", "127.0.0.1:8080"])
def test_a_bad_url_is_named(value: str, tmp_path: Path) -> None:
    done = verb("tail", "aaaaaaaa", "--url", value, "--data-dir", tmp_path)
    assert done.code == 2, done
    assert "--url" in done.said
