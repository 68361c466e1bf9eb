"""One read on a pooled connection, with its failure in the product's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...domain.errors import MinutebookError
from .errors import translate


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
