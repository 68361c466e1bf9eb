"""Turns that are to be erased because their senders deleted the messages on the platform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from msgspec import Struct
from psycopg_pool import AsyncConnectionPool

from ...commands.channels.inbound_ports import Spot
from .conversation_log import STREAM
from .erasure import eraser_session
from .reads import fetch

PAGE = 500
"""Wishes read at once."""

_SPOTS = f"""
SELECT substr(s.name, length('{STREAM}') + 1), c.actor
FROM minutebook.streams o JOIN minutebook.conversations f ON f.stream_id = o.id
JOIN minutebook.conversations c ON c.actor = f.actor AND c.tenant = f.tenant AND c.on_behalf_of = f.on_behalf_of
    AND c.stream_id >= o.id
JOIN minutebook.streams s ON s.id = c.stream_id JOIN minutebook.events e ON e.stream_id = c.stream_id AND e.seq = 1
WHERE o.name = '{STREAM}' || %s AND (c.stream_id = o.id OR e.payload ->> 'handle' = %s) ORDER BY c.stream_id
"""  # noqa: S608 - constants only
_WISH = """
INSERT INTO minutebook.inbound_deletions (id, conversation_id, message_id, tenant, channel)
SELECT %s, c.id, %s, %s, %s FROM unnest(%s::text[]) AS c (id)
ON CONFLICT ON CONSTRAINT inbound_deletions_pkey DO NOTHING RETURNING true
"""
_IS_WISHED = "SELECT EXISTS (SELECT FROM minutebook.inbound_deletions d WHERE d.message_id = %s)"
_PAGE = """
SELECT d.id, d.conversation_id, d.message_id, d.at + make_interval(days => %(days)s) <= clock_timestamp()
FROM minutebook.inbound_deletions d WHERE (d.id, d.conversation_id) > (%(id)s, %(conversation_id)s)
ORDER BY d.id, d.conversation_id LIMIT %(limit)s
"""
_TAKE = "DELETE FROM minutebook.inbound_deletions d WHERE d.id = %s AND d.conversation_id = %s"

Connections = AsyncConnectionPool[psycopg.AsyncConnection[Any]]


class Wish(Struct, frozen=True):
    """The turn of a message that is to be erased. id: of the inbound message, message_id: that of its turn. is_old: the
    message itself is known no more."""

    id: str
    conversation_id: str
    message_id: str
    is_old: bool


class PostgresDeletions:
    """Deletions of commands/channels/inbound_ports.py over a pool of the app role."""

    def __init__(self, pool: Connections) -> None:
        self._pool = pool

    async def spots(self, conversation_id: str, handle: str) -> list[Spot]:
        """See Deletions.spots."""
        return [Spot(*row) for row in await fetch(self._pool, _SPOTS, (conversation_id, handle))]

    async def wish(
        self, tenant: str, channel: str, message: str, message_id: str, conversations: Sequence[str]
    ) -> None:
        """See Deletions.wish."""
        await fetch(self._pool, _WISH, (message, message_id, tenant, channel, list(conversations)))

    async def is_wished(self, message_id: str) -> bool:
        """See Deletions.is_wished."""
        return (await fetch(self._pool, _IS_WISHED, (message_id,)))[0][0]

    async def page(self, after: Wish | None, days: int) -> list[Wish]:
        """The wishes behind one, PAGE of them at most. days: for so long messages are known again."""
        id_, conversation_id = ("", "") if after is None else (after.id, after.conversation_id)
        place = {"id": id_, "conversation_id": conversation_id, "days": days, "limit": PAGE}
        return [Wish(*row) for row in await fetch(self._pool, _PAGE, place)]


async def take_wish(url: str, wish: Wish) -> None:
    """There is nothing more to be erased. `url` is the eraser's. Raises RoleRefused for another role."""
    async with eraser_session(url) as session:
        await session.execute(_TAKE, (wish.id, wish.conversation_id))
