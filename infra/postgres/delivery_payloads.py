"""Payloads of deliveries at rest: the one place where what is sent, and where to, can be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.deliveries.ports import Bound, Encoded
from .reads import fetch

# Its commit waits for no disk. The append that follows does, and this lies before it in the same write-ahead log:
# whatever crashes, no delivery is there without its payload.
_PUT = """
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
INSERT INTO minutebook.delivery_payloads (delivery_id, tenant, codec, codec_version, body, key)
SELECT u.* FROM quick
CROSS JOIN unnest(%s::text[], %s::text[], %s::text[], %s::integer[], %s::bytea[], %s::bytea[])
    AS u (id, tenant, codec, version, body, key)
WHERE NOT EXISTS (SELECT FROM minutebook.deliveries d WHERE d.id = u.id)
ON CONFLICT ON CONSTRAINT delivery_payloads_pkey DO NOTHING RETURNING true
"""
_GET = (
    "SELECT p.tenant, p.delivery_id, p.codec, p.codec_version, p.body, p.key FROM minutebook.delivery_payloads p"
    " WHERE p.delivery_id = ANY(%s::text[])"
)
_FORGET = "DELETE FROM minutebook.delivery_payloads p WHERE p.delivery_id = ANY(%s::text[]) RETURNING p.delivery_id"
_FORGOTTEN = (
    "UPDATE minutebook.deliveries d SET has_payload = false"
    " WHERE d.id = ANY(%s::text[]) AND d.has_payload RETURNING true"
)
_PURGE = "SELECT minutebook.inbox_purge_v1(%s::text[])"


class PostgresPayloads:
    """Payloads of commands/deliveries/ports.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def put(self, payloads: Sequence[tuple[Bound, Encoded]]) -> None:
        """See Payloads.put."""
        columns = (
            [bound.delivery_id for bound, _ in payloads],
            [bound.tenant for bound, _ in payloads],
            [bound.codec for bound, _ in payloads],
            [bound.version for bound, _ in payloads],
            [encoded.body for _, encoded in payloads],
            [encoded.key for _, encoded in payloads],
        )
        await fetch(self._pool, _PUT, columns)

    async def get(self, ids: Sequence[str]) -> dict[str, tuple[Bound, Encoded]]:
        """See Payloads.get."""
        rows = await fetch(self._pool, _GET, (list(ids),))
        return {
            row[1]: (Bound(*row[:4]), Encoded(bytes(row[4]), None if row[5] is None else bytes(row[5]))) for row in rows
        }

    async def forget(self, ids: Sequence[str]) -> int:
        """See Payloads.forget. Rows whose payload is gone by another way lose the mark as well."""
        gone = await fetch(self._pool, _FORGET, (list(ids),))
        await fetch(self._pool, _FORGOTTEN, (list(ids),))
        return len(gone)

    async def purge(self, ids: Sequence[str]) -> None:
        """See Payloads.purge."""
        await self.forget(ids)
        await fetch(self._pool, _PURGE, (list(ids),))
