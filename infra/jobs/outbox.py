"""From the log to the queue: a process manager's jobs are deferred in one transaction with its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, LiteralString

import procrastinate
import psycopg
from procrastinate.exceptions import ConnectorException
from psycopg_pool import AsyncConnectionPool

from ...commands.jobs import JobRequest, Process
from ...commands.ports import StoredEvent
from ..postgres import views
from ..postgres.follower import Follower
from .connector import SEARCH_PATH
from .engine import defer

PREFIX = "process:"
"""What the checkpoints of a process begin with; no projection is called so, hence none is rebuilt (law 9)."""

LINGER_S = 0.25
"""How long a wake-up waits for more: most events ask for no job, and each transaction costs as much as an append."""

MAX_EVENTS = 200
"""Events of one stream in one transaction."""

_BEGAN: LiteralString = "SELECT p.name FROM minutebook_jobs.processes p WHERE p.name = %s"

_BEHIND: LiteralString = """
SELECT s.id FROM minutebook.streams s
JOIN minutebook_jobs.processes b ON b.name = %(process)s
LEFT JOIN minutebook_views.checkpoints c ON c.projection = %(name)s AND c.stream_id = s.id
WHERE s.kind = ANY (%(kinds)s) AND s.version > coalesce(c.seq, 0) AND s.last_ts >= b.began_at
  AND NOT EXISTS (SELECT FROM minutebook_views.parked p WHERE p.projection = %(name)s AND p.stream_id = s.id
                  AND p.retry_at > clock_timestamp())
LIMIT %(limit)s
"""

# An event that is older than its stream is a copy, which a fork brought: its effects are where it was first written.
_READ: LiteralString = """
SELECT w.stream_id, e.seq, e.type, e.schema_version, e.actor_kind, e.actor_id, e.run_id, e.origin_key, e.payload::text,
    e.classes, to_char(e.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
FROM unnest(%(ids)s::bigint[], %(afters)s::bigint[], %(throughs)s::bigint[]) AS w (stream_id, after, through)
JOIN minutebook.streams s ON s.id = w.stream_id
JOIN minutebook_jobs.processes b ON b.name = %(process)s
CROSS JOIN LATERAL (
    SELECT * FROM minutebook.events x
    WHERE x.stream_id = w.stream_id AND x.seq > w.after AND x.seq <= w.through AND x.type = ANY (%(types)s)
      AND x.ts >= greatest(s.created_at, b.began_at) AND x.payload IS NOT NULL
    ORDER BY x.seq LIMIT %(limit)s) e
ORDER BY w.stream_id, e.seq
"""


class Outbox(Follower):
    """One process, followed as a projection is; its rows are jobs. After a crash a job is there exactly if the
    checkpoint has passed its event.

    `pool` is the projector's: it keeps the checkpoints, and may put jobs into the queue but not run them.
    """

    def __init__(
        self,
        process: Process,
        app: procrastinate.App,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        listening: Callable[[], bool],
        linger_s: float = LINGER_S,
    ) -> None:
        super().__init__(PREFIX + process.name, process.kinds, pool, listening, linger_s)
        self.process = process
        self._app = app
        self._scope["process"] = process.name
        self.deferred = 0

    async def check(self) -> None:
        """Raises LookupError where no migration says from when on the process answers events."""
        async with self._pool.connection() as connection:
            if await (await connection.execute(_BEGAN, (self.process.name,))).fetchone() is None:
                raise LookupError(
                    f"the process {self.process.name} is not in minutebook_jobs.processes; add it in a migration"
                )

    async def _behind(self, connection: psycopg.AsyncConnection[Any], limit: int) -> list[int]:
        cursor = await connection.execute(_BEHIND, {**self._scope, "limit": limit}, prepare=True)
        return [row[0] for row in await cursor.fetchall()]

    async def _work(
        self, connection: psycopg.AsyncConnection[Any], claimed: views.Claimed
    ) -> tuple[dict[int, int], int]:
        found = await self._read(connection, claimed)
        asked = (
            request
            for stream_id, events in found.items()
            for event in events
            for request in self.process.react(claimed[stream_id][0].name, event)
        )
        first: dict[str, JobRequest] = {}
        for request in asked:
            first.setdefault(request.key, request)
        requests = list(first.values())
        await self._defer(connection, requests)
        self.deferred += len(requests)
        full = {each: events[-1].seq for each, events in found.items() if len(events) == MAX_EVENTS}
        ends = {each: full.get(each, head) for each, (_, _, head) in claimed.items()}
        return ends, sum(len(events) for events in found.values())

    async def _read(
        self, connection: psycopg.AsyncConnection[Any], claimed: views.Claimed
    ) -> dict[int, list[StoredEvent]]:
        parameters = {
            "ids": list(claimed),
            "afters": [after for _, after, _ in claimed.values()],
            "throughs": [head for _, _, head in claimed.values()],
            "process": self.process.name,
            "types": list(self.process.types),
            "limit": MAX_EVENTS,
        }
        cursor = await connection.execute(_READ, parameters, prepare=True)
        found: dict[int, list[StoredEvent]] = {}
        for stream_id, *columns in await cursor.fetchall():
            found.setdefault(stream_id, []).append(StoredEvent(*columns))
        return found

    async def _defer(self, connection: psycopg.AsyncConnection[Any], requests: list[JobRequest]) -> None:
        if requests:
            await connection.execute(f"SET LOCAL search_path = {SEARCH_PATH}")  # pyright: ignore[reportArgumentType]
        try:
            for request in requests:
                await defer(self._app, connection, request)
        except ConnectorException as error:
            # The follower tells by the database's own error whether the stream is to blame.
            raise (error.__cause__ or error) from None
