"""PostgreSQL read-only, stopped, restarted or on a full disk: refused, never half stored, and back by itself (B81)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import httpx
import pytest
from append_helpers import run
from fault_steps import Run, all_up, end_sessions, folded, kill_session, one, postgres_of, status, stop_postgres
from live_server import LiveServer, Stream, follow, open_room, post, until
from scratch import SCRATCH
from viewers import Viewer, Writer, assert_once, log_of, reached

ANSWER_S = 5.0
OURS = "application_name LIKE 'minutebook%%'"


class Scene:
    """A server with a room, a viewer in it, and a command that is retried with one key through the trouble."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.alice = server.member("alice")
        self.room = open_room(self.alice)
        post(self.alice, self.room, "before")
        folded(self.alice, self.room, 2)
        all_up(server)

    def say(self, key: str) -> httpx.Response:
        """The command of that key; its answer, which must come in time."""
        began = time.monotonic()
        answer = self.alice.post(
            f"/v1/rooms/{self.room}/messages", json={"text": key}, headers={"idempotency-key": key}
        )  # fmt: skip
        assert time.monotonic() - began < ANSWER_S, answer.text
        return answer

    def refused(self, key: str) -> None:
        """It is answered with a 503 that says when to come back, and never with a 2xx."""
        answer = self.say(key)
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["retry-after"]) >= 1

    def trouble(self, stream: Stream) -> None:
        """While it lasts: refusals also for many at once, not ready but alive, the stream open."""
        answers: list[httpx.Response] = []
        threads = [
            threading.Thread(target=lambda: answers.append(Scene.say(self, "the-key"))) for _ in range(12)
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers] == [503] * 12
        until(lambda: status(self.server, "/readyz") == 503, what="readiness to fail")
        assert status(self.server, "/healthz") == 200
        assert stream.next().event == ":"
        assert self.server.process.poll() is None

    def recovered(self, stream: Stream) -> None:
        """Afterwards: the same process, the same stream, the key's effect once."""
        until(lambda: self.say("the-key").status_code == 201, 15, "a command that is taken")
        again = self.say("the-key")
        assert (again.status_code, again.headers.get("idempotency-replayed")) in ((201, "true"), (201, None))
        assert stream.events(3)[-1]["payload"]["text"] == "the-key"
        until(lambda: status(self.server, "/readyz") == 200, 10, "readiness")
        head = post(self.alice, self.room, "after")["seq"]
        assert head == 4
        assert stream.events(4)[-1]["payload"]["text"] == "after"
        lines = self.alice.get(f"/v1/rooms/{self.room}/transcript", params={"minSeq": 4})
        assert lines.status_code == 200, lines.text
        assert [line["seq"] for line in lines.json()["lines"]] == [1, 2, 3, 4]
        assert [event["seq"] for event in log_of(self.alice, self.room)] == [1, 2, 3, 4]
        until(lambda: self.server.metric("listener_up") == 1, what="the listener")
        with self.server.sql() as look:
            assert one(look, "SELECT count(*) FROM minutebook_views.parked") == 0
        assert "internal error" not in self.server.logs()


@contextlib.contextmanager
def scene(data_dir: Path, config: str = "") -> Generator[tuple[Scene, Stream]]:
    """A Scene and the stream that stays open through all of it."""
    with LiveServer(data_dir, config="[limits]\nheartbeatSeconds = 1\n" + config) as server:
        made = Scene(server)
        with follow(server.member("alice"), made.room) as stream:
            stream.events(2)
            yield made, stream


@pytest.mark.parametrize("how", ["ALTER SYSTEM", "ALTER DATABASE minutebook"])
def test_b81_read_only_is_a_503_and_passes_by_itself(data_dir: Path, how: str) -> None:
    """ALTER DATABASE reaches sessions only when they begin, so that those of meanwhile would stay read-only."""
    with scene(data_dir) as (made, stream), made.server.sql() as superuser:

        def switch(value: str) -> None:
            run(superuser, f"{how} SET default_transaction_read_only = {value}")
            superuser.execute("SELECT pg_reload_conf()")

        switch("on")
        end_sessions(superuser, OURS)
        until(lambda: made.say("the-key").status_code == 503, what="the first refusal")
        made.trouble(stream)
        assert made.alice.get(f"/v1/rooms/{made.room}/events").status_code == 200
        superuser.execute("SET default_transaction_read_only = off")
        switch("off")
        made.recovered(stream)


def test_b81_a_database_that_is_down_for_a_while(data_dir: Path) -> None:
    with scene(data_dir) as (made, stream):
        stop_postgres(data_dir)
        down = time.monotonic()
        made.trouble(stream)
        assert made.alice.get(f"/v1/rooms/{made.room}").status_code == 503
        until(lambda: time.monotonic() - down > 8, what="longer than a pool tries to reconnect")
        made.refused("the-key")
        with postgres_of(data_dir):
            made.recovered(stream)


@pytest.mark.soak
def test_b81_a_database_that_is_down_for_half_a_minute(data_dir: Path) -> None:
    with scene(data_dir) as (made, stream):
        stop_postgres(data_dir)
        down = time.monotonic()
        while time.monotonic() - down < 30:
            made.trouble(stream)
        with postgres_of(data_dir):
            made.recovered(stream)


@pytest.fixture
def small_disk() -> Generator[Path]:
    """A file system of its own of 256 MiB, where mounting is allowed."""
    folder = Path(tempfile.mkdtemp(prefix="mbf", dir=SCRATCH))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256m,mode=700", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("only root may mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


def fill(ballast: Path) -> None:
    """Take every byte that the file system has left."""
    with ballast.open("ab") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), b"\0" * 65_536)


def test_b81_a_full_disk(small_disk: Path) -> None:
    """The tables cannot grow; what was acknowledged is stored, what was refused is not, and room is all it needs."""
    data_dir, ballast = small_disk / "data", small_disk / "ballast"
    with scene(data_dir, "payloadBytes = 65536\n") as (made, stream):
        run = Run(made.server, 8101)
        with made.server.sql() as superuser:
            superuser.execute("CHECKPOINT")
        fill(ballast)
        refused = run.push(60, 16_000)
        assert refused.status_code == 503, refused.text
        assert int(refused.headers["retry-after"]) >= 1
        fill(ballast)
        again = run.push(60, 16_000)
        assert again.status_code == 503, again.text
        until(lambda: status(made.server, "/readyz") == 503, what="readiness to fail")
        assert status(made.server, "/healthz") == 200
        assert stream.next().event == ":"
        assert len(log_of(made.alice, run.room)) == 3  # opened, joined, started: nothing of a batch
        ballast.unlink()
        until(lambda: run.push(60, 16_000).status_code == 200, 15, "a batch that is taken")
        assert len(log_of(made.alice, run.room)) == 63
        made.recovered(stream)


async def under_load(server: LiveServer, room: str, breakage: Callable[[], None], rounds: int) -> None:
    """Writers with keys, some of whom do not wait for their answer, and viewers while the database goes and comes;
    afterwards all of it is there once."""
    token = server.token("human:alice", "agents-member")
    done = threading.Event()
    random_ = random.Random(81)  # noqa: S311
    writers = [Writer(lambda: server.url, room, token, f"w{n}", random_, 0.05) for n in range(8)]
    viewers = [Viewer(lambda: server.url, room, token) for _ in range(6)]
    async with asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(writer.talk(done.is_set))
        for viewer in viewers:
            group.create_task(viewer.roam(done.is_set, random_, 3))
        for _ in range(rounds):
            said = sum(len(writer.acknowledged) for writer in writers)
            await reached(lambda said=said: sum(len(each.acknowledged) for each in writers) > said + 150)
            await asyncio.to_thread(breakage)
        said = sum(len(writer.acknowledged) for writer in writers)
        await reached(lambda: sum(len(each.acknowledged) for each in writers) > said + 50)
        done.set()
    alice = server.member("alice")
    log = log_of(alice, room)
    assert_once(log, *writers)
    await asyncio.gather(*(viewer.finish(len(log)) for viewer in viewers))
    for viewer in viewers:
        viewer.assert_equals(log)
    for writer in writers:
        await writer.close()
        assert writer.statuses <= {201, 503}


def test_b81_postgres_restarted_and_its_sessions_killed_under_load(data_dir: Path) -> None:
    with LiveServer(data_dir) as server, contextlib.ExitStack() as stack:
        room = open_room(server.member("alice"))
        ways = iter(("restart", "sessions", "kill", "restart"))

        def breakage() -> None:
            match next(ways):
                case "restart":
                    stop_postgres(data_dir)
                    stack.enter_context(postgres_of(data_dir))
                case "sessions":
                    with server.sql() as superuser:
                        assert end_sessions(superuser, OURS) > 2
                case _:
                    assert kill_session(data_dir, "minutebook app")

        asyncio.run(under_load(server, room, breakage, 4))
        alice = server.member("alice")
        folded(alice, room, alice.get(f"/v1/rooms/{room}").json()["throughSeq"])
        assert "internal error" not in server.logs()
