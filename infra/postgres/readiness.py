"""Whether this process can serve: the database answers and has room, its migrations are ours, projections move."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from .migrate import sql_files

TIMEOUT_S = 2.0
STUCK_AFTER_S = 60
"""A projection that has not folded an event of this age, of a stream that is not parked, is stuck."""

KEPT_S = 2.0
"""An answer is kept this long, so that probes cost the database little."""

_SPILL = "SELECT count(*) FROM pg_catalog.generate_series(1, 20000)"
"""With little memory this writes some 300 kB beside the tables and takes them away again: a full disk shows before a
command meets it, and for as long as it is full (fault B81)."""

_MIGRATIONS = "SELECT name, checksum FROM minutebook.migrations"
_STUCK = """
SELECT p.name FROM unnest(%s::text[]) AS p (name)
WHERE EXISTS (
    SELECT FROM minutebook.streams s
    LEFT JOIN minutebook_views.checkpoints c ON c.projection = p.name AND c.stream_id = s.id
    WHERE s.kind = 'room' AND s.version > coalesce(c.seq, 0)
      AND s.last_ts < clock_timestamp() - make_interval(secs => %s)
      AND NOT EXISTS (SELECT FROM minutebook_views.parked k WHERE k.projection = p.name AND k.stream_id = s.id))
"""


class Readiness:
    """Named checks, each `{"name", "ok", "detail"}`."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]], projections: list[str]) -> None:
        self._pool = pool
        self._projections = projections
        self._kept: list[dict[str, Any]] = []
        self._kept_until = 0.0
        self._lock = asyncio.Lock()

    async def checks(self) -> list[dict[str, Any]]:
        """The checks, at most 2 s old."""
        async with self._lock:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._kept_until:
                self._kept = await self._look()
                self._kept_until = loop.time() + KEPT_S
            return self._kept

    async def _look(self) -> list[dict[str, Any]]:
        try:
            async with asyncio.timeout(TIMEOUT_S), self._pool.connection(timeout=TIMEOUT_S) as connection:
                have: dict[str, str] = dict(await (await connection.execute(_MIGRATIONS)).fetchall())
                stuck = [
                    row[0]
                    for row in await (await connection.execute(_STUCK, (self._projections, STUCK_AFTER_S))).fetchall()
                ]
                read_only = await (await connection.execute("SHOW transaction_read_only")).fetchone()
                async with connection.transaction():
                    await connection.execute("SET LOCAL work_mem = '64kB'")
                    await connection.execute(_SPILL)
        except Exception as error:  # noqa: BLE001 - whatever keeps the database from answering
            return [_check("database", type(error).__name__)]
        missing = [file.name for file in sql_files() if file.is_missing(have)]
        return [
            _check("database", "read-only" if read_only == ("on",) else None),
            _check("migrations", f"run minutebook migrate: {', '.join(missing[:3])}" if missing else None),
            _check("projections", f"stuck: {', '.join(stuck)}" if stuck else None),
        ]


def _check(name: str, fault: str | None) -> dict[str, Any]:
    return {"name": name, "ok": fault is None, "detail": fault or "ok"}
