"""Rebuild of the transcript against COPY of the same rows, and loading a long room for a command."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import msgspec
import psycopg
from figures import Figure, log
from minutebook.commands.ports import Snapshot
from minutebook.commands.rooms import ROOM
from minutebook.commands.streams import load
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.embedded import EmbeddedPostgres
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.postgres.rebuild import rebuild
from minutebook.infra.postgres.store import PostgresStore
from minutebook.infra.postgres.views import PROJECTIONS
from psycopg import sql

ROOMS = 200
EVENTS = 1_000
LONG = 100_000
ROUNDS = 3


def _fill(connection: psycopg.Connection, name: str, count: int) -> None:
    """`count` events through the append path, 500 a call; the first opens the room."""
    opened = {"kind": "room_phase", "phase": "open", "owner": "human:a", "driver": "human:a", "dataClass": "internal",
              "retention": "90d", "members": [], "approvals": {}}  # fmt: skip
    chat = {"kind": "chat", "text": "x" * 268, "to": [], "delivery": "none"}
    done = 0
    while done < count:
        size = min(500, count - done)
        item = {"n": 1, "s": 1, "expected": done, "count": size}
        if done == 0:
            item |= {"kind": "room", "tenant": "bench", "retention": 90}
        events = [
            {"i": 1, "k": k + 1, "id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "v": 1, "ak": "human", "ai": "a", "o": "client",
             "rd": [], "cl": [], "t": "message" if done + k else "state_changed", "p": chat if done + k else opened}
            for k in range(size)
        ]  # fmt: skip
        connection.execute(
            "SELECT * FROM minutebook.append_v1(%s, %s::json, %s::json, %s, false)",
            ([name], msgspec.json.encode([item]).decode(), msgspec.json.encode(events).decode(), done == 0),
        )
        done += size


def _copy(connection: psycopg.Connection) -> float:
    """Rows a second at which COPY alone writes the transcript's rows into an empty copy of the table."""
    rows = connection.execute("SELECT * FROM minutebook_views.transcript").fetchall()
    connection.execute("CREATE TABLE minutebook_views.bench (LIKE minutebook_views.transcript INCLUDING ALL)")
    began = time.perf_counter()
    with connection.cursor() as cursor, cursor.copy(sql.SQL("COPY minutebook_views.bench FROM STDIN")) as copy:
        for row in rows:
            copy.write_row(row)
    rate = len(rows) / (time.perf_counter() - began)
    connection.execute("DROP TABLE minutebook_views.bench")
    return rate


async def _load(url: str, name: str) -> float:
    """Median ms to load a room of LONG events for a command, from its newest snapshot."""
    pool = make_pool(url, "app", max_size=2, statement_timeout_ms=60_000)
    await pool.open(wait=True)
    appender = Appender(pool)
    appender.start()
    store = PostgresStore(pool, appender)
    found = await load(store, ROOM, name)
    assert found is not None
    state = msgspec.json.encode(found.state).decode()
    await store.save_snapshot(found.head.id, Snapshot(LONG - 199, ROOM.schema, state))
    times: list[float] = []
    for _ in range(20):
        began = time.perf_counter()
        await load(store, ROOM, name)
        times.append((time.perf_counter() - began) * 1000)
    await appender.close()
    await pool.close()
    return statistics.median(times)


def figures(server: EmbeddedPostgres, database: str, folder: Path) -> list[Figure]:
    """The view figures of issue 3."""
    app, projector = (server.url(f"minutebook_{role}", database) for role in ("app", "projector"))
    with psycopg.connect(app, autocommit=True) as connection:
        log("views, filling the log")
        for n in range(ROOMS):
            _fill(connection, f"room:bench{n:03}", EVENTS)
        _fill(connection, "room:benchlong", LONG)
    rates: list[float] = []
    copies: list[float] = []
    rebuild(projector, PROJECTIONS["transcript"])
    with psycopg.connect(projector, autocommit=True) as connection:
        for n in range(ROUNDS):
            log(f"views, round {n + 1} of {ROUNDS}")
            copies.append(_copy(connection))
            began = time.perf_counter()
            report = rebuild(projector, PROJECTIONS["transcript"])
            rates.append(report.events / (time.perf_counter() - began))
    loaded = asyncio.run(_load(app, "room:benchlong"))
    return [
        Figure.ratio_of("rebuild_transcript", statistics.median(rates), "events/s", statistics.median(copies), 0.4),
        Figure.at_most("load_100k_room", loaded, "ms", 20.0),
    ]
