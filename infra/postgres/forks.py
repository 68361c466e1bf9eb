"""Forks of streams: one call of one SQL function, in a transaction of its own beside the group commit."""

from __future__ import annotations

from typing import Any

import msgspec
import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.ports import EventRow, Fork, Forked, Key
from .errors import translate
from .pool import renew_if_read_only

FORK_TIMEOUT_MS = 120_000
"""Longest that a fork may take in the database, which copies some 10,000 small events, or 40 MB, in a second."""

_SQL = (
    "SELECT outcome, seq, event_id, chain, ts, bytes, status, body, source_chain"
    " FROM minutebook.fork_v1(%s, %s, %s, %s::json, %s, %s, %s::json)"
)


class PostgresForks:
    """Forks of commands/ports.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def fork(self, fork: Fork) -> Forked:
        """See Forks.fork. Holds one connection all the while; the source takes appends meanwhile."""
        parameters = (
            fork.source,
            fork.seq,
            fork.stream,
            _event(fork.event),
            fork.max_events,
            fork.max_bytes,
            None if fork.key is None else key_json(fork.key),
        )
        try:
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute("SELECT set_config('statement_timeout', %s, true)", (str(FORK_TIMEOUT_MS),))
                cursor = await connection.execute(_SQL, parameters)
                rows = await cursor.fetchall()
        except Exception as error:
            await renew_if_read_only(self._pool, error)
            raise translate(error) from error
        return Forked(*rows[0])


def _event(row: EventRow) -> str:
    return msgspec.json.encode(row).decode()


def key_json(key: Key) -> str:
    """A key in the form that the SQL functions take."""
    return msgspec.json.encode(key).decode()
