"""Linking as one process has it, on a real database as the app role."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

from minutebook.commands.channels.ends import TOKEN_CHANNEL
from minutebook.commands.linking.handling import Linking
from minutebook.domain.channels.link_policy import LinkPolicy
from minutebook.domain.linking.decide import End
from minutebook.domain.principals import SERVER
from minutebook.infra.link_hashes import KeyedLinkHashes
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.ends import PostgresEnds
from minutebook.infra.postgres.link_table import PostgresLinkTable
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.postgres.store import PostgresStore
from ulid_transform import ulid_now


class Office:
    """Linking as one process has it, with a clock that tests move."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.ahead = timedelta()
        self.appender = Appender(pool, notify=False)
        self.table = PostgresLinkTable(pool, self.now)
        self.ends = PostgresEnds(pool)
        self.linking = Linking(
            PostgresStore(pool, self.appender),
            self.table,
            KeyedLinkHashes(b"k" * 32),
            LinkPolicy("allow_all"),
            self.now,
            ulid_now,
            secrets.randbits,
            failing_s=0.0,
        )

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    async def web(self, who: str, tenant: str = "acme") -> End:
        return await self.linking.end_of(tenant, TOKEN_CHANNEL, f"human:{who}", is_person=True)

    async def chat(self, who: str, tenant: str = "acme") -> End:
        return await self.linking.end_of(tenant, "telegram", who)

    async def link(self, who: str, chat: str) -> str:
        """All three steps, begun on a page."""
        begun = await self.linking.begin(await self.web(who), SERVER)
        shown = await self.linking.present(await self.chat(chat), begun.code, SERVER)
        await self.linking.confirm(await self.web(who), shown.link_id, shown.consent_digest, "replies", SERVER)
        return shown.link_id


@contextlib.asynccontextmanager
async def office(database: Any) -> AsyncGenerator[Office]:
    """An office as the app role."""
    async with make_pool(database.url(), "app", max_size=8, statement_timeout_ms=10_000) as pool:
        made = Office(pool)
        made.appender.start()
        try:
            yield made
        finally:
            await made.appender.close()
