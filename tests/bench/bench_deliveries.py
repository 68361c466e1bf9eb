"""Deliveries: sends a second of one job process, planning of a fan-out, a page of a million."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import statistics
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psycopg
from figures import Figure, log
from minutebook.commands.deliveries.ports import Filter
from minutebook.infra.postgres.embedded import EmbeddedPostgres

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from delivery_desk import desk_of, wanted, webhook
from minutebook.domain.deliveries.retry import Policy
from minutebook.infra.jobs.engine import Timing

HOOKS = 8
SENDS = 3_000
FAN_OUT = 25
ROUNDS = 40
PLAN_MS = 10.0
"""In the process of jobs, behind the turn; what the turn itself has of it is a figure of bench_answers."""
MANY = 1_000_000
PAGES = 30

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"

_ROWS = """
WITH made AS (
    INSERT INTO minutebook.streams (name, kind, tenant, retention_days)
    SELECT 'delivery:bench' || n, 'delivery', 'acme', 90 FROM generate_series(1, %(many)s::integer) n RETURNING id
), numbered AS (SELECT id, row_number() OVER () AS n FROM made)
INSERT INTO minutebook.deliveries (stream_id, id, tenant, channel, destination, lane, state, due_at, blocked, attempts,
    reason, conversation_id, run_id, correlation_id, expires_at, codec, codec_version, planned_at, updated_at, ended_at)
SELECT m.id, 'bench' || m.n, CASE WHEN m.n %% 10 = 0 THEN 'other' ELSE 'acme' END, 'hook' || m.n %% 8,
    'h:' || md5((m.n %% 5000)::text), 'h:' || md5((m.n %% 5000)::text) || '/0',
    (ARRAY['accepted', 'accepted', 'accepted', 'accepted', 'accepted', 'accepted', 'dead', 'cancelled', 'expired',
        'waiting'])[1 + m.n %% 10],
    now() + interval '1 hour', false, 1, '', 'conv' || m.n %% 100000, 'run' || m.n %% 200000, 'corr' || m.n,
    now() + interval '1 day', 'webhook', 1, now(), now(), CASE WHEN m.n %% 10 = 9 THEN NULL ELSE now() END
FROM numbered m
"""


class Healthy(asyncio.Protocol):
    """A webhook's end that answers at once."""

    def connection_made(self, transport: Any) -> None:
        """See asyncio."""
        self._transport = transport
        self._held = b""

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            head = self._held[:end].lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self._held) < end + 4 + length:
                return
            self._held = self._held[end + 4 + length :]
            self._transport.write(_ANSWER)


def _serve(ports: Any) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(Healthy, "127.0.0.1", 0) for _ in range(HOOKS)]
        ports.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.Event().wait()

    asyncio.run(run())


@contextlib.contextmanager
def receivers() -> Any:
    """URLs of healthy webhooks, in a process of their own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process: BaseProcess = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield {f"hook{n}": f"http://127.0.0.1:{port}/" for n, port in enumerate(ours.recv())}
    finally:
        process.kill()
        process.join()


async def sends(url: str, listen_url: str) -> float:
    """Deliveries a second, planned before: claimed, sent and recorded by one process."""
    with receivers() as urls:
        channels = {name: webhook(name, each) for name, each in urls.items()}
        async with desk_of(url, channels, policy=Policy()) as desk:
            for first in range(0, SENDS, 100):
                await desk.planner.plan([wanted(f"hook{n % HOOKS}") for n in range(first, first + 100)])
            await desk.planner.close()
            stop = asyncio.Event()
            began = time.perf_counter()
            engine = asyncio.create_task(desk.engine(listen_url, timing=Timing()).run(stop, 5))
            swept = began
            while await _left(desk):
                await asyncio.sleep(0.05)
                if time.perf_counter() - swept > 15:
                    await desk.sweep()
                    swept = time.perf_counter()
            took_s = time.perf_counter() - began
            stop.set()
            await engine
            return SENDS / took_s


async def _left(desk: Any) -> bool:
    rows = await desk.board.page("acme", Filter(state="planned"), None, 1)
    return bool(rows or await desk.board.page("acme", Filter(state="attempting"), None, 1))


async def planning(url: str) -> float:
    """Median ms of a plan for FAN_OUT destinations."""
    with receivers() as urls:
        channels = {name: webhook(name, each) for name, each in urls.items()}
        async with desk_of(url, channels, policy=Policy()) as desk:
            took: list[float] = []
            for _ in range(ROUNDS):
                many = [wanted(f"hook{n % HOOKS}") for n in range(FAN_OUT)]
                began = time.perf_counter()
                await desk.planner.plan(many)
                took.append((time.perf_counter() - began) * 1000)
                await desk.planner.close()
            return statistics.median(took)


async def pages(url: str) -> float:
    """The slowest filter's median ms of a page, near the start and deep inside."""
    slowest = 0.0
    async with desk_of(url, {}, policy=Policy()) as desk:
        filters = (
            Filter(),
            Filter(state="dead"),
            Filter(state="accepted"),
            Filter(state="waiting", channel="hook1"),
            Filter(channel="hook3"),
            Filter(destination="h:" + "cfcd208495d565ef66e7dff9f98764da"),
            Filter(correlation="corr77777"),
            Filter(run="run777"),
            Filter(conversation="conv777"),
        )
        top = (await desk.board.page("acme", Filter(), None, 1))[0].stream_id
        for wish in filters:
            for before in (None, top - MANY // 2):
                took: list[float] = []
                for _ in range(PAGES):
                    began = time.perf_counter()
                    await desk.board.page("acme", wish, before, 50)
                    took.append((time.perf_counter() - began) * 1000)
                slowest = max(slowest, statistics.median(took))
    return slowest


def figures(server: EmbeddedPostgres, database: str, folder: Path) -> list[Figure]:
    """All figures of this part."""
    _ = folder
    url = server.url("minutebook_app", database)
    fan_out = asyncio.run(planning(url))
    log(f"a plan for {FAN_OUT} in {fan_out:.1f} ms")
    with psycopg.connect(server.url("postgres", database), autocommit=True) as owner:
        owner.execute("TRUNCATE minutebook_jobs.procrastinate_jobs CASCADE")
        owner.execute("UPDATE minutebook.deliveries SET ended_at = now(), state = 'cancelled'")
    rate = asyncio.run(sends(url, url))
    log(f"{rate:.0f} deliveries a second")
    with psycopg.connect(server.url("postgres", database), autocommit=True) as owner:
        owner.execute(_ROWS, {"many": MANY})
        owner.execute("ANALYZE minutebook.deliveries")
    page = asyncio.run(pages(url))
    return [
        Figure.ratio_of("deliveries a second, one process", rate, "/s", 300.0, 1.0),
        Figure.at_most("plan a fan-out of 25, behind its turn", fan_out, "ms", PLAN_MS),
        Figure.at_most("page of 1 000 000 deliveries, slowest filter", page, "ms", 50.0),
    ]
