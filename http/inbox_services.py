"""The inbox of this server, for who sends to it and for who reads it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from ulid_transform import ulid_now

from ..commands.deliveries.noting import Notes
from ..commands.ports import no_redaction
from ..infra.channels.setup import payload_codec
from ..infra.postgres.inbox import PostgresInbox
from ..infra.postgres.pool import Pool
from ..infra.postgres.store import PostgresStore
from ..infra.settings import Settings
from .bounds import now
from .conversation_services import ConversationServices
from .inbox import InboxDesk
from .inbox_hub import InboxHub


def inbox_rows(settings: Settings, pool: Pool) -> PostgresInbox:
    """Whatever its channels are called. What comes to it was redacted before."""
    return PostgresInbox(pool, payload_codec(settings, no_redaction), settings.delivery.inbox_ttl_s)


@contextlib.asynccontextmanager
async def inbox_of(
    settings: Settings, pool: Pool, store: PostgresStore, talks: ConversationServices
) -> AsyncGenerator[InboxDesk]:
    """As its recipients get it, followed for as long as the block runs."""
    rows = inbox_rows(settings, pool)
    hub = InboxHub(rows.lasts)
    hub.start()
    try:
        yield InboxDesk(rows, Notes(store, now, ulid_now), talks, hub)
    finally:
        await hub.close()
