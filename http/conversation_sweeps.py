"""What goes by its age beside the log of conversations: replies on their way, days of token ceilings, and memories."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ..commands.jobs import Sweep
from ..infra.database import Database
from ..infra.postgres.deltas_table import PostgresDeltaTable
from ..infra.postgres.memories import PostgresMemories
from ..infra.postgres.token_ceiling import PostgresTokenCeiling
from ..infra.settings import Settings
from .app_pools import app_pool

DELTAS_EVERY_S = 60
TOKENS_EVERY_S = 86_400
MEMORIES_EVERY_S = 86_400


async def conversation_sweeps(
    settings: Settings, database: Database, stack: contextlib.AsyncExitStack
) -> Sequence[Sweep]:
    """Open what they need, to be closed by `stack`. The role of `database` is verified already."""
    pool = await app_pool(settings, database, stack, "jobs", 1)
    return (
        Sweep("deltas", DELTAS_EVERY_S, PostgresDeltaTable(pool).expire),
        Sweep("tokens", TOKENS_EVERY_S, PostgresTokenCeiling(pool).expire),
        Sweep("memories", MEMORIES_EVERY_S, PostgresMemories(pool, b"").expire),
    )
