"""Which messages came in over channels, which proofs are spent, and which conversations go on where."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import psycopg
from msgspec import UNSET
from psycopg_pool import AsyncConnectionPool

from ...commands.channels.inbound_ports import Finished, Known, Seen
from ...domain.channels.messages import Verb
from .reads import fetch

# A deletion counts from its event on, whether or not it is done.
_DELETED = """EXISTS (SELECT FROM minutebook.inbound_messages d
    JOIN minutebook.events o ON o.stream_id = d.stream_id AND o.seq = 1
    WHERE d.deletes = %(message)s::text AND d.tenant = %(tenant)s AND d.channel = %(channel)s
      AND o.payload ->> 'native' = ANY (%(deleters)s::text[]))"""
_LOOK = f"""
SELECT m.id, m.outcome, m.correlation_id, m.conversation_id, m.done_at IS NOT NULL,
    e.payload ->> 'account', e.payload ->> 'native', {_DELETED},
    EXISTS (SELECT FROM minutebook.inbound_signatures s
            WHERE s.tenant = %(tenant)s AND s.channel = %(channel)s AND s.signature = %(signature)s)
FROM (SELECT 1) one LEFT JOIN minutebook.inbound_messages m
    ON m.id = %(message)s AND m.tenant = %(tenant)s AND m.channel = %(channel)s
LEFT JOIN minutebook.events e ON e.stream_id = m.stream_id AND e.seq = 1
"""  # noqa: S608 - constants only
_OVERTAKEN = """
SELECT EXISTS (
    SELECT FROM minutebook.inbound_messages m
    JOIN minutebook.events o ON o.stream_id = m.stream_id AND o.seq = 1
    JOIN minutebook.inbound_messages l ON l.stream_id > m.stream_id AND l.tenant = m.tenant AND l.channel = m.channel
        AND l.outcome = 'accepted' AND l.done_at IS NOT NULL
    JOIN minutebook.events e ON e.stream_id = l.stream_id AND e.seq = 1
    WHERE m.id = %s AND e.payload ->> 'native' = o.payload ->> 'native' AND e.payload ->> 'verb' = ANY (%s::text[]))
"""
# One statement is one transaction: a proof is spent with the effect that it had, or not at all. Who comes second with
# the same proof waits for the first one's row, finds it taken, and must not mark anything.
_FINISH = f"""
WITH spent AS (
    INSERT INTO minutebook.inbound_signatures (tenant, channel, signature)
    SELECT %(tenant)s, %(channel)s, %(signature)s::text WHERE %(signature)s::text IS NOT NULL
    ON CONFLICT ON CONSTRAINT inbound_signatures_pkey DO NOTHING RETURNING true),
is_unspent AS (SELECT %(signature)s::text IS NULL OR EXISTS (SELECT FROM spent) AS yes),
done AS (
    UPDATE minutebook.inbound_messages m SET done_at = clock_timestamp() FROM is_unspent u
    WHERE u.yes AND m.id = %(message)s::text AND m.tenant = %(tenant)s AND m.done_at IS NULL RETURNING true)
SELECT u.yes, EXISTS (SELECT FROM done), {_DELETED} FROM is_unspent u
"""  # noqa: S608 - constants only
_BEGIN = """
INSERT INTO minutebook.channel_sessions AS s (tenant, scope, handle) VALUES (%s, %s, %s)
ON CONFLICT ON CONSTRAINT channel_sessions_pkey DO UPDATE SET used_at = clock_timestamp()
RETURNING s.handle, s.conversation_id
"""
# Where a later message has changed it meanwhile, one that comes again after a crash does not change it back.
_CHANGE = """
INSERT INTO minutebook.channel_sessions AS s (tenant, scope, handle) VALUES (%s, %s, %s)
ON CONFLICT ON CONSTRAINT channel_sessions_pkey DO UPDATE SET used_at = clock_timestamp(), handle = EXCLUDED.handle,
    conversation_id = CASE WHEN s.handle = EXCLUDED.handle THEN s.conversation_id END
WHERE NOT EXISTS (
    SELECT FROM minutebook.inbound_messages l JOIN minutebook.inbound_messages m ON l.stream_id > m.stream_id
    WHERE l.id = substr(s.handle, length('channel.') + 1)
      AND m.id = substr(EXCLUDED.handle, length('channel.') + 1))
RETURNING true
"""
_BEGUN = """
UPDATE minutebook.channel_sessions s SET conversation_id = %s WHERE s.tenant = %s AND s.scope = %s AND s.handle = %s
RETURNING true
"""
_CURRENT = "SELECT s.conversation_id FROM minutebook.channel_sessions s WHERE s.tenant = %s AND s.scope = %s"

Connections = AsyncConnectionPool[psycopg.AsyncConnection[Any]]


class PostgresInboundRows:
    """InboundRows of commands/channels/inbound_ports.py over a pool of the app role."""

    def __init__(self, pool: Connections) -> None:
        self._pool = pool

    async def look(
        self, tenant: str, channel: str, message: str, signature: str | None, deleters: Sequence[str] = ()
    ) -> Seen:
        """See InboundRows.look."""
        about = {"tenant": tenant, "channel": channel, "message": message, "signature": signature}
        (row,) = await fetch(self._pool, _LOOK, {**about, "deleters": list(deleters)})
        id_, outcome, correlation_id, conversation_id, is_done, account, native, is_deleted, is_spent = row
        if id_ is None:
            return Seen(None, is_spent, is_deleted)
        conversation = UNSET if conversation_id is None else conversation_id
        known = Known(
            id_, outcome, correlation_id, account or "", conversation, is_done, native or "", is_deleted=is_deleted
        )
        return Seen(known, is_spent, is_deleted)

    async def is_overtaken(self, message: str, verbs: Collection[Verb]) -> bool:
        """See InboundRows.is_overtaken."""
        return (await fetch(self._pool, _OVERTAKEN, (message, list(verbs))))[0][0]

    async def finish(
        self, tenant: str, channel: str, message: str | None, signature: str | None, deleters: Sequence[str] = ()
    ) -> Finished:
        """See InboundRows.finish."""
        about = {"tenant": tenant, "channel": channel, "message": message, "signature": signature}
        (row,) = await fetch(self._pool, _FINISH, {**about, "deleters": list(deleters)})
        return Finished(*row)


class PostgresSessionRows:
    """SessionRows of commands/channels/inbound_ports.py, likewise."""

    def __init__(self, pool: Connections) -> None:
        self._pool = pool

    async def begin(self, tenant: str, scope: str, handle: str) -> tuple[str, str | None]:
        """See SessionRows.begin."""
        return (await fetch(self._pool, _BEGIN, (tenant, scope, handle)))[0]

    async def change(self, tenant: str, scope: str, handle: str) -> None:
        """See SessionRows.change."""
        await fetch(self._pool, _CHANGE, (tenant, scope, handle))

    async def begun(self, tenant: str, scope: str, handle: str, conversation_id: str) -> None:
        """See SessionRows.begun."""
        await fetch(self._pool, _BEGUN, (conversation_id, tenant, scope, handle))

    async def current(self, tenant: str, scope: str) -> str | None:
        """See SessionRows.current."""
        rows = await fetch(self._pool, _CURRENT, (tenant, scope))
        return rows[0][0] if rows else None
