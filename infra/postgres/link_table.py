"""Which codes wait, whose an identity is, and how often an end was wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...domain.linking.codes import Wrongs
from ...domain.linking.decide import Standing
from ...domain.linking.events import LinkedEnd
from ...domain.times import stamp
from .errors import translate
from .reads import fetch

_WAITING = "SELECT c.account FROM minutebook.link_challenges c WHERE c.tenant = %s AND c.code = %s"
_BEGUN = "SELECT c.account FROM minutebook.link_challenges c WHERE c.tenant = %s AND c.link_id = %s"
_TENANT = "SELECT c.tenant FROM minutebook.link_challenges c WHERE c.link_id = %s AND c.expires_at > clock_timestamp()"
_HOLDER = "SELECT i.holder FROM minutebook.linked_identities i WHERE i.tenant = %s AND i.link_id = %s"
_PENDING = "SELECT count(*) FROM minutebook.link_challenges c WHERE c.tenant = %s AND c.expires_at > clock_timestamp()"
_STANDING = """
SELECT coalesce(i.holder, ''), coalesce(i.left_account, ''), i.free_at,
    EXISTS (SELECT FROM minutebook.linked_identities o WHERE o.tenant = %(tenant)s AND o.holder = %(key)s)
FROM (SELECT 1) one LEFT JOIN minutebook.linked_identities i
    ON i.tenant = %(tenant)s AND i.channel = %(channel)s AND i.native = %(native)s
"""
_NONE_YET = """
INSERT INTO minutebook.link_wrongs (tenant, channel, native, count, until)
VALUES (%s, %s, %s, 0, clock_timestamp()) ON CONFLICT ON CONSTRAINT link_wrongs_pkey DO NOTHING
"""
_WRONGS = """
SELECT w.count, w.until FROM minutebook.link_wrongs w
WHERE w.tenant = %s AND w.channel = %s AND w.native = %s FOR UPDATE
"""
_COUNT = """
UPDATE minutebook.link_wrongs w SET count = %s, until = %s::timestamptz
WHERE w.tenant = %s AND w.channel = %s AND w.native = %s
"""
_GIVE_BACK = """
UPDATE minutebook.link_wrongs w SET count = greatest(0, w.count - 1)
WHERE w.tenant = %s AND w.channel = %s AND w.native = %s RETURNING true
"""


class PostgresLinkTable:
    """LinkTable of commands/linking/ports.py over a pool of the app role. now: this server's clock."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]], now: Callable[[], datetime]) -> None:
        self._pool = pool
        self._now = now

    async def waiting(self, tenant: str, code: str) -> str | None:
        """See LinkTable.waiting."""
        rows = await fetch(self._pool, _WAITING, (tenant, code))
        return rows[0][0] if rows else None

    async def begun(self, tenant: str, link_id: str) -> str | None:
        """See LinkTable.begun."""
        rows = await fetch(self._pool, _BEGUN, (tenant, link_id))
        return rows[0][0] if rows else None

    async def tenant_of(self, link_id: str) -> str | None:
        """See LinkTable.tenant_of."""
        rows = await fetch(self._pool, _TENANT, (link_id,))
        return rows[0][0] if rows else None

    async def holder(self, tenant: str, link_id: str) -> str | None:
        """See LinkTable.holder."""
        rows = await fetch(self._pool, _HOLDER, (tenant, link_id))
        return rows[0][0] if rows else None

    async def pending(self, tenant: str) -> int:
        """See LinkTable.pending."""
        return (await fetch(self._pool, _PENDING, (tenant,)))[0][0]

    async def standing(self, tenant: str, end: LinkedEnd, key: str) -> Standing:
        """See LinkTable.standing."""
        about = {"tenant": tenant, "channel": end.channel, "native": end.native, "key": key}
        ((holder, left, free_at, leads),) = await fetch(self._pool, _STANDING, about)
        return Standing(holder, left, "" if free_at is None else stamp(free_at.astimezone(UTC)), leads)

    async def take_try(self, tenant: str, end: LinkedEnd) -> bool:
        """See LinkTable.take_try."""
        whose = (tenant, end.channel, end.native)
        now = self._now()
        try:
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute(_NONE_YET, whose)
                count, until = await (await connection.execute(_WRONGS, whose)).fetchone() or (0, now)
                wrongs = Wrongs(count, stamp(until.astimezone(UTC)))
                if wrongs.is_blocked(now):
                    return False
                more = wrongs.another(now)
                await connection.execute(_COUNT, (more.count, more.until, *whose))
                return True
        except Exception as error:
            raise translate(error) from error

    async def give_back(self, tenant: str, end: LinkedEnd) -> None:
        """See LinkTable.give_back."""
        await fetch(self._pool, _GIVE_BACK, (tenant, end.channel, end.native))
