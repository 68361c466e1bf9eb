"""The log as the server uses it: reads, snapshots, stored answers and leases, beside the appender."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from msgspec import UNSET, Raw, Struct
from psycopg_pool import AsyncConnectionPool

from ...commands.ports import Append, Head, Outcome, Snapshot, StoredAnswer, StoredEvent
from ...domain.envelope import Actor, Envelope
from .appender import Appender
from .errors import translate
from .reads import PAYLOAD_LEFT, fetch

ERASED = b'{"erased": true}'
"""What stands for a payload that was erased."""

_TS = "to_char(e.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
_HEAD = "s.id, s.tenant, s.version, s.bytes, s.sealed, encode(s.head_hash, 'hex'), s.held, s.last_ts"
_LOAD = (
    f"SELECT {_HEAD}, n.seq, n.schema, n.state::text FROM minutebook.streams s"  # noqa: S608 - constants only
    " LEFT JOIN minutebook.snapshots n ON n.stream_id = s.id AND n.schema = %s AND n.seq <= s.version"
    " WHERE s.name = %s"
)
_FOLDED = (
    "SELECT e.seq, e.type, e.schema_version, e.actor_kind, e.actor_id, e.run_id, e.origin_key,"  # noqa: S608
    f" {PAYLOAD_LEFT}, e.classes FROM minutebook.events e"
)
_FOLD = f"{_FOLDED} WHERE e.stream_id = %s AND e.seq > %s ORDER BY e.seq LIMIT %s"
_BACK = f"{_FOLDED} WHERE e.stream_id = %s AND e.type = %s AND e.seq >= %s AND e.seq < %s ORDER BY e.seq DESC LIMIT %s"
_ENTRY = (
    f"SELECT e.seq, e.id, e.type, e.schema_version, e.actor_kind, e.actor_id, e.actor_role, e.run_id, e.caused_by,"  # noqa: S608
    f" e.origin, {_TS}, e.redactions, e.classes, e.payload::text, e.bytes, e.origin_key FROM minutebook.events e"
)
_ENTRIES = f"{_ENTRY} WHERE e.stream_id = %s AND e.seq > %s AND e.seq < %s ORDER BY e.seq LIMIT %s"
_ENTRIES_AT = f"{_ENTRY} WHERE e.stream_id = %s AND e.seq = ANY(%s::bigint[]) ORDER BY e.seq"
SAVE_SNAPSHOT = (
    "INSERT INTO minutebook.snapshots AS n (stream_id, seq, schema, state) VALUES (%s, %s, %s, %s::jsonb)"
    " ON CONFLICT (stream_id) DO UPDATE SET seq = EXCLUDED.seq, schema = EXCLUDED.schema, state = EXCLUDED.state"
    # A snapshot that an erasure took away is replaced only by one that knows of it (functions/28_erasure.sql).
    " WHERE n.seq < EXCLUDED.seq OR n.schema NOT IN (EXCLUDED.schema, 'erased')"
)
"""Keeps a snapshot: stream, seq, schema, state."""

_ANSWER = (
    "SELECT encode(k.fingerprint, 'hex'), k.status, k.body FROM minutebook.idempotency k"
    " WHERE k.tenant = %s AND k.caller = %s AND k.operation = %s AND k.scope = %s AND k.key = %s"
)

FAR = 2**62
"""Beyond every seq."""


class Entry(Struct, frozen=True):
    """One entry of a stream as reads hand it on: the envelope, its classes, and what a fold needs beside them."""

    envelope: Envelope
    classes: frozenset[str]
    schema_version: int
    bytes: int
    origin_key: str | None


class PostgresStore:
    """EventStore and Leases of commands/ports.py over one pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]], appender: Appender) -> None:
        self._pool = pool
        self._appender = appender

    async def append(self, items: Sequence[Append]) -> list[Outcome]:
        """See EventStore.append."""
        return await self._appender.append(items)

    async def log_id(self) -> str:
        """Which log this is; another one after a restore."""
        return (await fetch(self._pool, "SELECT l.log_id FROM minutebook.log l", ()))[0][0]

    async def head(self, stream: str) -> Head | None:
        """See EventStore.head."""
        rows = await fetch(self._pool, f"SELECT {_HEAD} FROM minutebook.streams s WHERE s.name = %s", (stream,))  # noqa: S608
        return Head(*rows[0]) if rows else None

    async def versions(self, stream_ids: Sequence[int]) -> dict[int, int]:
        """The heads of many streams by id; one look-up by primary key each."""
        rows = await fetch(
            self._pool,
            "SELECT s.id, s.version FROM minutebook.streams s WHERE s.id = ANY(%s::bigint[])",
            (list(stream_ids),),
        )
        return dict(rows)

    async def load(self, stream: str, schema: str) -> tuple[Head, Snapshot | None] | None:
        """See EventStore.load."""
        rows = await fetch(self._pool, _LOAD, (schema, stream))
        if not rows:
            return None
        *head, seq, kept_schema, state = rows[0]
        return Head(*head), None if seq is None else Snapshot(seq, kept_schema, state)

    async def read_for_fold(self, stream_id: int, after: int, limit: int) -> list[StoredEvent]:
        """See EventStore.read_for_fold."""
        rows = await fetch(self._pool, _FOLD, (stream_id, after, limit))
        return [StoredEvent(*row) for row in rows]

    async def read_back(self, stream_id: int, type_: str, start: int, before: int, limit: int) -> list[StoredEvent]:
        """See EventStore.read_back."""
        rows = await fetch(self._pool, _BACK, (stream_id, type_, start, before, limit))
        return [StoredEvent(*row) for row in rows]

    async def read_entries(
        self,
        stream_id: int,
        room_id: str,
        after: int,
        limit: int,
        before: int = FAR,
    ) -> list[Entry]:
        """Entries with `after < seq < before`, ascending, at most `limit`."""
        rows = await fetch(self._pool, _ENTRIES, (stream_id, after, before, limit))
        return [_entry(room_id, row) for row in rows]

    async def entries_at(self, stream_id: int, room_id: str, seqs: Sequence[int]) -> list[Entry]:
        """The entries with those seqs, ascending; one look-up by primary key each."""
        rows = await fetch(self._pool, _ENTRIES_AT, (stream_id, list(seqs)))
        return [_entry(room_id, row) for row in rows]

    async def save_snapshot(self, stream_id: int, snapshot: Snapshot) -> None:
        """See EventStore.save_snapshot."""
        try:
            async with self._pool.connection() as connection:
                await connection.execute(
                    SAVE_SNAPSHOT, (stream_id, snapshot.seq, snapshot.schema, snapshot.state), prepare=True
                )
        except Exception as error:
            raise translate(error) from error

    async def find_answer(self, place: tuple[str, str, str, str, str]) -> StoredAnswer | None:
        """See EventStore.find_answer."""
        rows = await fetch(self._pool, _ANSWER, place)
        return StoredAnswer(*rows[0]) if rows else None

    async def take(self, stream: str, purpose: str, holder: str, ttl_s: int) -> tuple[int, str]:
        """See Leases.take."""
        sql = "SELECT epoch, holder FROM minutebook.lease_take_v1(%s, %s, %s, %s)"
        row = (await fetch(self._pool, sql, (stream, purpose, holder, ttl_s)))[0]
        return row[0], row[1]

    async def lease_epoch(self, stream: str, purpose: str, holder: str) -> int | None:
        """The epoch of the lease that `holder` has, None where it has none."""
        rows = await fetch(
            self._pool,
            "SELECT l.epoch FROM minutebook.streams s JOIN minutebook.leases l ON l.stream_id = s.id"
            " WHERE s.name = %s AND l.purpose = %s AND l.holder = %s",
            (stream, purpose, holder),
        )
        return rows[0][0] if rows else None

    async def room_of_run(self, run_id: str) -> str | None:
        """The id of the room that a run is registered in."""
        rows = await fetch(
            self._pool,
            "SELECT s.name FROM minutebook.runs r JOIN minutebook.streams s ON s.id = r.stream_id WHERE r.run_id = %s",
            (run_id,),
        )
        return rows[0][0].partition(":")[2] if rows else None

    async def leases(self, stream_ids: Sequence[int], purpose: str) -> dict[int, tuple[str, int]]:
        """Holder and epoch of the leases of many streams; none for a stream that has no such lease."""
        rows = await fetch(
            self._pool,
            "SELECT l.stream_id, l.holder, l.epoch FROM minutebook.leases l"
            " WHERE l.stream_id = ANY(%s::bigint[]) AND l.purpose = %s",
            (list(stream_ids), purpose),
        )
        return {stream_id: (holder, epoch) for stream_id, holder, epoch in rows}

    async def drop(self, stream: str, purpose: str, holder: str, epoch: int) -> None:
        """See Leases.drop."""
        await fetch(self._pool, "SELECT minutebook.lease_drop_v1(%s, %s, %s, %s)", (stream, purpose, holder, epoch))


def _entry(room_id: str, row: Any) -> Entry:
    (
        seq,
        id_,
        type_,
        version,
        kind,
        actor_id,
        role,
        run_id,
        caused_by,
        origin,
        ts,
        redactions,
        classes,
        payload,
        size,
        key,
    ) = row
    envelope = Envelope(
        id_,
        seq,
        room_id,
        Actor(kind, actor_id, UNSET if role is None else role),
        type_,
        origin,
        ts,
        redactions,
        Raw(ERASED if payload is None else payload.encode()),
        run_id=UNSET if run_id is None else run_id,
        caused_by=UNSET if caused_by is None else caused_by,
    )
    return Entry(envelope, frozenset(classes), version, size, key)
