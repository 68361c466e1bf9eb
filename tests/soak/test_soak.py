"""`make soak`: everything at once, killed at random, and at the end a log that every viewer has whole.

Minutes by SOAK_MINUTES (default 5), seed by SOAK_SEED.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from fault_steps import Run, end_sessions, kill_group, kill_session, one, postgres_of, projector_of, stop_postgres
from live_server import NO_TLS, LiveServer, open_room, until
from psutil import Process
from scratch import SCRATCH
from verbs import verb
from viewers import Viewer, Writer, assert_once, log_of, reached

MINUTES = float(os.environ.get("SOAK_MINUTES", "5"))
SHORT_S = 20.0
"""Of the run that is part of every `make test`."""

ROOMS = 5
RUNS = 3
PAUSE_S = 0.1
CALM_S = (1.0, 5.0)
"""Between two kills."""

HASTY = 0.05
"""The part of commands whose caller goes away before the answer and sends them again."""

KINDS = {
    "http process": 3,
    "projector": 3,
    "database sessions": 4,
    "database backend by SIGKILL": 1,
    "database restart": 1,
    "stop by SIGTERM": 2,
}
"""What is broken, with how often."""

SESSIONS = ("minutebook app", "minutebook projector", "minutebook listener")


class Scale(NamedTuple):
    """How much goes on. The first `projectors` of the servers fold the views as well."""

    servers: int
    projectors: int
    writers: int
    viewers: int


SCALE = Scale(4, 2, 50, 100)


class Place:
    """Where the servers are: they come back on the ports that they had."""

    def __init__(self, data_dir: Path, stack: contextlib.ExitStack, scale: Scale) -> None:
        self.data_dir = data_dir
        self._stack = stack
        self.scale = scale
        roles = ["all" if n < scale.projectors else "http" for n in range(scale.servers)]
        self.servers = [stack.enter_context(LiveServer(data_dir, arguments=["--role", role])) for role in roles]
        for server in self.servers:
            server.keep_port()
        self.kills = Counter[str]()

    def break_something(self, random_: random.Random) -> None:
        """One random kill, mended at once where nobody else would."""
        kind = random_.choices(list(KINDS), weights=list(KINDS.values()))[0]
        server = random_.choice(self.servers)
        match kind:
            case "http process":
                if random_.random() < 0.5:
                    kill_group(Process(server.process.pid))
                server.kill()
                server.start()
            case "stop by SIGTERM":
                assert server.stop() == 0
                server.start()
            case "projector":
                with contextlib.suppress(StopIteration):  # it is being started again already
                    projector_of(random_.choice(self.servers[: self.scale.projectors])).kill()
            case "database sessions":
                with server.sql() as superuser:
                    end_sessions(superuser, "application_name LIKE 'minutebook%%' AND random() < 0.5")
            case "database backend by SIGKILL":
                kill_session(self.data_dir, random_.choice(SESSIONS))
            case _:
                stop_postgres(self.data_dir)
                self._stack.enter_context(postgres_of(self.data_dir))
        self.kills[kind] += 1


class Bridge:
    """A run whose items are pushed again, from where the server says, until all of them are in."""

    def __init__(self, run: Run, server: LiveServer) -> None:
        self.run = run
        self.retries = 0
        self._server = server

    async def play(self, is_done: Callable[[], bool]) -> None:
        """Push batches until `is_done`; every second one is sent twice."""
        async with httpx.AsyncClient(
            timeout=15, verify=NO_TLS, headers={"authorization": self.run.client.headers["authorization"]}
        ) as client:
            number = 0
            while not is_done() or number == 0:
                number += 1
                count = 1 + number % 20
                batch = self.run.batch(count, 200)
                for _ in range(1 + number % 2):
                    await self._push(client, batch)
                self.run.sent += count
                await asyncio.sleep(PAUSE_S)

    async def _push(self, client: httpx.AsyncClient, batch: dict[str, Any]) -> None:
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = await client.post(f"{self._server.url}/v1/bridge/events", json=batch)
                if answer.status_code == 200:
                    return
                assert answer.status_code in (503, 504), answer.text
            self.retries += 1
            await asyncio.sleep(PAUSE_S)


async def soak(place: Place, rooms: list[str], bridges: list[Bridge], seconds: float, random_: random.Random) -> Any:
    token = place.servers[0].token("human:alice", "agents-member", ttl_s=int(seconds) + 3600)
    end = time.monotonic() + seconds
    over = asyncio.Event()  # only once the last thing that broke is mended

    def url_of(number: int) -> Any:
        return lambda: place.servers[number % place.scale.servers].url

    writers = [Writer(url_of(n), rooms[n % ROOMS], token, f"w{n}", random_, HASTY) for n in range(place.scale.writers)]
    viewers = [Viewer(url_of(n // ROOMS), rooms[n % ROOMS], token) for n in range(place.scale.viewers)]
    async with asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(writer.talk(over.is_set, PAUSE_S))
        for viewer in viewers:
            group.create_task(viewer.roam(over.is_set, random_, 8.0))
        for bridge in bridges:
            group.create_task(bridge.play(over.is_set))
        while time.monotonic() < end:
            await asyncio.sleep(random_.uniform(*CALM_S))  # what happens in the calm is the point
            said = sum(len(writer.acknowledged) for writer in writers)
            await asyncio.to_thread(place.break_something, random_)
            await reached(lambda said=said: sum(len(each.acknowledged) for each in writers) > said + 20, 60, "recovery")
        over.set()
    for writer in writers:
        await writer.close()
    alice = place.servers[0].member("alice")
    logs = {room: log_of(alice, room) for room in rooms}
    await asyncio.gather(*(viewer.finish(len(logs[rooms[n % ROOMS]]), 60) for n, viewer in enumerate(viewers)))
    return writers, viewers, logs


def check_log(place: Place, logs: dict[str, list[dict[str, Any]]]) -> None:
    """The log is whole by every eye: verify, doctor, and views that equal a fresh build."""
    here = ("--json", "--data-dir", place.data_dir)
    assert verb("verify", *here).code == 0

    def views_are_there() -> bool:
        done = verb("rebuild", "--check", *here)
        assert done.code == 0, done
        return all(each["compared"] == each["streams"] == len(logs) for each in done.json["projections"])

    until(views_are_there, 60, "views that have folded all")
    done = verb("doctor", *here)
    assert [check for check in done.json["checks"] if not check["ok"]] == []
    assert done.code == 0, done
    with place.servers[0].sql() as look:
        assert one(look, "SELECT count(*) FROM minutebook_views.parked") == 0


def run_soak(data_dir: Path, seconds: float, scale: Scale = SCALE) -> str:
    """Answers the table of what happened."""
    seed = int(os.environ.get("SOAK_SEED", str(int(time.time()))))
    sys.stderr.write(f"SOAK_SEED={seed}\n")
    random_ = random.Random(seed)  # noqa: S311
    with contextlib.ExitStack() as stack:
        place = Place(data_dir, stack, scale)
        alice = place.servers[0].member("alice")
        rooms = [open_room(alice) for _ in range(ROOMS)]
        bridges = [
            Bridge(Run(place.servers[0], 100 + n, rooms[n]), place.servers[n % scale.servers]) for n in range(RUNS)
        ]
        writers, viewers, logs = asyncio.run(soak(place, rooms, bridges, seconds, random_))
        for number, room in enumerate(rooms):
            assert_once(logs[room], *writers[number::ROOMS])
        for number, viewer in enumerate(viewers):
            viewer.assert_equals(logs[rooms[number % ROOMS]])
        for number, bridge in enumerate(bridges):
            pushed = [event for event in logs[rooms[number]] if event["origin"] == "harness"]
            assert len(pushed) == bridge.run.sent
        check_log(place, logs)
        for server in place.servers:
            assert "internal error" not in server.logs()
    retries = sum(each.retries for each in (*writers, *bridges))
    table = {
        "seed": seed,
        "rounds": place.kills.total(),
        **{f"killed: {kind}": count for kind, count in sorted(place.kills.items())},
        "events": sum(map(len, logs.values())),
        "commands acknowledged": sum(len(writer.acknowledged) for writer in writers),
        "retries": retries,
        "viewer connections": sum(viewer.connections for viewer in viewers),
        "max delivery delay, s": round(max(viewer.delay_s for viewer in viewers), 2),
    }
    width = max(map(len, table))
    return "\n".join(f"{name:{width}}  {value}" for name, value in table.items())


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 300)
def test_soak(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="mbs", dir=SCRATCH) as folder:
        table = run_soak(Path(folder) / "data", MINUTES * 60)
    with capsys.disabled():
        sys.stdout.write(f"\n{table}\n")


@pytest.mark.timeout(300)
def test_the_same_for_a_short_while() -> None:
    with tempfile.TemporaryDirectory(prefix="mbs", dir=SCRATCH) as folder:
        sys.stdout.write(run_soak(Path(folder) / "data", SHORT_S))
