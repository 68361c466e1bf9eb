"""What is due of deliveries, by the rows that the log's own transactions keep; and the streams behind them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.deliveries.kind import MAX_EVENTS
from ...commands.deliveries.ports import Due, Look
from ...commands.ports import StoredEvent
from .reads import fetch

ORDERS = 500
"""Looked at by one call."""

_DUE = "d.stream_id, d.id, d.channel, d.behind, d.tenant"
_LOOK = (
    f"SELECT clock_timestamp(), {_DUE} FROM minutebook.deliveries d"  # noqa: S608 - constants only
    " WHERE d.lane = %s AND d.ended_at IS NULL AND NOT d.blocked AND d.due_at <= clock_timestamp()"
    " ORDER BY d.due_at, d.place LIMIT %s"
)
_NEXT = (
    "SELECT clock_timestamp(), (SELECT d.due_at FROM minutebook.deliveries d WHERE d.lane = %s AND d.ended_at IS NULL"
    " AND NOT d.blocked ORDER BY d.due_at LIMIT 1)"
)
_EVENTS = """
SELECT w.id, e.seq, e.type, e.schema_version, e.actor_kind, e.actor_id, e.run_id, e.origin_key,
    coalesce(e.payload::text, '{"erased": true}'), e.classes
FROM unnest(%s::bigint[]) AS w (id)
CROSS JOIN LATERAL (SELECT * FROM minutebook.events o WHERE o.stream_id = w.id ORDER BY o.seq LIMIT %s) e
ORDER BY w.id, e.seq
"""
_VERSIONS = "SELECT s.id, s.version FROM minutebook.streams s WHERE s.id = ANY(%s::bigint[])"

# One look-up a lane, by the index of what is due: never a walk over the deliveries of a lane that waits as a whole.
_LANES = """
WITH RECURSIVE lanes AS (
    (SELECT d.lane FROM minutebook.deliveries d WHERE d.ended_at IS NULL AND NOT d.blocked ORDER BY d.lane LIMIT 1)
    UNION ALL
    SELECT (SELECT d.lane FROM minutebook.deliveries d WHERE d.ended_at IS NULL AND NOT d.blocked AND d.lane > l.lane
            ORDER BY d.lane LIMIT 1)
    FROM lanes l WHERE l.lane IS NOT NULL
)
SELECT l.lane FROM lanes l
CROSS JOIN LATERAL (SELECT d.tenant, d.channel, d.destination FROM minutebook.deliveries d
    WHERE d.lane = l.lane AND d.ended_at IS NULL AND NOT d.blocked AND d.due_at <= clock_timestamp()
    ORDER BY d.due_at LIMIT 1) f
WHERE NOT EXISTS (SELECT FROM minutebook.channel_pauses p
                  WHERE p.tenant = f.tenant AND p.channel = f.channel
                    AND (p.until IS NULL OR p.until > clock_timestamp()))
  AND NOT EXISTS (SELECT FROM minutebook.delivery_breakers b WHERE b.destination = f.destination
                  AND (b.retry_at > clock_timestamp() OR b.probe_until > clock_timestamp()))
LIMIT %s
"""
_EXPIRED = (
    f"SELECT clock_timestamp(), {_DUE} FROM minutebook.deliveries d"  # noqa: S608
    " WHERE d.ended_at IS NULL AND d.expires_at <= clock_timestamp()"
    "   AND (d.state <> 'attempting' OR d.due_at <= clock_timestamp()) ORDER BY d.expires_at LIMIT %s"
)

# By the index of what is open by channel: one look-up a channel, however much waits.
_GONE = f"""
WITH RECURSIVE names AS (
    (SELECT d.channel FROM minutebook.deliveries d WHERE d.ended_at IS NULL ORDER BY d.channel LIMIT 1)
    UNION ALL
    SELECT (SELECT d.channel FROM minutebook.deliveries d WHERE d.ended_at IS NULL AND d.channel > n.channel
            ORDER BY d.channel LIMIT 1)
    FROM names n WHERE n.channel IS NOT NULL
)
SELECT clock_timestamp(), g.* FROM names n
CROSS JOIN LATERAL (SELECT {_DUE} FROM minutebook.deliveries d
    WHERE d.channel = n.channel AND d.ended_at IS NULL
      AND d.updated_at <= clock_timestamp() - make_interval(secs => %s::float8)
      AND (d.state <> 'attempting' OR d.due_at <= clock_timestamp()) ORDER BY d.stream_id LIMIT %s) g
WHERE n.channel <> ALL (%s::text[]) LIMIT %s
"""  # noqa: S608
_RELEASE = "SELECT minutebook.release_orders_v1(%s, %s)"

Pool = AsyncConnectionPool[psycopg.AsyncConnection[Any]]


class PostgresDeliveryRows:
    """Rows of commands/deliveries/ports.py over a pool of the app role."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def look(self, lane: str, limit: int) -> Look:
        """See Rows.look."""
        rows = await fetch(self._pool, _LOOK, (lane, limit))
        if rows:
            return Look(rows[0][0], [Due(*row[1:]) for row in rows], None)
        ((now, next_at),) = await fetch(self._pool, _NEXT, (lane,))
        return Look(now, (), next_at)

    async def events_of(self, stream_ids: Sequence[int]) -> dict[int, list[StoredEvent]]:
        """See Rows.events_of."""
        found: dict[int, list[StoredEvent]] = {}
        for stream_id, *event in await fetch(self._pool, _EVENTS, (list(stream_ids), MAX_EVENTS)):
            found.setdefault(stream_id, []).append(StoredEvent(*event))
        return found

    async def versions(self, stream_ids: Sequence[int]) -> dict[int, int]:
        """See Rows.versions."""
        return dict(await fetch(self._pool, _VERSIONS, (list(stream_ids),)))

    async def lanes_due(self, limit: int) -> list[str]:
        """See Rows.lanes_due."""
        return [row[0] for row in await fetch(self._pool, _LANES, (limit,))]

    async def expired(self, limit: int) -> Look:
        """See Rows.expired."""
        return _looked(await fetch(self._pool, _EXPIRED, (limit,)))

    async def without_channel(self, names: Sequence[str], quiet_s: float, limit: int) -> Look:
        """See Rows.without_channel."""
        return _looked(await fetch(self._pool, _GONE, (quiet_s, limit, list(names), limit)))

    async def release_orders(self) -> None:
        """See Rows.release_orders."""
        after: str | None = ""
        while after is not None:
            ((after,),) = await fetch(self._pool, _RELEASE, (after, ORDERS))


def _looked(rows: list[Any]) -> Look:
    now = rows[0][0] if rows else datetime.now(UTC)
    return Look(now, [Due(*row[1:]) for row in rows], None)
