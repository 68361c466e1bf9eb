"""Presence: when people were last in a room. A table beside the log, written now and then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.beside import LastSeen, Mark
from .reads import fetch

_WRITE = """
INSERT INTO minutebook.presence AS p (stream_id, principal, seen_at, acted_at)
SELECT s.id, m.principal, m.seen_at, m.acted_at
FROM unnest(%s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[]) AS m (stream, principal, seen_at, acted_at)
JOIN minutebook.streams s ON s.name = m.stream
ORDER BY s.id, m.principal
ON CONFLICT (stream_id, principal) DO UPDATE
    SET seen_at = greatest(p.seen_at, EXCLUDED.seen_at), acted_at = greatest(p.acted_at, EXCLUDED.acted_at)
RETURNING p.stream_id
"""
_READ = (
    "SELECT p.principal, p.seen_at, p.acted_at FROM minutebook.presence p"
    " JOIN minutebook.streams s ON s.id = p.stream_id WHERE s.name = %s"
)


class PostgresPresence:
    """Presence of commands/beside.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def write(self, marks: Sequence[Mark]) -> None:
        """See Presence.write."""
        columns = (
            [f"room:{mark.room_id}" for mark in marks],
            [mark.principal for mark in marks],
            [mark.seen_at for mark in marks],
            [mark.acted_at for mark in marks],
        )
        await fetch(self._pool, _WRITE, columns)

    async def read(self, room_id: str) -> Mapping[str, LastSeen]:
        """See Presence.read."""
        rows = await fetch(self._pool, _READ, (f"room:{room_id}",))
        return {principal: LastSeen(seen_at, acted_at) for principal, seen_at, acted_at in rows}
