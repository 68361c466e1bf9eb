"""The ceiling of an asker's tokens by day and agent: reserved atomically, settled once (rules.md, law 26)."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...domain.conversations.identity import Identity
from .identities import columns
from .reads import fetch

NO_CEILING = 0

UNBOUNDED = 2**53
"""Tokens that are left where there is no ceiling."""

_RESERVE = (
    "SELECT minutebook.token_reserve_v1(p_execution => %s, p_actor => %s, p_tenant => %s, p_on_behalf_of => %s,"
    " p_agent => %s, p_tokens => %s, p_ceiling => %s)"
)
_SETTLE = "SELECT minutebook.token_settle_v1(%s, %s)"
_TAKEN = (
    "SELECT u.used + u.reserved FROM minutebook.token_use u WHERE u.actor = %s AND u.tenant = %s"
    " AND u.on_behalf_of = %s AND u.agent = %s AND u.day = (clock_timestamp() AT TIME ZONE 'UTC')::date"
)
_EXPIRE = "SELECT minutebook.tokens_expire_v1()"


class PostgresTokenCeiling:
    """Tokens of commands/conversations/ports.py over a pool of the app role. A ceiling of NO_CEILING is none."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def reserve(self, execution: str, asker: Identity, agent: str, tokens: int, ceiling: int) -> bool:
        """See Tokens.reserve."""
        bound = None if ceiling == NO_CEILING else ceiling
        return (await fetch(self._pool, _RESERVE, (execution, *columns(asker), agent, tokens, bound)))[0][0]

    async def settle(self, execution: str, used: int) -> None:
        """See Tokens.settle."""
        await fetch(self._pool, _SETTLE, (execution, used))

    async def left(self, asker: Identity, agent: str, ceiling: int) -> int:
        """See Tokens.left."""
        if ceiling == NO_CEILING:
            return UNBOUNDED
        rows = await fetch(self._pool, _TAKEN, (*columns(asker), agent))
        return max(0, ceiling - (rows[0][0] if rows else 0))

    async def expire(self) -> None:
        """Days that are more than a week past go. Raises Unavailable."""
        await fetch(self._pool, _EXPIRE, ())
