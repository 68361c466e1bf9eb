"""What goes by its age beside the log of conversations: replies on their way, days of token ceilings, and memories."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ..commands.jobs import Sweep
from ..infra.database import Database
from ..infra.postgres.deltas_table import PostgresDeltaTable
from ..infra.postgres.memories import PostgresMemories
from ..infra.postgres.pool import make_pool
from ..infra.postgres.token_ceiling import PostgresTokenCeiling
from ..infra.settings import Settings

DELTAS_EVERY_S = 60
TOKENS_EVERY_S = 86_400
MEMORIES_EVERY_S = 86_400


async def conversation_sweeps(
    settings: Settings, database: Database, stack: contextlib.AsyncExitStack
) -> Sequence[Sweep]:
    """Open what they need, to be closed by `stack`. The role of `database` is verified already."""
    pool = make_pool(
        database.url("app"),
        "app",
        max_size=1,
        statement_timeout_ms=settings.database.statement_timeout_ms,
        name="jobs",
    )
    await pool.open(wait=True)
    stack.push_async_callback(pool.close)
    return (
        Sweep("deltas", DELTAS_EVERY_S, PostgresDeltaTable(pool).expire),
        Sweep("tokens", TOKENS_EVERY_S, PostgresTokenCeiling(pool).expire),
        Sweep("memories", MEMORIES_EVERY_S, PostgresMemories(pool, b"").expire),
    )
