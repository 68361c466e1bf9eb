"""What retention asks of linking, in the process of jobs."""

from __future__ import annotations

import contextlib

from msgspec import Struct

from ..commands.channels.ends import EndsForgotten
from ..commands.linking.keeping import forget_ends
from ..infra.database import Database
from ..infra.postgres.sign_ins import PostgresSignIns, PostgresSnapshots
from ..infra.settings import Settings
from .app_pools import app_pool
from .link_ends import ends_of


class Forgotten(Struct, frozen=True):
    """What went. sign_ins: those that were under way for too long, and claims that count no longer."""

    ends: EndsForgotten
    sign_ins: int


async def keep_ends(settings: Settings, database: Database) -> Forgotten:
    """As the app role, on a connection that is there for as long as it takes: this is done once a day."""
    async with contextlib.AsyncExitStack() as stack:
        pool = await app_pool(settings, database, stack, "ends", 1)
        signed_in = await PostgresSignIns(pool).forget() + await PostgresSnapshots(pool).forget()
        return Forgotten(await forget_ends(ends_of(settings, pool)), signed_in)
