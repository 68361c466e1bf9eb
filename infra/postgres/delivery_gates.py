"""Breakers, pauses and paces of deliveries: rows that all processes share."""

from __future__ import annotations

import random
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.deliveries.ports import Gate
from .reads import fetch

FAILURES = 5
"""In a row, until a destination is left alone."""

COOL_S = 5.0
MAX_COOL_S = 300.0
"""A destination that fails is left alone for up to COOL_S, twice as long at each probe that fails, at most this."""

_GATE = """
SELECT CASE
    WHEN EXISTS (SELECT FROM minutebook.channel_pauses p
                 WHERE p.tenant = %(tenant)s AND p.channel = %(channel)s
                   AND (p.until IS NULL OR p.until > clock_timestamp())) THEN 'paused'
    WHEN b.retry_at IS NULL THEN 'open'
    WHEN b.retry_at > clock_timestamp() OR b.probe_until > clock_timestamp() THEN 'shut'
    ELSE 'probe' END, coalesce(b.failures, 0), b.retry_at
FROM (SELECT 1) o LEFT JOIN minutebook.delivery_breakers b ON b.destination = %(destination)s
"""
_PROBE = """
UPDATE minutebook.delivery_breakers b SET probe_until = clock_timestamp() + make_interval(secs => %s)
WHERE b.destination = %s AND b.retry_at <= clock_timestamp()
  AND (b.probe_until IS NULL OR b.probe_until <= clock_timestamp())
RETURNING true
"""
_ALIVE = "DELETE FROM minutebook.delivery_breakers b WHERE b.destination = %s RETURNING true"

# Sends that were under way when it shut add to the failures and to nothing else; the probe that fails shuts it anew.
_FAILED = """
INSERT INTO minutebook.delivery_breakers AS b (destination, channel, failures, opened, retry_at)
VALUES (%(destination)s, %(channel)s, 1, 0,
    CASE WHEN %(asked)s::float8 IS NOT NULL THEN clock_timestamp() + make_interval(secs => %(asked)s::float8) END)
ON CONFLICT ON CONSTRAINT delivery_breakers_pkey DO UPDATE SET
    failures = b.failures + 1,
    updated_at = clock_timestamp(),
    opened = b.opened + CASE WHEN b.retry_at > clock_timestamp() OR b.failures + 1 < %(failures)s THEN 0 ELSE 1 END,
    probe_until = CASE WHEN b.retry_at > clock_timestamp() THEN b.probe_until END,
    retry_at = CASE
        WHEN b.retry_at > clock_timestamp() THEN b.retry_at
        WHEN b.failures + 1 >= %(failures)s THEN clock_timestamp() + make_interval(secs => greatest(
            coalesce(%(asked)s::float8, 0),
            least(%(most)s::float8, %(cool)s::float8 * 2 ^ least(b.opened, 16)) * (0.5 + %(draw)s::float8 / 2)))
        ELSE EXCLUDED.retry_at END
RETURNING b.retry_at IS NULL OR b.retry_at <= clock_timestamp()
"""

# Tokens of a bucket that fills at the channel's pace and holds a second of it.
_TAKE = """
INSERT INTO minutebook.channel_paces AS p (channel, tokens, at)
VALUES (%(channel)s, greatest(%(rate)s::float8, 1), clock_timestamp())
ON CONFLICT ON CONSTRAINT channel_paces_pkey DO UPDATE SET
    tokens = least(greatest(%(rate)s::float8, 1),
        p.tokens + %(rate)s::float8 * greatest(0, extract(epoch FROM clock_timestamp() - p.at))),
    at = clock_timestamp()
RETURNING tokens
"""
_SPEND = "UPDATE minutebook.channel_paces p SET tokens = p.tokens - %s WHERE p.channel = %s"


class PostgresGates:
    """Gates of commands/deliveries/ports.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def pass_(self, tenant: str, channel: str, destination: str, lease_s: float) -> Gate:
        """See Gates.pass_."""
        ((state, failures, at),) = await fetch(
            self._pool, _GATE, {"tenant": tenant, "channel": channel, "destination": destination}
        )
        if state == "probe" and not await fetch(self._pool, _PROBE, (lease_s, destination)):
            state = "shut"
        return Gate(state, failures, at)

    async def told(self, channel: str, destination: str, *, is_alive: bool, wait_s: float | None) -> bool:
        """See Gates.told."""
        if is_alive:
            await fetch(self._pool, _ALIVE, (destination,))
            return True
        parameters = {
            "channel": channel,
            "destination": destination,
            "asked": None if wait_s is None else min(wait_s, 3600.0),
            "failures": FAILURES,
            "cool": COOL_S,
            "most": MAX_COOL_S,
            "draw": random.random(),  # noqa: S311 - spreads load only
        }
        ((may_go,),) = await fetch(self._pool, _FAILED, parameters)
        return may_go

    async def take(self, channel: str, rate: float, wanted: int) -> tuple[int, float]:
        """See Gates.take. Asked and spent under one row's lock."""
        async with self._pool.connection() as connection, connection.transaction():
            row = await (await connection.execute(_TAKE, {"channel": channel, "rate": rate}, prepare=True)).fetchone()
            tokens: float = row[0] if row else 0.0
            granted = max(0, min(wanted, int(tokens)))
            if granted:
                await connection.execute(_SPEND, (granted, channel), prepare=True)
        return granted, max(0.0, (1 - (tokens - granted)) / rate)
