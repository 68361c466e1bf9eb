"""What retention asks of linking, in the process of jobs."""

from __future__ import annotations

from msgspec import Struct

from ..commands.channels.ends import EndsForgotten
from ..commands.linking.keeping import forget_ends
from ..infra.database import Database
from ..infra.postgres.pool import make_pool
from ..infra.postgres.sign_ins import PostgresSignIns, PostgresSnapshots
from ..infra.settings import Settings
from .link_ends import ends_of


class Forgotten(Struct, frozen=True):
    """What went. sign_ins: those that were under way for too long, and claims that count no longer."""

    ends: EndsForgotten
    sign_ins: int


async def keep_ends(settings: Settings, database: Database) -> Forgotten:
    """As the app role, on a connection that is there for as long as it takes: this is done once a day."""
    pool = make_pool(
        database.url("app"),
        "app",
        max_size=1,
        statement_timeout_ms=settings.database.statement_timeout_ms,
        name="ends",
    )
    async with pool:
        signed_in = await PostgresSignIns(pool).forget() + await PostgresSnapshots(pool).forget()
        return Forgotten(await forget_ends(ends_of(settings, pool)), signed_in)
