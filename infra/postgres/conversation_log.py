"""Reads of conversations: each a look-up by key, or a page from a place, whatever the length of the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.conversations.ports import At, Owned
from ...commands.ports import StoredEvent
from ...domain.conversations.erasing import NAMING
from ...domain.conversations.events import (
    CONTEXT_CLIENT,
    PARTICIPANT_CLIENT,
    RECORD_CLIENT,
    ConversationClosed,
    ParticipantAdded,
    ParticipantRemoved,
    ReplyRecorded,
    UserRecorded,
)
from ...domain.conversations.identity import Identity
from .identities import columns
from .reads import PAYLOAD_LEFT, fetch

STREAM = "conversation:"
"""What the name of a conversation's stream begins with."""

_EVENT = (
    "e.seq, e.type, e.schema_version, e.actor_kind, e.actor_id, e.run_id, e.origin_key,"
    f" {PAYLOAD_LEFT}, e.classes, e.ts"
)
_NEWEST_OF_PERSON = _EVENT.replace("e.", "p.")
# The types as constants: what the partial index events_of_people is for must be seen when the statement is planned.
_FIRST = (
    f"SELECT s.id, s.tenant, {_EVENT}, {_NEWEST_OF_PERSON} FROM minutebook.streams s"  # noqa: S608 - constants only
    " JOIN minutebook.events e ON e.stream_id = s.id AND e.seq = 1"
    " LEFT JOIN LATERAL (SELECT * FROM minutebook.events o WHERE o.stream_id = s.id AND o.origin_client = %s"
    f" AND o.type IN ('{ParticipantAdded.type}', '{ParticipantRemoved.type}') ORDER BY o.seq DESC LIMIT 1) p ON true"
    " WHERE s.name = %s"
)
# One look-up a key, by the key's own index: were they one condition, a plan might walk the whole stream for them.
_AT = (
    f"SELECT {_EVENT} FROM unnest(%s::bigint[]) AS k (seq) CROSS JOIN LATERAL (SELECT * FROM minutebook.events o"  # noqa: S608
    " WHERE o.stream_id = %s AND o.seq = k.seq LIMIT 1) e ORDER BY e.seq"
)
_BY_KEYS = (
    f"SELECT {_EVENT} FROM unnest(%s::text[]) AS k (key) CROSS JOIN LATERAL (SELECT * FROM minutebook.events o"  # noqa: S608
    " WHERE o.origin_client = %s AND o.origin_key = k.key AND o.stream_id = %s LIMIT 1) e ORDER BY e.seq"
)
_RECORDS = (
    f"SELECT {_EVENT} FROM minutebook.events e"  # noqa: S608
    " WHERE e.stream_id = %s AND e.seq > %s AND e.type = ANY(%s) ORDER BY e.seq LIMIT %s"
)
_RECORD_TYPES = [UserRecorded.type, ReplyRecorded.type, ParticipantRemoved.type, ConversationClosed.type, NAMING]
_OWNER = "c.actor = %s AND c.tenant = %s AND c.on_behalf_of = %s"
_PLACE = (
    "SELECT c.stream_id FROM minutebook.streams s JOIN minutebook.conversations c ON c.stream_id = s.id"  # noqa: S608
    f" WHERE s.name = %s AND {_OWNER}"
)
_OWNED = (
    f"SELECT s.id, s.name, s.sealed, s.last_ts, {_EVENT} FROM (SELECT c.stream_id FROM minutebook.conversations c"  # noqa: S608
    f" WHERE {_OWNER} AND c.stream_id < %s ORDER BY c.stream_id DESC LIMIT %s) c"
    " JOIN minutebook.streams s ON s.id = c.stream_id"
    " CROSS JOIN LATERAL (SELECT * FROM minutebook.events o WHERE o.stream_id = s.id AND o.seq = 1 LIMIT 1) e"
    " ORDER BY s.id DESC"
)

NEWEST = 2**63 - 1
"""Above the id of every stream."""


class PostgresConversationLog:
    """ConversationLog of commands/conversations/ports.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def first(self, stream: str, person: str | None) -> tuple[int, str, StoredEvent, StoredEvent | None] | None:
        """See ConversationLog.first."""
        client = None if person is None else f"{PARTICIPANT_CLIENT}{person}"
        rows = await fetch(self._pool, _FIRST, (client, stream))
        if not rows:
            return None
        stream_id, tenant, *events = rows[0]
        newest = events[len(events) // 2 :]
        return stream_id, tenant, _at(events[: len(newest)]).event, None if newest[0] is None else _at(newest).event

    async def at(self, stream_id: int, seqs: Sequence[int]) -> list[At]:
        """See ConversationLog.at."""
        return [_at(row) for row in await fetch(self._pool, _AT, (sorted(set(seqs)), stream_id))]

    async def by_ords(self, stream_id: int, ords: Sequence[int]) -> list[At]:
        """See ConversationLog.by_ords."""
        keys = [str(ord_) for ord_ in sorted(set(ords))]
        return [_at(row) for row in await fetch(self._pool, _BY_KEYS, (keys, RECORD_CLIENT, stream_id))]

    async def records(self, stream_id: int, after: int, limit: int) -> list[At]:
        """See ConversationLog.records."""
        return [_at(row) for row in await fetch(self._pool, _RECORDS, (stream_id, after, _RECORD_TYPES, limit))]

    async def context_of(self, stream_id: int, turn: int) -> At | None:
        """See ConversationLog.context_of."""
        rows = await fetch(self._pool, _BY_KEYS, ([str(turn)], CONTEXT_CLIENT, stream_id))
        return _at(rows[0]) if rows else None

    async def owned(self, owner: Identity, limit: int, before: str | None) -> list[Owned] | None:
        """See ConversationLog.owned. What their first events say is for the caller to verify."""
        place = NEWEST
        if before is not None:
            found = await fetch(self._pool, _PLACE, (f"{STREAM}{before}", *columns(owner)))
            if not found:
                return None
            place = found[0][0]
        rows = await fetch(self._pool, _OWNED, (*columns(owner), place, limit))
        return [
            Owned(name.removeprefix(STREAM), stream_id, _at(event), is_closed, last_at)
            for stream_id, name, is_closed, last_at, *event in rows
        ]


def _at(row: Sequence[Any]) -> At:
    *event, ts = row
    return At(StoredEvent(*event), ts)
