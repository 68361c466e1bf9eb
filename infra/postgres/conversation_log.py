"""Reads of conversations: each a look-up by key, or a page from a place, whatever the length of the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.conversations.ports import At, Listed
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
from ...domain.conversations.identity import Identity, identity_key
from .event_rows import COLUMNS, at_of
from .identities import columns
from .reads import fetch

STREAM = "conversation:"
"""What the name of a conversation's stream begins with."""

_NEWEST_OF_PERSON = COLUMNS.replace("e.", "p.")
# The types as constants: what the partial index events_of_people is for must be seen when the statement is planned.
_JOIN_PERSON = (
    " LEFT JOIN LATERAL (SELECT * FROM minutebook.events o WHERE o.stream_id = s.id AND o.origin_client = %s"  # noqa: S608
    f" AND o.type IN ('{ParticipantAdded.type}', '{ParticipantRemoved.type}') ORDER BY o.seq DESC LIMIT 1) p ON true"
)
_FIRST = (
    f"SELECT s.id, s.tenant, {COLUMNS}, {_NEWEST_OF_PERSON} FROM minutebook.streams s"  # noqa: S608 - constants only
    f" JOIN minutebook.events e ON e.stream_id = s.id AND e.seq = 1{_JOIN_PERSON} WHERE s.name = %s"
)
# One look-up a key, by the key's own index: were they one condition, a plan might walk the whole stream for them.
_AT = (
    f"SELECT {COLUMNS} FROM unnest(%s::bigint[]) AS k (seq) CROSS JOIN LATERAL (SELECT * FROM minutebook.events o"  # noqa: S608
    " WHERE o.stream_id = %s AND o.seq = k.seq LIMIT 1) e ORDER BY e.seq"
)
_BY_KEYS = (
    f"SELECT {COLUMNS} FROM unnest(%s::text[]) AS k (key) CROSS JOIN LATERAL (SELECT * FROM minutebook.events o"  # noqa: S608
    " WHERE o.origin_client = %s AND o.origin_key = k.key AND o.stream_id = %s LIMIT 1) e ORDER BY e.seq"
)
_RECORDS = (
    f"SELECT {COLUMNS} FROM minutebook.events e"  # noqa: S608
    " WHERE e.stream_id = %s AND e.seq > %s AND e.type = ANY(%s) ORDER BY e.seq LIMIT %s"
)
_RECORD_TYPES = [UserRecorded.type, ReplyRecorded.type, ParticipantRemoved.type, ConversationClosed.type, NAMING]
_OWN = "minutebook.conversations c WHERE c.actor = %s AND c.tenant = %s AND c.on_behalf_of = %s"
_PART = "minutebook.conversation_participants c WHERE c.actor = %s AND c.tenant = %s"
_PLACE = (
    "SELECT s.id FROM minutebook.streams s WHERE s.name = %s"  # noqa: S608 - constants only
    f" AND (EXISTS (SELECT FROM {_OWN} AND c.stream_id = s.id) OR EXISTS (SELECT FROM {_PART} AND c.stream_id = s.id))"
)
_BEHIND = "AND c.stream_id < %s ORDER BY c.stream_id DESC LIMIT %s"
_LISTED = (
    f"SELECT s.id, s.name, s.sealed, s.last_ts, {COLUMNS}, {_NEWEST_OF_PERSON} FROM ("  # noqa: S608 - as above
    f"(SELECT c.stream_id FROM {_OWN} {_BEHIND}) UNION (SELECT c.stream_id FROM {_PART} {_BEHIND})"
    " ORDER BY stream_id DESC LIMIT %s) c JOIN minutebook.streams s ON s.id = c.stream_id"
    " CROSS JOIN LATERAL (SELECT * FROM minutebook.events o WHERE o.stream_id = s.id AND o.seq = 1 LIMIT 1) e"
    f"{_JOIN_PERSON} ORDER BY s.id DESC"
)

NEWEST = 2**63 - 1
"""Above the id of every stream."""


class PostgresConversationLog:
    """ConversationLog of commands/conversations/ports.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def first(
        self, stream: str, person: Identity | None
    ) -> tuple[int, str, StoredEvent, StoredEvent | None] | None:
        """See ConversationLog.first."""
        rows = await fetch(self._pool, _FIRST, (_client_of(person), stream))
        if not rows:
            return None
        stream_id, tenant, *events = rows[0]
        first, newest = _first_and_newest(events)
        return stream_id, tenant, first.event, newest

    async def at(self, stream_id: int, seqs: Sequence[int]) -> list[At]:
        """See ConversationLog.at."""
        return [at_of(row) for row in await fetch(self._pool, _AT, (sorted(set(seqs)), stream_id))]

    async def by_ords(self, stream_id: int, ords: Sequence[int]) -> list[At]:
        """See ConversationLog.by_ords."""
        keys = [str(ord_) for ord_ in sorted(set(ords))]
        return [at_of(row) for row in await fetch(self._pool, _BY_KEYS, (keys, RECORD_CLIENT, stream_id))]

    async def records(self, stream_id: int, after: int, limit: int) -> list[At]:
        """See ConversationLog.records."""
        return [at_of(row) for row in await fetch(self._pool, _RECORDS, (stream_id, after, _RECORD_TYPES, limit))]

    async def context_of(self, stream_id: int, turn: int) -> At | None:
        """See ConversationLog.context_of."""
        rows = await fetch(self._pool, _BY_KEYS, ([str(turn)], CONTEXT_CLIENT, stream_id))
        return at_of(rows[0]) if rows else None

    async def listed(
        self, owner: Identity, person: Identity | None, limit: int, before: str | None
    ) -> list[Listed] | None:
        """See ConversationLog.listed."""
        place = NEWEST
        own = columns(owner)
        part = (None, None) if person is None else columns(person)[:2]
        if before is not None:
            found = await fetch(self._pool, _PLACE, (f"{STREAM}{before}", *own, *part))
            if not found:
                return None
            place = found[0][0]
        rows = await fetch(self._pool, _LISTED, (*own, place, limit, *part, place, limit, limit, _client_of(person)))
        return [
            Listed(name.removeprefix(STREAM), stream_id, *_first_and_newest(events), is_closed, last_at)
            for stream_id, name, is_closed, last_at, *events in rows
        ]


def _client_of(person: Identity | None) -> str | None:
    """The origin_client of what is said about somebody's part."""
    return None if person is None else f"{PARTICIPANT_CLIENT}{identity_key(person)}"


def _first_and_newest(columns_: Sequence[Any]) -> tuple[At, StoredEvent | None]:
    """Two events beside each other, of which the second may be none."""
    half = len(columns_) // 2
    newest = columns_[half:]
    return at_of(columns_[:half]), None if newest[0] is None else at_of(newest).event
