"""Queries over the read models, as the app role."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import psycopg
from psycopg_pool import AsyncConnectionPool

from .reads import fetch

_ROOM = "SELECT stream_id, room_id, tenant, last_seq, last_ts, sealed, state::text FROM minutebook_views.room_list"
_LIST = (
    f"{_ROOM} WHERE tenant = %(tenant)s AND room_id > %(after)s"
    " AND (%(person)s::text IS NULL OR people @> ARRAY[%(person)s::text]) ORDER BY room_id LIMIT %(limit)s"
)
_TRANSCRIPT = (
    "SELECT seq, to_char(ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), type, actor, run_id, classes,"
    " heading, body FROM minutebook_views.transcript WHERE stream_id = %s AND seq > %s ORDER BY seq LIMIT %s"
)


class RoomRow(msgspec.Struct, frozen=True):
    """A row of room_list; state is the folded room as JSON text."""

    stream_id: int
    room_id: str
    tenant: str
    last_seq: int
    last_ts: datetime
    sealed: bool
    state: str


class TranscriptRow(msgspec.Struct, frozen=True):
    """A row of the transcript, not filtered yet."""

    seq: int
    ts: str
    type: str
    actor: str
    run_id: str | None
    classes: list[str]
    heading: str
    body: str


class ViewReader:
    """Every method raises Unavailable where the database cannot be reached in time."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def room(self, stream_id: int) -> RoomRow | None:
        """The directory's row, None where the projector has not come to the room yet."""
        rows = await fetch(self._pool, f"{_ROOM} WHERE stream_id = %s", (stream_id,))
        return RoomRow(*rows[0]) if rows else None

    async def rooms(self, tenant: str, after: str, limit: int, person: str | None) -> list[RoomRow]:
        """A page by room id; of one person's rooms where `person` is given."""
        return [
            RoomRow(*row)
            for row in await fetch(
                self._pool, _LIST, {"tenant": tenant, "after": after, "limit": limit, "person": person}
            )
        ]

    async def transcript(self, stream_id: int, after: int, limit: int) -> list[TranscriptRow]:
        """A page of lines, ascending."""
        return [TranscriptRow(*row) for row in await fetch(self._pool, _TRANSCRIPT, (stream_id, after, limit))]

    async def checkpoint(self, projection: str, stream_id: int) -> int:
        """How far a projection has folded a stream."""
        rows = await fetch(
            self._pool,
            "SELECT seq FROM minutebook_views.checkpoints WHERE projection = %s AND stream_id = %s",
            (projection, stream_id),
        )
        return rows[0][0] if rows else 0
