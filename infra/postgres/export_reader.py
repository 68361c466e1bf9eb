"""Pages of a stream with everything that its hashes cover, for exports over HTTP, as the app role."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...domain.errors import Unavailable
from ..chain import ZERO_HASH, ChainEvent
from .reads import fetch

_PAGE = (
    "SELECT e.seq, e.id, e.type, e.schema_version, e.actor_kind, e.actor_id, e.actor_role, e.run_id, e.caused_by,"
    " e.origin, to_char(e.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), e.redactions, e.classes,"
    " e.origin_client, e.origin_key, e.payload::text, e.salt, encode(e.commitment, 'hex'),"
    " encode(e.prev_hash, 'hex'), encode(e.hash, 'hex')"
    " FROM minutebook.events e WHERE e.stream_id = %s AND e.seq > %s AND e.seq <= %s ORDER BY e.seq LIMIT %s"
)
_HASH = "SELECT encode(e.hash, 'hex') FROM minutebook.events e WHERE e.stream_id = %s AND e.seq = %s"


class ExportReader:
    """Holds a connection for one page at a time. Raises Unavailable where the database cannot be reached in time."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def hash_at(self, stream_id: int, seq: int) -> str:
        """The chain's hash at `seq` in hex; of nothing before the first event."""
        if seq == 0:
            return ZERO_HASH
        rows = await fetch(self._pool, _HASH, (stream_id, seq))
        if not rows:
            raise Unavailable("The log of this stream changed while it was read; try again.")
        return rows[0][0]

    async def page(self, stream_id: int, after: int, through: int, limit: int) -> list[ChainEvent]:
        """At most `limit` events with `after < seq <= through`, ascending."""
        return [ChainEvent(*row) for row in await fetch(self._pool, _PAGE, (stream_id, after, through, limit))]
