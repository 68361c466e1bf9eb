"""Append through the async appender, all guards and the chain on, against pgbench's plain one-row INSERT."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import uvloop
from bench_eventsourcing import rates as eventsourcing_rates
from figures import Figure, log
from minutebook.commands.ports import Append, Creation, EventRow
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.embedded import EmbeddedPostgres
from minutebook.infra.postgres.embedded_cluster import find_programs
from minutebook.infra.postgres.pool import make_pool
from ulid_transform import ulid_now

ROUNDS = 3
SECONDS = 3.0
STREAMS = 1_000
TEXT = "x" * 268
PAYLOAD = msgspec.Raw(msgspec.json.encode({"kind": "chat", "text": TEXT, "to": [], "delivery": "none"}))
GOALS = {1: 0.4, 8: 0.5, 32: 1.0, 128: 1.5}

BARE = """
CREATE TABLE IF NOT EXISTS public.bare (
    stream_id bigint, seq bigint, id text, type text, schema_version integer, actor_kind text, actor_id text,
    actor_role text, run_id text, caused_by bigint, origin text, ts timestamptz, redactions text[], classes text[],
    payload jsonb, bytes integer, salt bytea, commitment bytea, origin_client text, origin_key text,
    prev_hash bytea, hash bytea, PRIMARY KEY (stream_id, seq));
CREATE SEQUENCE IF NOT EXISTS public.bare_seq;
"""
INSERT = (
    "INSERT INTO public.bare VALUES (1, nextval('public.bare_seq'), '01ARZ3NDEKTSV4RRFFQ69G5FAV', 'message', 1,"
    " 'human', 'alice', NULL, NULL, NULL, 'client', now(), '{}', '{}', '{\"kind\":\"chat\",\"text\":\""
    + TEXT
    + "\"}', 314,"
    " '\\x00112233445566778899aabbccddeeff', sha256('a'), NULL, NULL, sha256('b'), sha256('c'));\n"
)


def pgbench(server: EmbeddedPostgres, database: str, clients: int, folder: Path) -> float:
    """Plain INSERTs a second with as many clients, into a bare table of the same columns."""
    script = folder / "insert.sql"
    script.write_text(INSERT)
    binary = find_programs(None, None).bin_dir / "pgbench"
    conninfo = psycopg.conninfo.conninfo_to_dict(server.url("postgres", database))
    result = subprocess.run(
        [str(binary), "-n", "-h", str(conninfo["host"]), "-p", str(conninfo.get("port", 5432)), "-U", "postgres",
         "-c", str(clients), "-j", "1", "-T", str(int(SECONDS)), "-M", "prepared", "-f", str(script), database],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    line = next(each for each in result.stdout.splitlines() if each.startswith("tps"))
    return float(line.split("=")[1].split("(")[0])


def _row() -> EventRow:
    return EventRow(ulid_now(), "message", 1, PAYLOAD, "human", "alice", "client")


class Load:
    """Callers that append to one stream or to many, each waiting for its own answer, as the mailboxes do."""

    def __init__(self, appender: Appender, streams: list[str]) -> None:
        self._appender = appender
        self._streams = streams
        self._versions = dict.fromkeys(streams, 1)
        self._locks: dict[str, list[asyncio.Future[None]]] = {}
        self.appended = 0

    async def create(self) -> None:
        for name in self._streams:
            await self._appender.append([Append(name, 0, [_row()], create=Creation("room", "bench", 90))])

    async def many(self, callers: int, seconds: float) -> float:
        """Each caller appends to streams of its own."""
        parts = [self._streams[n::callers] for n in range(callers)]
        until = time.perf_counter() + seconds
        began = time.perf_counter()

        async def caller(part: list[str]) -> int:
            done = 0
            for name in itertools.cycle(part):
                outcome = (await self._appender.append([Append(name, self._versions[name], [_row()])]))[0]
                assert outcome.kind == "appended", outcome.kind
                self._versions[name] += 1
                done += 1
                if time.perf_counter() >= until:
                    return done
            return done

        counts = await asyncio.gather(*(caller(part) for part in parts))
        return sum(counts) / (time.perf_counter() - began)

    async def hot(self, callers: int, seconds: float) -> float:
        """All callers append to one stream: what waits goes together, as a mailbox sends it."""
        name = self._streams[0]
        until = time.perf_counter() + seconds
        began = time.perf_counter()
        waiting: list[asyncio.Future[None]] = []
        wake = asyncio.Event()
        done = 0

        async def mailbox() -> None:
            nonlocal done, waiting
            while True:
                await wake.wait()
                wake.clear()
                taken, waiting = waiting, []
                while taken:
                    version = self._versions[name]
                    items = [Append(name, version + n, [_row()]) for n in range(len(taken))]
                    outcomes = await self._appender.append(items)
                    assert all(each.kind == "appended" for each in outcomes)
                    self._versions[name] += len(taken)
                    done += len(taken)
                    for each in taken:
                        each.set_result(None)
                    taken, waiting = waiting, []

        async def caller() -> None:
            while time.perf_counter() < until:
                mine = asyncio.get_running_loop().create_future()
                waiting.append(mine)
                wake.set()
                await mine

        task = asyncio.create_task(mailbox())
        await asyncio.gather(*(caller() for _ in range(callers)))
        elapsed = time.perf_counter() - began
        task.cancel()
        return done / elapsed


async def _measure(url: str, *, notify: bool, plans: list[tuple[str, int]]) -> dict[tuple[str, int], float]:
    pool = make_pool(url, "app", max_size=4, statement_timeout_ms=60_000)
    await pool.open(wait=True)
    appender = Appender(pool, notify=notify)
    appender.start()
    load = Load(appender, [f"room:{ulid_now()}" for _ in range(STREAMS)])
    await load.create()
    found: dict[tuple[str, int], float] = {}
    for kind, callers in plans:
        run = load.many if kind == "many" else load.hot
        await run(callers, 0.5)
        found[kind, callers] = await run(callers, SECONDS)
    await appender.close()
    await pool.close()
    return found


def figures(server: EmbeddedPostgres, database: str, folder: Path) -> list[Figure]:
    """The append figures of issue 3, medians of interleaved rounds."""
    with psycopg.connect(server.url("postgres", database), autocommit=True) as connection:
        connection.execute(BARE)
        connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
    plans = [(kind, callers) for callers in GOALS for kind in ("many", "hot")]
    url = server.url("minutebook_app", database)
    reference: dict[int, list[float]] = {1: [], 8: [], 32: []}
    ours: dict[Any, list[float]] = {plan: [] for plan in plans}
    silent: list[float] = []
    theirs: dict[int, list[float]] = {1: [], 8: []}
    for n in range(ROUNDS):
        log(f"append, round {n + 1} of {ROUNDS}")
        for clients, results in reference.items():
            results.append(pgbench(server, database, clients, folder))
        for callers, rate in eventsourcing_rates(server, database, tuple(theirs), SECONDS).items():
            theirs[callers].append(rate)
        for plan, rate in uvloop.run(_measure(url, notify=True, plans=plans)).items():
            ours[plan].append(rate)
        silent.append(uvloop.run(_measure(url, notify=False, plans=[("many", 32)]))["many", 32])
    made: list[Figure] = []
    for (kind, callers), rates in ours.items():
        base = statistics.median(reference[min(callers, 32)])
        made.append(
            Figure.ratio_of(f"append_{kind}_{callers}", statistics.median(rates), "events/s", base, GOALS[callers])
        )
    for callers, rates in theirs.items():
        value, base = statistics.median(ours["many", callers]), statistics.median(rates)
        made.append(Figure.ratio_of(f"append_to_eventsourcing_{callers}", value, "events/s", base, 1.0))
    quiet = statistics.median(silent)
    made.append(Figure.ratio_of("append_with_wakeups", statistics.median(ours["many", 32]), "events/s", quiet, 0.9))
    return made
