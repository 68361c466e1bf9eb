"""Links, codes that wait and handles of background turns, as operators see them: by id, never what opens them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from .reads import fetch

_LINKS = """
SELECT i.link_id, i.channel, i.native, i.holder, i.updated_at FROM minutebook.linked_identities i
WHERE i.tenant = %s AND (i.channel, i.native) > (%s, %s) AND i.holder IS NOT NULL
ORDER BY i.channel, i.native LIMIT %s
"""
_CHALLENGES = """
SELECT c.link_id, c.account, c.expires_at FROM minutebook.link_challenges c
WHERE c.tenant = %s AND c.link_id > %s AND c.expires_at > clock_timestamp() ORDER BY c.link_id LIMIT %s
"""
_CONTINUATIONS = """
SELECT c.id, c.conversation_id, c.begun_at, c.expires_at, c.turn, c.status, c.reason FROM minutebook.continuations c
WHERE c.tenant = %s AND c.id > %s ORDER BY c.id LIMIT %s
"""
_END = """
UPDATE minutebook.continuations c SET status = 'cancelled', reason = 'operator', ended_at = clock_timestamp(),
    expires_at = clock_timestamp() + make_interval(secs => c.ttl_s)
WHERE c.tenant = %s AND c.id = %s AND c.status IS NULL RETURNING true
"""
_AT = """
SELECT s.version, encode(s.head_hash, 'hex') FROM minutebook.continuations c
JOIN minutebook.streams s ON s.id = c.stream_id WHERE c.tenant = %s AND c.id = %s
"""


class PostgresOperatorTables:
    """OperatorTables of commands/linking/operators.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def links(
        self, tenant: str, after: tuple[str, str], limit: int
    ) -> Sequence[tuple[str, str, str, str, datetime]]:
        """See OperatorTables.links."""
        return await fetch(self._pool, _LINKS, (tenant, *after, limit))

    async def challenges(self, tenant: str, after: str, limit: int) -> Sequence[tuple[str, str, datetime]]:
        """See OperatorTables.challenges."""
        return await fetch(self._pool, _CHALLENGES, (tenant, after, limit))

    async def continuations(self, tenant: str, after: str, limit: int) -> Sequence[tuple[Any, ...]]:
        """See OperatorTables.continuations."""
        return await fetch(self._pool, _CONTINUATIONS, (tenant, after, limit))

    async def end_continuation(self, tenant: str, id_: str) -> tuple[int, str] | None:
        """See OperatorTables.end_continuation."""
        await fetch(self._pool, _END, (tenant, id_))
        rows = await fetch(self._pool, _AT, (tenant, id_))
        return (rows[0][0], rows[0][1]) if rows else None
