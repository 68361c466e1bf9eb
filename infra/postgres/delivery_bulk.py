"""Bulk plans of operators: which deliveries they are about, what became of each, and who works on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.deliveries.bulk_ports import Claimed, Found, Item, ItemState
from ...commands.deliveries.ports import Filter
from .delivery_board import conditions
from .reads import fetch

_FOUND = "d.stream_id, d.id, s.version, d.state, d.reason, d.has_payload, d.attempts, d.seal_at"
_PUT = """
INSERT INTO minutebook.bulk_items (plan_id, tenant, place, delivery_id, delivery_stream, version, class, state)
SELECT %s, %s, i.* FROM unnest(%s::integer[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::text[]) i
ON CONFLICT ON CONSTRAINT bulk_items_pkey DO NOTHING RETURNING true
"""
_TENANT = "SELECT b.tenant FROM minutebook.bulk_plans b WHERE b.plan_id = %s"
_PROGRESS = (
    "SELECT i.class, i.state, count(*) FROM minutebook.bulk_items i WHERE i.plan_id = %s GROUP BY i.class, i.state"
)
_CLAIM = """
UPDATE minutebook.bulk_plans b SET holder = %(holder)s,
    lease_until = clock_timestamp() + make_interval(secs => %(lease)s::float8)
WHERE b.plan_id IN (SELECT c.plan_id FROM minutebook.bulk_plans c
    WHERE c.state = 'running' AND (c.lease_until IS NULL OR c.lease_until <= clock_timestamp())
    ORDER BY c.lease_until NULLS FIRST LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING b.plan_id, b.stream_id, b.tenant
"""
_RENEW = """
UPDATE minutebook.bulk_plans b SET lease_until = clock_timestamp() + make_interval(secs => %s::float8)
WHERE b.plan_id = %s AND b.holder = %s AND b.state = 'running' RETURNING true
"""
_RELEASE = """
UPDATE minutebook.bulk_plans b SET holder = NULL, lease_until = NULL WHERE b.plan_id = %s AND b.holder = %s
RETURNING true
"""
_LEFT = """
SELECT i.place, i.delivery_id, i.delivery_stream, i.version, i.class FROM minutebook.bulk_items i
WHERE i.plan_id = %s AND i.state = 'left' ORDER BY i.place LIMIT %s
"""
_MARK = """
UPDATE minutebook.bulk_items i SET state = m.state, reason = m.reason
FROM unnest(%s::integer[], %s::text[], %s::text[]) AS m (place, state, reason)
WHERE i.plan_id = %s AND i.place = m.place RETURNING true
"""
_LAPSED = """
SELECT b.plan_id, b.stream_id, b.tenant FROM minutebook.bulk_plans b
WHERE b.state = 'planned' AND b.expires_at <= clock_timestamp() ORDER BY b.expires_at LIMIT %s
"""
_FORGET = """
DELETE FROM minutebook.bulk_items i WHERE (i.plan_id, i.place) IN (
    SELECT o.plan_id, o.place FROM minutebook.bulk_items o
    WHERE o.created_at <= clock_timestamp() - make_interval(secs => %s::float8) LIMIT %s)
RETURNING true
"""


class PostgresBulk:
    """BulkTable of commands/deliveries/bulk_ports.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def find(self, tenant: str, wanted: Filter, limit: int) -> list[Found]:
        """See BulkTable.find."""
        query, values = found_query(tenant, wanted, limit)
        return [Found(*row) for row in await fetch(self._pool, query, values)]

    async def put(self, plan_id: str, tenant: str, items: Sequence[Item]) -> None:
        """See BulkTable.put."""
        columns = (
            [each.place for each in items],
            [each.delivery_id for each in items],
            [each.stream_id for each in items],
            [each.version for each in items],
            [each.class_ for each in items],
            [each.state for each in items],
        )
        await fetch(self._pool, _PUT, (plan_id, tenant, *columns))

    async def tenant_of(self, plan_id: str) -> str | None:
        """See BulkTable.tenant_of."""
        rows = await fetch(self._pool, _TENANT, (plan_id,))
        return rows[0][0] if rows else None

    async def progress(self, plan_id: str) -> Mapping[tuple[str, str], int]:
        """See BulkTable.progress."""
        return {(row[0], row[1]): row[2] for row in await fetch(self._pool, _PROGRESS, (plan_id,))}

    async def claim(self, holder: str, lease_s: float, limit: int) -> list[Claimed]:
        """See BulkTable.claim."""
        parameters = {"holder": holder, "lease": lease_s, "limit": limit}
        return [Claimed(*row) for row in await fetch(self._pool, _CLAIM, parameters)]

    async def renew(self, plan_id: str, holder: str, lease_s: float) -> bool:
        """See BulkTable.renew."""
        return bool(await fetch(self._pool, _RENEW, (lease_s, plan_id, holder)))

    async def release(self, plan_id: str, holder: str) -> None:
        """See BulkTable.release."""
        await fetch(self._pool, _RELEASE, (plan_id, holder))

    async def left(self, plan_id: str, limit: int) -> list[Item]:
        """See BulkTable.left."""
        return [Item(*row) for row in await fetch(self._pool, _LEFT, (plan_id, limit))]

    async def mark(self, plan_id: str, marks: Sequence[tuple[int, ItemState, str]]) -> None:
        """See BulkTable.mark."""
        places, states, reasons = ([mark[n] for mark in marks] for n in range(3))
        await fetch(self._pool, _MARK, (places, states, reasons, plan_id))

    async def lapsed(self, limit: int) -> list[Claimed]:
        """See BulkTable.lapsed."""
        return [Claimed(*row) for row in await fetch(self._pool, _LAPSED, (limit,))]

    async def forget(self, older_s: float, limit: int) -> int:
        """See BulkTable.forget."""
        return len(await fetch(self._pool, _FORGET, (older_s, limit)))


def found_query(tenant: str, wanted: Filter, limit: int) -> tuple[str, list[Any]]:
    """The statement of a plan, and the values of its parameters."""
    where, values = conditions(tenant, wanted)
    query = (
        f"SELECT {_FOUND} FROM minutebook.deliveries d JOIN minutebook.streams s ON s.id = d.stream_id"  # noqa: S608
        f" WHERE {where} ORDER BY d.stream_id LIMIT %s"
    )
    return query, [*values, limit]
