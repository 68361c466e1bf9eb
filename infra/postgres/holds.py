"""Holds of closed rooms, by one SQL function."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.beside import Held
from ...commands.ports import Key
from ...domain.principals import Principal
from .forks import key_json
from .reads import fetch

_HOLD = "SELECT outcome, seq, chain, status, body FROM minutebook.hold_closed_v1(%s, %s, %s, %s, %s, %s, %s::json)"


class PostgresHolds:
    """Holds of commands/beside.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def hold_closed(
        self, stream: str, *, is_set: bool, hold_id: str, actor: Principal, reason: str, key: Key | None
    ) -> Held:
        """See Holds.hold_closed."""
        words = None if key is None else key_json(key)
        rows = await fetch(self._pool, _HOLD, (stream, is_set, hold_id, actor.kind, actor.id, reason, words))
        return Held(*rows[0])
