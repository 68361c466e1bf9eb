"""Conversations that wait for a runner: a table that the log's own transactions write."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.conversations.ports import LEASE_TTL_S, RUNNER_LEASE
from .reads import fetch

CHANNEL = "minutebook_turns"
"""Where a process that ends calls the others to the work that it leaves; it does not say which."""

# In any order, so that one that fails again and again holds back no other.
_DUE = """
SELECT w.stream_id, s.name
FROM minutebook.turn_work w
JOIN minutebook.streams s ON s.id = w.stream_id
LEFT JOIN minutebook.leases l ON l.stream_id = w.stream_id AND l.purpose = %s
WHERE l.stream_id IS NULL OR l.seen_at + make_interval(secs => %s) <= clock_timestamp()
ORDER BY random() LIMIT %s
"""
_DONE = "SELECT minutebook.turn_work_done_v1(%s, %s)"
_LEAVE = "SELECT pg_notify(%s, '*')"


class PostgresTurnWork:
    """Work of commands/conversations/ports.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def due(self, limit: int) -> list[tuple[int, str]]:
        """See Work.due."""
        return await fetch(self._pool, _DUE, (RUNNER_LEASE, LEASE_TTL_S, limit))

    async def done(self, stream_id: int, through_seq: int) -> None:
        """See Work.done."""
        await fetch(self._pool, _DONE, (stream_id, through_seq))

    async def leave(self) -> None:
        """See Work.leave."""
        await fetch(self._pool, _LEAVE, (CHANNEL,))
