"""`make demo`, without the make: every step passes, and the server it leaves can be used and stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
from live_server import until
from verbs import verb

STEPS = (
    "Start a server", "Open a room", "An agent works in it", "It waits for leave to open a pull request",
    "It hands over to a reviewer", "A reviewer goes on from the room's brief",
    "A person talks with an agent", "Two people share a conversation",
    "A person links two chats", "The viewer has what the log has",
    "Verify the hash chain", "Try to rewrite the log", "Compare every read model",
)  # fmt: skip


def demo(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")}
    # A database of the environment is none of the demo's business.
    env["MINUTEBOOK_DATABASE_URL"] = "postgresql://127.0.0.1:1/production"
    return subprocess.run(
        [sys.executable, "-m", "minutebook.infra.cli.main", "demo", "--port", "0", "--speed", "1000x", *args],
        cwd=folder, env=env, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip


def test_the_demo_shows_everything_and_leaves_a_server_that_can_be_used(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    done = demo(folder)
    assert done.returncode == 0, done.stderr
    for number, step in enumerate(STEPS, 1):
        assert f"\n{number}. {step}" in done.stdout
    assert done.stdout.count("\n   passed\n") == len(STEPS)
    assert done.stdout.count("refused: permission denied for table events (42501)") == 3
    for words in (
        "human:operator (owner) Nice.",
        "human:viewer (watcher) approval approved",
        "handoff to reviewer 0123abcd",
        "verdict approve 0123abcd",
        "echo: Which release is the oldest one?",
        "accepted, completed, accepted, interrupted",
        "the answer to human:operator is restricted",
        "answered on demo-phone, where they were last: w1 w2",
    ):
        assert words in done.stdout
    order = ["delivered", "approval requested", "approval approved", "tool result ok https", "run requested", "verdict"]
    places = [done.stdout.index(f" {words}") for words in order]
    assert places == sorted(places)
    head = int(re.findall(r"^   entries 1 to (\d+), each once, in order$", done.stdout, re.MULTILINE)[0])
    left = dict(re.findall(r"^  (\w+) +(\S.*)$", done.stdout[done.stdout.index("The server goes on.") :], re.MULTILINE))
    pid = int(left["stop"].removeprefix("kill "))
    try:
        with httpx.Client(base_url=left["url"], headers={"authorization": f"Bearer {left['token']}"}) as client:
            assert client.get(f"/v1/rooms/{left['room']}").json()["throughSeq"] >= head > 70
        tail = verb("tail", left["room"], "--url", left["url"], "--data-dir", folder / ".demo", "--no-follow")
        assert "run ended" in tail.out
        assert left["watch"].endswith(f"tail {left['room']} --url {left['url']} --data-dir '{folder / '.demo'}'")
        again = demo(folder, "--stop")
        assert again.returncode == 0, again.stderr
        assert "room_list: 2 of 2 streams are as the log says" in again.stdout
    finally:
        server = psutil.Process(pid)
        os.kill(pid, signal.SIGTERM)
    until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE, 15, "the end of the server")


def test_a_demo_whose_steps_fail_ends_with_1_and_no_server(tmp_path: Path) -> None:
    (tmp_path / ".demo").mkdir(mode=0o700)
    (tmp_path / ".demo" / "minutebook.toml").write_text("[limits]\nroomEvents = 10\n")
    small = demo(tmp_path, "--stop")  # the room seals in the middle of the run
    assert (small.returncode, "Step 3 failed" in small.stderr) == (1, True), small.stdout + small.stderr
    assert "Traceback" not in small.stderr
    assert small.stdout.count("   passed") == 2
    (tmp_path / ".demo" / "minutebook.toml").write_text("[database]\nurl = 'postgresql://127.0.0.1:1/x'\n")
    assert not any(str(tmp_path) in " ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"]))
    foreign = demo(tmp_path)
    assert (foreign.returncode, "database.url is set" in foreign.stderr) == (2, True), foreign
