"""The statements that projector and rebuild share: reading the log by stream, writing rows, moving checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import sql

from ...projections.ports import LogEvent, Projection, StreamRef
from ...projections.room_list import RoomList
from ...projections.transcript import Transcript

SCHEMA = "minutebook_views"

PROJECTIONS: dict[str, Projection] = {each.name: each for each in (RoomList(), Transcript())}
"""Every read model, by name."""

SHADOW = "_shadow"
"""Suffix of the table, and of the checkpoint's name, of a rebuild under way."""

PAGE_EVENTS = 500
"""Events of one stream in one transaction of the projector."""

EVENT_COLUMNS = (
    "e.seq, to_char(e.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), e.type, e.schema_version,"
    " e.actor_kind, e.actor_id, e.run_id, e.origin_key, e.classes, e.payload::text"
)

READ = (
    f"SELECT w.stream_id, {EVENT_COLUMNS}"  # noqa: S608 - constants only
    " FROM unnest(%s::bigint[], %s::bigint[]) AS w (stream_id, after)"
    " CROSS JOIN LATERAL (SELECT * FROM minutebook.events x WHERE x.stream_id = w.stream_id AND x.seq > w.after"
    " ORDER BY x.seq LIMIT %s) e ORDER BY w.stream_id, e.seq"
)

CLAIM = """
SELECT s.id, s.name, s.tenant, c.seq, s.version
FROM minutebook_views.checkpoints c JOIN minutebook.streams s ON s.id = c.stream_id
WHERE c.projection = %(name)s AND c.stream_id = ANY (%(ids)s::bigint[]) AND s.version > c.seq
  AND s.kind = ANY (%(kinds)s)
  AND NOT EXISTS (SELECT FROM minutebook_views.parked p WHERE p.projection = c.projection
                  AND p.stream_id = c.stream_id AND p.retry_at > clock_timestamp())
ORDER BY c.stream_id FOR UPDATE OF c SKIP LOCKED
"""

BEGIN = """
INSERT INTO minutebook_views.checkpoints (projection, stream_id)
SELECT %(name)s, s.id FROM minutebook.streams s WHERE s.id = ANY (%(ids)s::bigint[]) AND s.kind = ANY (%(kinds)s)
ON CONFLICT DO NOTHING
"""

ADVANCE = """
UPDATE minutebook_views.checkpoints c SET seq = w.seq
FROM unnest(%s::bigint[], %s::bigint[]) AS w (stream_id, seq)
WHERE c.projection = %s AND c.stream_id = w.stream_id
"""

BEHIND = """
SELECT s.id FROM minutebook.streams s
LEFT JOIN minutebook_views.checkpoints c ON c.projection = %(name)s AND c.stream_id = s.id
WHERE s.kind = ANY (%(kinds)s) AND s.version > coalesce(c.seq, 0)
  AND NOT EXISTS (SELECT FROM minutebook_views.parked p WHERE p.projection = %(name)s AND p.stream_id = s.id
                  AND p.retry_at > clock_timestamp())
LIMIT %(limit)s
"""

PARK = """
INSERT INTO minutebook_views.parked AS p (projection, stream_id, seq, reason, retry_at)
VALUES (%(name)s, %(id)s, %(seq)s, %(reason)s, clock_timestamp() + interval '1 minute')
ON CONFLICT (projection, stream_id) DO UPDATE SET seq = EXCLUDED.seq, reason = EXCLUDED.reason,
    attempts = p.attempts + 1,
    retry_at = clock_timestamp() + least(interval '1 hour', interval '1 minute' * 2 ^ least(p.attempts, 10))
"""

UNPARK = "DELETE FROM minutebook_views.parked WHERE projection = %s AND stream_id = ANY (%s::bigint[])"


def table(name: str) -> sql.Identifier:
    """A table of the views' schema."""
    return sql.Identifier(SCHEMA, name)


def upsert(projection: Projection, suffix: str = "") -> sql.Composed:
    """INSERT of one row that overwrites the one with the same key."""
    columns = [sql.Identifier(column) for column in projection.columns]
    key = [sql.Identifier(column) for column in projection.key]
    changed = [sql.Identifier(column) for column in projection.columns if column not in projection.key]
    return sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {}").format(
        table(projection.name + suffix),
        sql.SQL(", ").join(columns),
        sql.SQL(", ").join(sql.Placeholder() for _ in columns),
        sql.SQL(", ").join(key),
        sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(column) for column in changed),
    )


def blank(projection: Projection, suffix: str = "") -> sql.Composed:
    """UPDATE that takes the content of one row; parameters are stream id and seq."""
    return sql.SQL("UPDATE {} SET {} WHERE stream_id = %s AND seq = %s").format(
        table(projection.name + suffix),
        sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(column), sql.Literal(value))
            for column, value in projection.blank_assignments.items()
        ),
    )


def states(projection: Projection, suffix: str = "") -> sql.Composed | None:
    """SELECT of the kept states by stream id, None where the projection keeps none."""
    if projection.state_column is None:
        return None
    return sql.SQL("SELECT stream_id, {}::text FROM {} WHERE stream_id = ANY (%s::bigint[])").format(
        sql.Identifier(projection.state_column), table(projection.name + suffix)
    )


def group_events(rows: Sequence[Any]) -> dict[int, list[LogEvent]]:
    """Rows of READ by stream id."""
    grouped: dict[int, list[LogEvent]] = {}
    for stream_id, *columns in rows:
        grouped.setdefault(stream_id, []).append(LogEvent(*columns))
    return grouped


Claimed = dict[int, tuple[StreamRef, int, int]]
"""By stream id: the stream, its checkpoint, its head."""


def stream_refs(rows: Sequence[Any]) -> Claimed:
    """Rows of CLAIM by stream id: the stream, its checkpoint, its head."""
    return {row[0]: (StreamRef(row[0], row[1], row[2]), row[3], row[4]) for row in rows}
