"""`minutebook chat` and `minutebook conversations`: on a terminal, through a pipe, and what scripts get."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from live_server import LiveServer
from talks import ask, history, replies, reply, say, start, status
from verbs import verb

WITHIN_S = 30.0


class Terminal:
    """A verb on a terminal of its own. text: all that it showed so far."""

    def __init__(self, *args: object) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")}
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "minutebook.infra.cli.main", *(str(each) for each in args)],
            stdin=slave, stdout=slave, stderr=slave, env={**env, "TERM": "dumb", "COLUMNS": "200"},
            start_new_session=True, preexec_fn=_own_terminal,  # noqa: PLW1509 - it does one system call
        )  # fmt: skip
        os.close(slave)
        # poll() and not select(), which takes no descriptor beyond 1023: a long session of tests has more open.
        self._readable = select.poll()
        self._readable.register(self._master, select.POLLIN)
        self.text = ""

    def until(self, words: str, after: int = 0) -> int:
        """Read until `words` stand behind that place; the place behind them."""
        deadline = time.monotonic() + WITHIN_S
        while (found := self.text.find(words, after)) < 0:
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"{words!r} did not come; there is {self.text[after:]!r}"
            if self._readable.poll(left_s * 1000):
                chunk = self._read()
                assert chunk, f"it ended without {words!r}: {self.text!r}"
                self.text += chunk
        return found + len(words)

    def type(self, keys: str) -> None:
        """What a person types; `\\x03` is Ctrl-C, `\\x04` Ctrl-D."""
        os.write(self._master, keys.encode())

    def wait(self) -> int:
        """The exit code; reads what is left."""
        with contextlib.suppress(OSError):
            while chunk := self._read():
                self.text += chunk
        return self.process.wait(WITHIN_S)

    def close(self) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(WITHIN_S)
        os.close(self._master)

    def _read(self) -> str:
        try:
            return os.read(self._master, 65_536).decode(errors="replace").replace("\r\n", "\n")
        except OSError:  # the other end is closed
            return ""


def _own_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def terminal(*args: object) -> Generator[Terminal]:
    """A verb on a terminal, ended with the block."""
    started = Terminal(*args)
    try:
        yield started
    finally:
        started.close()


def id_in(text: str) -> str:
    """The conversation's id, as the first line names it."""
    return text.partition("conversation ")[2].split()[0]


def test_it_talks_streams_stops_on_ctrl_c_and_leaves_on_the_next(here: list[object], owner: httpx.Client) -> None:
    with terminal("chat", *here) as chat:
        place = chat.until("Ctrl-D leaves")
        talk = id_in(chat.text)
        chat.type("hello, you\n")
        place = chat.until("echo: hello, you\n", place)
        chat.type("!slow 5000 20\n")
        place = chat.until("w3 w4", place)
        assert status(owner, talk)["running"] == {"turn": 2}, "it is shown while it runs"
        chat.type("\x03")
        place = chat.until("-- interrupted", place)
        said = reply(owner, talk, 2)
        assert said["status"] == "interrupted"
        assert said["seen"] >= len("w1 w2 w3 w4")
        chat.type("still there?\n")
        place = chat.until("echo: still there?\n", place)
        chat.type("\x03")
        assert chat.wait() == 0
    assert "Traceback" not in chat.text
    assert [entry["text"] for entry in history(owner, talk) if entry["role"] == "user"] == [
        "hello, you",
        "!slow 5000 20",
        "still there?",
    ]


def test_a_name_is_the_same_conversation_with_what_was_said(here: list[object], owner: httpx.Client) -> None:
    for number, place in ((1, "echo: word 1\n"), (2, "echo: word 1\n")):
        with terminal("chat", "diary", *here) as chat:
            if number == 2:
                chat.until(place)
            chat.until("Ctrl-D leaves")
            chat.type(f"word {number}\n")
            chat.until(f"echo: word {number}\n")
            chat.type("\x04")
            assert chat.wait() == 0
    talk = start(owner, id="diary")
    assert status(owner, talk)["turns"] == 2
    assert f"> word 1\n{'echo: word 1'}\n" in chat.text


def test_through_a_pipe_each_line_is_a_message_that_waits_for_its_reply(here: list[object]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "minutebook.infra.cli.main", "chat", *map(str, here)],
        input="one\n\n!fail 500\ntwo words\n", capture_output=True, text=True, timeout=WITHIN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "echo: one\necho: two words\n"
    assert "-- failed: model-error, error id " in done.stderr


def test_what_it_shows_never_steers_the_terminal(here: list[object], owner: httpx.Client) -> None:
    talk = start(owner)
    ask(owner, talk, "red \x1b[31m \u202e and back")
    with terminal("chat", talk, *here) as chat:
        chat.until("and back\necho:")
        chat.type("\x04")
        chat.wait()
    assert "\x1b[31m" not in chat.text
    assert "\\x1b[31m \\u202e" in chat.text


def test_a_closed_conversation_is_shown_and_left(here: list[object], owner: httpx.Client) -> None:
    talk = start(owner)
    ask(owner, talk, "the end")
    assert owner.post(f"/v1/conversations/{talk}/close", json={}).status_code == 200
    with terminal("chat", talk, *here) as chat:
        chat.until("echo: the end\n")
        assert chat.wait() == 0
    assert "the conversation is over (conversation_closed)" in chat.text


def test_what_is_refused_is_said_in_a_sentence(server: LiveServer, here: list[object]) -> None:
    for args, code, words in (
        (("chat", "a" * 26, *here), 2, "Check the id"),
        (("chat", "no spaces", *here), 2, "$.id"),
        (("chat", "--agent", "nobody", *here), 2, "$.agent"),
        (("chat", "--tail", 201, *here), 2, "--tail must be 0 to 200"),
        (("chat", "--url", "http://127.0.0.1:1", "--data-dir", server.data_dir), 3, "No server answers at"),
        (("conversations", "show", "never-started", *here), 2, "no conversation with that handle"),
        (("conversations", "history", "b" * 26, *here), 2, "Check the id"),
        (("conversations", "history", "b" * 26, "--limit", 0, *here), 2, "--limit must be 1"),
    ):
        done = verb(*args)
        assert (done.code, words in done.said) == (code, True), (args, done)


@pytest.fixture(scope="module")
def told(server: LiveServer) -> str:
    """A conversation of the operator's with the handle `told`."""
    owner = server.member("operator")
    talk = start(owner, id="told")
    for number in range(3):
        say(owner, talk, f"word {number}")
    reply(owner, talk, 3)
    return talk


def test_lists_states_and_history_are_there_for_people_and_scripts(
    here: list[object], owner: httpx.Client, told: str
) -> None:
    listed = verb("conversations", "list", *here, "--json").json["conversations"]
    assert listed == owner.get("/v1/conversations", params={"limit": 200}).json()["conversations"]
    assert f"{told}  " in verb("conversations", "list", *here).out
    for name in (told, "told"):
        assert verb("conversations", "show", name, *here, "--json").json == status(owner, told)
    assert "turns      3" in verb("conversations", "show", "told", *here).out
    lines = verb("conversations", "history", "told", *here).out.splitlines()
    assert lines == [line for number in range(3) for line in (f"> word {number}", f"echo: word {number}")]
    short = verb("conversations", "history", "told", "--limit", 3, *here, "--json").json["entries"]
    assert short == history(owner, told)[-3:]


def test_an_export_is_one_record_a_line(here: list[object], owner: httpx.Client, told: str, tmp_path: Path) -> None:
    expected = history(owner, told)
    done = verb("conversations", "export", "told", *here)
    assert [json.loads(line) for line in done.out.splitlines()] == expected
    path = tmp_path / "told.jsonl"
    done = verb("conversations", "export", told, "-o", path, *here, "--json")
    assert done.json == {"records": 6, "output": str(path)}
    assert [json.loads(line) for line in path.read_text().splitlines()] == expected
    assert verb("conversations", "export", told, "-o", tmp_path / "no" / "where", *here).code == 2
    assert len(replies(owner, told)) == 3


def test_who_takes_part_is_said_and_changed(server: LiveServer, here: list[object], owner: httpx.Client) -> None:
    talk = start(owner, id="incident", mode="shared")
    assert verb("conversations", "add", "incident", "human:bob", *here).code == 0
    done = verb("conversations", "participants", talk, *here)
    assert done.out.splitlines() == ["human:operator", "human:bob"]
    assert status(server.member("bob"), talk)["mode"] == "shared"
    assert "seq" in verb("conversations", "remove", "incident", "human:bob", *here, "--json").json
    assert verb("conversations", "participants", talk, *here, "--json").json == {"participants": ["human:operator"]}
    refused = verb("conversations", "remove", "incident", "human:operator", *here)
    assert (refused.code != 0, "always takes part" in refused.said) == (True, True)
