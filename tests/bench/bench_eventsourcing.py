"""Appends by eventsourcing's own PostgreSQL recorder, in the same run: what users of the library have without us."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresAggregateRecorder, PostgresDatastore
from minutebook.infra.postgres.embedded import EmbeddedPostgres
from psycopg.conninfo import conninfo_to_dict

STREAMS = 1_000
STATE = b"x" * 314


def rates(server: EmbeddedPostgres, database: str, callers: tuple[int, ...], seconds: float) -> dict[int, float]:
    """Events a second by number of callers: each a thread that appends one event at a time to streams of its own."""
    settings = conninfo_to_dict(server.url("postgres", database))
    datastore = PostgresDatastore(
        database, str(settings["host"]), str(settings.get("port", 5432)), "postgres", "", pool_size=max(callers),
        schema="public", enable_db_functions=True,
    )  # fmt: skip
    try:
        recorder = PostgresAggregateRecorder(datastore, events_table_name="es_events")
        recorder.create_table()
        return {count: _rate(recorder, count, seconds) for count in callers}
    finally:
        datastore.close()


def _rate(recorder: PostgresAggregateRecorder, callers: int, seconds: float) -> float:
    until = time.perf_counter() + seconds

    def caller(_: int) -> int:
        streams = [uuid4() for _ in range(STREAMS // callers)]
        done = 0
        while time.perf_counter() < until:
            version, place = divmod(done, len(streams))
            recorder.insert_events([StoredEvent(streams[place], version + 1, "message", STATE)])
            done += 1
        return done

    began = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        done = sum(pool.map(caller, range(callers)))
    return done / (time.perf_counter() - began)
