"""How much of a running reply its asker has received: a table beside the log."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from .reads import fetch

_NOTE = "SELECT minutebook.turn_seen_v1(%s, %s, %s)"
_OF = "SELECT t.seen FROM minutebook.turn_seen t WHERE t.stream_id = %s AND t.turn = %s"


class PostgresTurnSeen:
    """SeenBy of commands/conversations/ports.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def note(self, stream_id: int, turn: int, offset: int) -> None:
        """See SeenBy.note."""
        await fetch(self._pool, _NOTE, (stream_id, turn, offset))

    async def of(self, stream_id: int, turn: int) -> int | None:
        """See SeenBy.of."""
        rows = await fetch(self._pool, _OF, (stream_id, turn))
        return rows[0][0] if rows else None
