"""What the database knows of the whole deployment in numbers: rooms, approvals, views, jobs. As the app role."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from msgspec import Struct
from psycopg_pool import AsyncConnectionPool

from ...domain.times import stamp
from ..settings_timeouts import TimeoutSettings
from .reads import fetch
from .views import SHADOW

# As projections.room_list.phase has it for who is cleared for all. Only rooms with a run have their state read.
_ROOMS = """
WITH known AS (
    SELECT s.id, s.sealed, s.last_ts, bool_or(r.state = 'running') AS runs, bool_or(r.state = 'ended') AS ran
    FROM minutebook.streams s LEFT JOIN minutebook.runs r ON r.stream_id = s.id
    WHERE s.kind = 'room' AND s.version > 0 GROUP BY s.id)
SELECT CASE WHEN k.sealed THEN 'Closed'
    WHEN k.runs THEN CASE WHEN k.last_ts <= clock_timestamp() - make_interval(secs => %(silent_s)s) OR EXISTS (
        SELECT FROM minutebook_views.room_list l CROSS JOIN LATERAL jsonb_each(l.state -> 'approvals' -> 'pending') a
        WHERE l.stream_id = k.id AND a.value ->> 'expires_at' > %(now)s) THEN 'AwaitingHuman' ELSE 'Active' END
    WHEN k.ran THEN 'Idle' ELSE 'Open' END, count(*)
FROM known k GROUP BY 1
"""

# One whose time is over counts until a sweep has settled it: if none does, this is where it shows.
_APPROVALS = """
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(e.ts)), 0)::float8
FROM minutebook.runs r JOIN minutebook_views.room_list l ON l.stream_id = r.stream_id
CROSS JOIN LATERAL jsonb_each(l.state -> 'approvals' -> 'pending') a
JOIN minutebook.events e ON e.stream_id = l.stream_id AND e.seq = (a.value ->> 'seq')::bigint
WHERE r.state = 'running' AND NOT l.sealed
"""

_PARTICIPANTS = """
SELECT (SELECT count(*) FROM minutebook.presence p
        WHERE p.seen_at > clock_timestamp() - make_interval(secs => %(away_s)s)),
    (SELECT count(*) FROM minutebook.runs r WHERE r.state = 'running')
"""

_VIEWS = """
SELECT v.name, coalesce(extract(epoch FROM clock_timestamp() - min(s.last_ts)), 0)::float8
FROM unnest(%(views)s::text[]) AS v (name)
LEFT JOIN (minutebook.streams s CROSS JOIN unnest(%(views)s::text[]) AS w (name)
    LEFT JOIN minutebook_views.checkpoints c ON c.projection = w.name AND c.stream_id = s.id)
  ON w.name = v.name AND s.kind = 'room' AND s.version > coalesce(c.seq, 0)
    AND NOT EXISTS (SELECT FROM minutebook_views.parked k WHERE k.projection = w.name AND k.stream_id = s.id)
GROUP BY v.name
"""

_PARKED = """
SELECT k.projection, count(*) FROM minutebook_views.parked k WHERE k.projection NOT LIKE %(shadow)s GROUP BY 1
"""

_JOBS = """
WITH waiting AS (
    SELECT greatest(j.scheduled_at, (SELECT max(e.at) FROM minutebook_jobs.procrastinate_events e
                                     WHERE e.job_id = j.id)) AS since
    FROM minutebook_jobs.procrastinate_jobs j
    WHERE j.status = 'todo' AND (j.scheduled_at IS NULL OR j.scheduled_at <= clock_timestamp()))
SELECT (SELECT count(*) FROM waiting),
    (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(w.since)), 0)::float8 FROM waiting w),
    (SELECT count(*) FROM minutebook_jobs.procrastinate_jobs j WHERE j.status = 'failed')
"""

_SWEEPS = "SELECT w.name, extract(epoch FROM w.done_at)::float8, w.every_s FROM minutebook_jobs.sweeps w"


class Census(Struct, frozen=True):
    """One look. rooms: by phase. participants: people who were seen lately, once for each room that they were in, and
    running runs. view_lags_s: age of the oldest event that a view has not folded. sweeps: name to when it was last
    done, in Unix seconds, and its interval in seconds."""

    rooms: dict[str, int]
    approvals: int
    oldest_approval_s: float
    people: int
    runs: int
    view_lags_s: dict[str, float]
    parked: dict[str, int]
    jobs: int
    oldest_job_s: float
    failed_jobs: int
    sweeps: dict[str, tuple[float, int]]


class CensusTaker:
    """Takes them. views: names of the read models. A person who would lose the driver token is not there."""

    def __init__(
        self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]], views: Sequence[str], timeouts: TimeoutSettings
    ) -> None:
        self._pool = pool
        self._views = list(views)
        self._timeouts = timeouts

    async def take(self) -> Census:
        """Look now. Raises Unavailable."""
        scope: dict[str, Any] = {
            "now": stamp(datetime.now(UTC)),
            "silent_s": self._timeouts.room_waiting_seconds,
            "away_s": self._timeouts.driver_away_seconds,
            "views": self._views,
            "shadow": f"%{SHADOW}",
        }
        return await _taken(self._pool, scope)


async def _taken(pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]], scope: dict[str, Any]) -> Census:
    rooms = await fetch(pool, _ROOMS, scope)
    ((approvals, oldest_approval_s),) = await fetch(pool, _APPROVALS, ())
    ((people, runs),) = await fetch(pool, _PARTICIPANTS, scope)
    lags = await fetch(pool, _VIEWS, scope)
    parked = await fetch(pool, _PARKED, scope)
    ((jobs, oldest_job_s, failed),) = await fetch(pool, _JOBS, ())
    sweeps = await fetch(pool, _SWEEPS, ())
    return Census(
        dict(rooms),
        approvals,
        oldest_approval_s,
        people,
        runs,
        dict(lags),
        dict(parked),
        jobs,
        oldest_job_s,
        failed,
        {name: (done_at, every_s) for name, done_at, every_s in sweeps},
    )
