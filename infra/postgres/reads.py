"""One read on a pooled connection, with its failure in the product's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...domain.errors import MinutebookError
from .errors import translate

PAYLOAD_LEFT = (
    "coalesce(e.payload::text, (SELECT n.payload ->> 'left' FROM minutebook.events n WHERE n.origin_client = 'erased'"
    " AND n.origin_key = e.seq::text AND n.stream_id = e.stream_id AND n.type = 'state_changed'"
    " AND n.origin = 'broker'), '{\"erased\": true}')"
)
"""The payload of an event `e` for a fold; of an erased one what stays of it (functions/39_conversation_erasure.sql)."""


async def fetch(
    pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
    query: str,
    parameters: Sequence[Any] | Mapping[str, Any],
) -> list[Any]:
    """Every row of a prepared statement; the connection is back in the pool afterwards.

    Raises what `translate` makes of a failure: Unavailable where the database cannot be reached in time.
    """
    try:
        async with pool.connection() as connection:
            cursor = await connection.execute(query, parameters, prepare=True)  # pyright: ignore[reportArgumentType]
            return await cursor.fetchall()
    except MinutebookError:
        raise
    except Exception as error:
        raise translate(error) from error
