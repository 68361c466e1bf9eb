"""What operators see of deliveries: pages by place, one by its id, and what goes by its age."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from msgspec import UNSET
from psycopg_pool import AsyncConnectionPool

from ...commands.deliveries.ports import Due, Filter, Listed, Standing
from .reads import fetch

_LISTED = (
    "d.stream_id, d.id, d.channel, d.destination, d.state, d.attempts, d.reason, d.run_id, d.conversation_id,"
    " d.correlation_id, d.codec, d.codec_version, d.due_at, d.expires_at, d.ended_at IS NOT NULL"
)
_COLUMNS = {
    "state": "state",
    "channel": "channel",
    "destination": "destination",
    "correlation": "correlation_id",
    "run": "run_id",
    "conversation": "conversation_id",
}
"""Of each filter."""

_ONE = f"SELECT {_LISTED} FROM minutebook.deliveries d WHERE d.id = %s AND d.tenant = %s"  # noqa: S608 - constants only
_STANDING = """
SELECT coalesce(w.channel, s.channel, p.channel), coalesce(w.waiting, 0), w.oldest, coalesce(s.shut, 0), s.retry_at,
    p.reason, p.until
FROM (SELECT d.channel, count(*) AS waiting, min(d.planned_at) AS oldest FROM minutebook.deliveries d
      WHERE d.ended_at IS NULL AND d.tenant = %(tenant)s GROUP BY d.channel) w
FULL JOIN (SELECT b.channel, count(*) AS shut, min(b.retry_at) AS retry_at FROM minutebook.delivery_breakers b
           WHERE b.retry_at IS NOT NULL AND b.channel = ANY(%(channels)s::text[]) GROUP BY b.channel) s
    ON s.channel = w.channel
FULL JOIN (SELECT c.channel, c.reason, c.until FROM minutebook.channel_pauses c
           WHERE c.tenant = %(tenant)s AND (c.until IS NULL OR c.until > clock_timestamp())) p
    ON p.channel = coalesce(w.channel, s.channel)
"""
_IN_DOUBT = """
SELECT d.stream_id, d.id, d.channel, NULL, d.tenant, d.state FROM minutebook.deliveries d
WHERE d.tenant = %(tenant)s AND d.stream_id > %(after)s AND (%(channel)s::text IS NULL OR d.channel = %(channel)s)
  AND (d.state = 'unknown' OR (d.state = 'attempting' AND d.due_at <= clock_timestamp())
       OR (d.state = 'dead' AND d.reason = 'unknown_outcome' AND NOT d.is_sealed))
ORDER BY d.stream_id LIMIT %(limit)s
"""
_STALE = """
(SELECT d.id FROM minutebook.deliveries d
 WHERE d.has_payload AND d.ended_at <= clock_timestamp() - make_interval(secs => least(%(after)s, %(dead)s)::float8)
   AND d.ended_at <= clock_timestamp()
     - make_interval(secs => CASE WHEN d.state = 'dead' THEN %(dead)s ELSE %(after)s END::float8)
 ORDER BY d.ended_at LIMIT %(limit)s)
UNION ALL
(SELECT p.delivery_id FROM minutebook.delivery_payloads p
 WHERE p.created_at <= clock_timestamp() - make_interval(secs => %(orphan)s::float8)
   AND NOT EXISTS (SELECT FROM minutebook.deliveries d WHERE d.id = p.delivery_id AND d.has_payload)
 LIMIT %(limit)s)
"""
_TO_SEAL = """
SELECT d.stream_id, d.id, s.version FROM minutebook.deliveries d JOIN minutebook.streams s ON s.id = d.stream_id
WHERE NOT d.is_sealed AND d.ended_at IS NOT NULL AND d.seal_at <= clock_timestamp() ORDER BY d.seal_at LIMIT %s
"""
_SEALED = """
UPDATE minutebook.deliveries d SET is_sealed = true
FROM minutebook.streams s WHERE s.id = d.stream_id AND s.sealed AND d.stream_id = ANY(%s::bigint[]) RETURNING true
"""


class PostgresBoard:
    """Board of commands/deliveries/ports.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def page(self, tenant: str, wanted: Filter, before: int | None, limit: int) -> list[Listed]:
        """See Board.page."""
        query, parameters = page_query(tenant, wanted, before, limit)
        return [Listed(*row) for row in await fetch(self._pool, query, parameters)]

    async def one(self, tenant: str, delivery_id: str) -> Listed | None:
        """See Board.one."""
        rows = await fetch(self._pool, _ONE, (delivery_id, tenant))
        return Listed(*rows[0]) if rows else None

    async def standing(self, tenant: str, channels: Sequence[str]) -> list[Standing]:
        """See Board.standing."""
        rows = await fetch(self._pool, _STANDING, {"tenant": tenant, "channels": list(channels)})
        return [Standing(*row) for row in rows]

    async def in_doubt(self, tenant: str, channel: str | None, after: int, limit: int) -> list[tuple[Due, str]]:
        """See Board.in_doubt."""
        rows = await fetch(
            self._pool, _IN_DOUBT, {"tenant": tenant, "channel": channel, "after": after, "limit": limit}
        )
        return [(Due(*row[:5]), row[5]) for row in rows]

    async def stale_payloads(self, after_s: float, dead_s: float, orphan_s: float, limit: int) -> list[str]:
        """See Board.stale_payloads."""
        parameters = {"after": after_s, "dead": dead_s, "orphan": orphan_s, "limit": limit}
        return [row[0] for row in await fetch(self._pool, _STALE, parameters)]

    async def to_seal(self, limit: int) -> list[tuple[int, str, int]]:
        """See Board.to_seal."""
        return [tuple(row) for row in await fetch(self._pool, _TO_SEAL, (limit,))]

    async def sealed(self, stream_ids: Sequence[int]) -> None:
        """See Board.sealed."""
        await fetch(self._pool, _SEALED, (list(stream_ids),))


def page_query(tenant: str, wanted: Filter, before: int | None, limit: int) -> tuple[str, list[Any]]:
    """A page's statement: only the conditions that are asked for stand in it, so that each has its index."""
    where, values = conditions(tenant, wanted)
    if before is not None:
        where = f"{where} AND d.stream_id < %s"
        values.append(before)
    query = f"SELECT {_LISTED} FROM minutebook.deliveries d WHERE {where} ORDER BY d.stream_id DESC LIMIT %s"  # noqa: S608
    return query, [*values, limit]


def conditions(tenant: str, wanted: Filter) -> tuple[str, list[Any]]:
    """What a filter asks of a row `d`, and the values of its parameters."""
    found, values = ["d.tenant = %s"], [tenant]
    for name, column in _COLUMNS.items():
        value = getattr(wanted, name)
        if value is not UNSET:
            found.append(f"d.{column} = %s")
            values.append(value)
    if wanted.state is not UNSET and wanted.state != "accepted":
        found.append("d.state <> 'accepted'")
    return " AND ".join(found), list[Any](values)
