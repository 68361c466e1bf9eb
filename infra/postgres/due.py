"""What the processes of rooms look up: candidates of the sweeps, and verdicts. As the app role."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.processes.ports import PAGE, DueDriver, DueRoom, DueRun, DueWait, SaidVerdict
from ...commands.run_handlers import RUN_LEASE
from ...domain.principals import SERVER_COMPONENT
from ...domain.rooms.context import Timeouts
from ...domain.times import stamp
from .reads import fetch

# Presence of a time before the token counts from the token: its event is looked up only where presence alone is old.
# Who drives a room whose projection is parked is in its last event of the token; the decision knows whether a system
# held it before.
_DRIVERS = """
WITH lent AS (
    SELECT l.stream_id, l.state ->> 'driver' AS driver, (l.state ->> 'driver_epoch')::bigint AS epoch
    FROM minutebook_views.room_list l
    WHERE NOT l.sealed AND l.state ->> 'system_holder' IS NOT NULL AND l.state ->> 'driver' LIKE 'human:%%'
      AND l.stream_id > %(after)s
      AND NOT EXISTS (SELECT FROM minutebook_views.parked k WHERE k.projection = 'room_list'
                      AND k.stream_id = l.stream_id)
    UNION ALL
    SELECT k.stream_id, d.payload ->> 'to', (d.payload ->> 'epoch')::bigint
    FROM minutebook_views.parked k
    CROSS JOIN LATERAL (SELECT e.payload FROM minutebook.events e WHERE e.stream_id = k.stream_id AND e.type = 'driver'
        ORDER BY e.seq DESC LIMIT 1) d
    WHERE k.projection = 'room_list' AND k.stream_id > %(after)s AND d.payload ->> 'to' LIKE 'human:%%')
SELECT l.stream_id, s.name, l.epoch,
    greatest(p.seen_at, t.ts, s.created_at), greatest(p.acted_at, t.ts, s.created_at)
FROM lent l
JOIN minutebook.streams s ON s.id = l.stream_id AND NOT s.sealed
LEFT JOIN minutebook.presence p ON p.stream_id = l.stream_id AND p.principal = l.driver
LEFT JOIN LATERAL (SELECT e.ts FROM minutebook.events e WHERE e.stream_id = l.stream_id AND e.type = 'driver'
    ORDER BY e.seq DESC LIMIT 1) t ON true
WHERE (p.stream_id IS NULL OR p.acted_at IS NULL OR p.seen_at <= %(away)s OR p.acted_at <= %(idle)s)
  AND (greatest(p.seen_at, t.ts, s.created_at) <= %(away)s OR greatest(p.acted_at, t.ts, s.created_at) <= %(idle)s)
ORDER BY l.stream_id LIMIT %(limit)s
"""

# What the projection has not read yet, or cannot, may be a request: such a room is looked at itself.
_APPROVALS = """
SELECT s.id, s.name
FROM minutebook.runs r
JOIN minutebook.streams s ON s.id = r.stream_id
LEFT JOIN minutebook_views.room_list l ON l.stream_id = r.stream_id
WHERE r.state = 'running' AND NOT s.sealed AND r.stream_id > %(after)s
  AND (l.stream_id IS NULL OR l.last_seq < s.version
       OR EXISTS (SELECT FROM jsonb_each(l.state -> 'approvals' -> 'pending') a
                  WHERE a.value ->> 'expires_at' <= %(now)s))
ORDER BY s.id LIMIT %(limit)s
"""

_WAITS = """
SELECT s.id, s.name, r.run_id, s.version, to_char(s.last_ts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
FROM minutebook.runs r
JOIN minutebook.streams s ON s.id = r.stream_id
LEFT JOIN minutebook.waits_told t ON t.stream_id = s.id
WHERE r.state = 'running' AND NOT s.sealed AND s.last_ts <= %(before)s AND r.stream_id > %(after)s
  AND (t.stream_id IS NULL OR t.seq < s.version)
ORDER BY s.id LIMIT %(limit)s
"""

# A lease that was dropped has no time; then the room's last event is the last sign of life.
_RUNS = """
WITH silent AS (
    SELECT r.stream_id, s.name, r.run_id, CASE
        WHEN r.state = 'requested' THEN r.known_at
        WHEN isfinite(l.seen_at) THEN l.seen_at
        ELSE s.last_ts END AS since, r.state
    FROM minutebook.runs r
    JOIN minutebook.streams s ON s.id = r.stream_id
    LEFT JOIN minutebook.leases l ON l.stream_id = r.stream_id AND l.purpose = %(purpose)s
    WHERE r.state IN ('requested', 'running') AND NOT s.sealed AND r.stream_id > %(after)s)
SELECT w.stream_id, w.name, w.run_id, w.since FROM silent w
WHERE w.since <= CASE w.state WHEN 'requested' THEN %(never_joined)s::timestamptz ELSE %(lost)s::timestamptz END
ORDER BY w.stream_id FETCH FIRST %(limit)s ROWS WITH TIES
"""

_VERDICT = """
SELECT e.actor_kind, e.type, e.schema_version, e.payload::text,
    to_char(e.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    EXISTS (SELECT FROM minutebook.events o WHERE o.stream_id = e.stream_id AND o.origin_client = %s
            AND o.origin_key = %s)
FROM minutebook.streams s JOIN minutebook.events e ON e.stream_id = s.id WHERE s.name = %s AND e.seq = %s
"""


class PostgresDue:
    """Due and Verdicts of commands/processes/ports.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def drivers(self, now: datetime, timeouts: Timeouts, after: int) -> list[DueDriver]:
        """See Due.drivers."""
        parameters = {
            "away": now - timedelta(seconds=timeouts.away_s),
            "idle": now - timedelta(seconds=timeouts.idle_s),
            "after": after,
            "limit": PAGE,
        }
        rows = await fetch(self._pool, _DRIVERS, parameters)
        return [DueDriver(stream_id, _room(name), *times) for stream_id, name, *times in rows]

    async def approvals(self, now: datetime, after: int) -> list[DueRoom]:
        """See Due.approvals."""
        parameters = {"now": stamp(now), "after": after, "limit": PAGE}
        return [DueRoom(stream_id, _room(name)) for stream_id, name in await fetch(self._pool, _APPROVALS, parameters)]

    async def runs(self, now: datetime, timeouts: Timeouts, after: int) -> list[DueRun]:
        """See Due.runs."""
        parameters = {
            "lost": now - timedelta(seconds=timeouts.lost_s),
            "never_joined": now - timedelta(seconds=timeouts.never_joined_s),
            "purpose": RUN_LEASE,
            "after": after,
            "limit": PAGE,
        }
        rows = await fetch(self._pool, _RUNS, parameters)
        return [DueRun(stream_id, _room(name), run_id, since) for stream_id, name, run_id, since in rows]

    async def waits(self, now: datetime, timeouts: Timeouts, after: int) -> list[DueWait]:
        """See Due.waits."""
        parameters = {"before": now - timedelta(seconds=timeouts.waiting_s), "after": after, "limit": PAGE}
        rows = await fetch(self._pool, _WAITS, parameters)
        return [DueWait(stream_id, _room(name), *wait) for stream_id, name, *wait in rows]

    async def verdict(self, room_id: str, seq: int) -> SaidVerdict | None:
        """See Verdicts.verdict."""
        place = (SERVER_COMPONENT, f"verdict:{seq}", f"room:{room_id}", seq)
        rows = await fetch(self._pool, _VERDICT, place)
        return SaidVerdict(*rows[0]) if rows else None


def _room(stream: str) -> str:
    return stream.partition(":")[2]
