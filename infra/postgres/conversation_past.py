"""Looks by key into a conversation's past: what the log says of one person up to a place, and what was newest then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.conversations.past import MAX_CHANGES, NEWEST
from ...commands.conversations.ports import At
from ...domain.conversations.events import (
    CLEARANCE_CLIENT,
    PARTICIPANT_CLIENT,
    ClearanceRecorded,
    ParticipantAdded,
    ParticipantRemoved,
    ReplyRecorded,
    UserRecorded,
)
from ...domain.conversations.identity import Identity, identity_key
from .event_rows import COLUMNS, at_of
from .reads import fetch

# The types as constants: what the partial index events_of_people is for must be seen when the statement is planned.
_PARTICIPANT = f"o.type IN ('{ParticipantAdded.type}', '{ParticipantRemoved.type}')"
_CLEARANCE = f"o.type = '{ClearanceRecorded.type}'"
_OF_PERSON = "minutebook.events o WHERE o.stream_id = %(stream)s AND o.origin_client ="
_UP_TO = "o.seq <= %(through)s ORDER BY o.seq DESC LIMIT %(most)s"
_NEWEST = (
    f"SELECT {COLUMNS} FROM ("  # noqa: S608 - constants only
    f"(SELECT * FROM {_OF_PERSON} %(participant)s AND {_PARTICIPANT} AND {_UP_TO})"
    " UNION ALL "
    f"(SELECT * FROM {_OF_PERSON} %(clearance)s AND {_CLEARANCE} AND {_UP_TO})"
    ") e ORDER BY e.seq"
)
_BETWEEN = "o.seq > %(after)s AND o.seq < %(before)s ORDER BY o.seq LIMIT %(most)s"
_CHANGES = (
    f"SELECT {COLUMNS} FROM ("  # noqa: S608
    f"(SELECT * FROM {_OF_PERSON} %(participant)s AND {_PARTICIPANT} AND {_BETWEEN})"
    f" UNION ALL (SELECT * FROM {_OF_PERSON} %(clearance)s AND {_CLEARANCE} AND {_BETWEEN})"
    ") e ORDER BY e.seq LIMIT %(most)s"
)
_SEQ_AT = "SELECT minutebook.seq_at_v1(%s, %s)"
_RECORD_AT = (
    f"SELECT {COLUMNS} FROM minutebook.events e"  # noqa: S608
    " WHERE e.stream_id = %s AND e.seq <= %s AND e.type = ANY(%s) ORDER BY e.seq DESC LIMIT 1"
)
_RECORD_TYPES = [UserRecorded.type, ReplyRecorded.type]


class PostgresPast:
    """Past of commands/conversations/past.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def newest_of(self, stream_id: int, viewer: Identity, through: int) -> list[At]:
        """See Past.newest_of."""
        parameters = {**_clients(viewer), "stream": stream_id, "through": through, "most": NEWEST}
        return _found(await fetch(self._pool, _NEWEST, parameters))

    async def changes_of(self, stream_id: int, viewer: Identity, after: int, before: int) -> list[At]:
        """See Past.changes_of."""
        place = {"stream": stream_id, "after": after, "before": before, "most": MAX_CHANGES}
        return _found(await fetch(self._pool, _CHANGES, {**_clients(viewer), **place}))

    async def seq_at(self, stream_id: int, moment: datetime) -> int:
        """See Past.seq_at."""
        return (await fetch(self._pool, _SEQ_AT, (stream_id, moment)))[0][0]

    async def record_at(self, stream_id: int, seq: int) -> At | None:
        """See Past.record_at."""
        found = _found(await fetch(self._pool, _RECORD_AT, (stream_id, seq, _RECORD_TYPES)))
        return found[0] if found else None


def _found(rows: Sequence[Sequence[Any]]) -> list[At]:
    return [at_of(row) for row in rows]


def _clients(viewer: Identity) -> dict[str, str]:
    key = identity_key(viewer)
    return {"participant": PARTICIPANT_CLIENT + key, "clearance": CLEARANCE_CLIENT + key}
