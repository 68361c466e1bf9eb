"""Deliveries while everything is killed at random: workers by SIGKILL, sessions, and PostgreSQL as a whole."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from delivery_desk import Receiver, desk_of, wanted, webhook
from delivery_worker import POLICY, start
from fault_steps import end_sessions, postgres_of, stop_postgres
from live_server import until
from minutebook.domain.deliveries.state import TERMINAL
from minutebook.domain.errors import MinutebookError
from minutebook.infra.postgres.migrate import migrate
from outside import Reply, Request, serving
from scratch import SCRATCH

WORKERS = 2
ANSWER_S = 0.05
BATCH = 20
KINDS = {"worker by SIGKILL": 6, "database sessions": 3, "database restart": 1}
"""What is broken, with how often."""

_EVENTS = """
SELECT s.name, e.type, e.payload FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id
WHERE s.kind = 'delivery' ORDER BY s.id, e.seq
"""


class Slow(Receiver):
    """Takes a call at once and answers later, so that kills meet senders who wait for the answer."""

    def handle(self, request: Request) -> Reply:
        """One request, in a thread of its own."""
        reply = super().handle(request)
        threading.Event().wait(ANSWER_S)
        return reply


class Scene:
    """Workers on a database of their own, which comes back where it was."""

    def __init__(self, data_dir: Path, stack: contextlib.ExitStack, receiver: Receiver) -> None:
        self._data_dir = data_dir
        self._stack = stack
        self._receiver = receiver
        server = stack.enter_context(postgres_of(data_dir))
        self.owner = server.url("postgres", "minutebook")
        self.url = server.url("minutebook_app", "minutebook")
        migrate(self.owner)
        self.kills = Counter[str]()
        self.workers: list[BaseProcess] = [start(self.url, receiver.url) for _ in range(WORKERS)]

    def break_something(self, chance: random.Random) -> None:
        """One random kill, mended at once where nobody else would."""
        kind = chance.choices(list(KINDS), weights=list(KINDS.values()))[0]
        if kind == "worker by SIGKILL":
            place = chance.randrange(WORKERS)
            self.workers[place].kill()
            self.workers[place].join()
        elif kind == "database sessions":
            with psycopg.connect(self.owner, autocommit=True) as superuser:
                end_sessions(superuser, "application_name LIKE 'minutebook%%' AND random() < 0.5")
        else:
            stop_postgres(self._data_dir)
            self._stack.enter_context(postgres_of(self._data_dir))
        self.kills[kind] += 1
        self.mend()

    def mend(self) -> None:
        """Another worker for each that is gone."""
        for place, worker in enumerate(self.workers):
            if not worker.is_alive():
                self.workers[place] = start(self.url, self._receiver.url)

    def left(self) -> int:
        """Deliveries that have not ended."""
        with psycopg.connect(self.owner, autocommit=True) as superuser:
            row = superuser.execute("SELECT count(*) FROM minutebook.deliveries WHERE ended_at IS NULL").fetchone()
        assert row is not None
        return row[0]

    def events(self) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Of each delivery, by its id."""
        found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        with psycopg.connect(self.owner, autocommit=True) as superuser:
            for stream, type_, payload in superuser.execute(_EVENTS):
                found.setdefault(stream.partition(":")[2], []).append((type_, payload))
        return found


@contextlib.contextmanager
def scene() -> Generator[tuple[Scene, Receiver]]:
    """Closed at the end, whatever is up by then."""
    with (
        tempfile.TemporaryDirectory(prefix="chaos", dir=SCRATCH) as folder,
        contextlib.ExitStack() as stack,
        serving(Slow()) as receiver,
    ):
        made = Scene(Path(folder), stack, receiver)
        try:
            yield made, receiver
        finally:
            for worker in made.workers:
                worker.kill()
                worker.join()


async def plan(url: str, target: str, many: list[Any]) -> list[str]:
    """As a turn's end does, until it is told that they are stored: the same again plans nothing twice."""
    while True:
        with contextlib.suppress(MinutebookError):
            async with desk_of(url, {"hook": webhook("hook", target)}, policy=POLICY) as desk:
                return await desk.planner.plan(many)
        await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("count", "kills"), [(60, 3), pytest.param(1500, 60, marks=(pytest.mark.soak, pytest.mark.timeout(1800)))]
)
def test_every_delivery_has_one_end_whatever_is_killed(count: int, kills: int) -> None:
    chance = random.Random(11)  # noqa: S311
    with scene() as (here, receiver):
        ids: list[str] = []
        began, batches = time.monotonic(), -(-count // BATCH)
        broken = 0
        for batch in range(batches):
            ids += asyncio.run(plan(here.url, receiver.url, [wanted() for _ in range(BATCH)]))
            while broken < kills * (batch + 1) // batches:
                here.break_something(chance)
                broken += 1

        def ended() -> bool:
            here.mend()
            return here.left() == 0

        until(ended, 300, "the end of all", 0.2)
        took_s = time.monotonic() - began
        check(ids, here.events(), receiver.took)
    sent = receiver.took.total()
    said = f"{len(ids)} deliveries, {sent - len(ids)} sends in crash windows, {dict(here.kills)}, {took_s:.0f} s"
    sys.stdout.write(f"{said}\n")


def check(ids: list[str], found: dict[str, list[tuple[str, dict[str, Any]]]], took: Counter[str]) -> None:
    """One terminal state each, nothing behind it, and every extra send in a recorded crash window under its key."""
    assert set(found) == set(ids)
    for delivery_id, events in found.items():
        ends = [body for type_, body in events if type_ == "attempt_ended" and body["state"] in TERMINAL]
        assert [body["state"] for body in ends] == ["accepted"], delivery_id
        assert events[-1][1] == ends[0], "nothing behind the end"
        unknown = sum(type_ == "attempt_ended" and body["outcome"] == "unknown" for type_, body in events)
        assert 1 <= took[f"{delivery_id}.1"] <= 1 + unknown, delivery_id
    assert set(took) == {f"{each}.1" for each in ids}
