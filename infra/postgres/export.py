"""Exports of the log as JSONL, and `verify`: recomputing the chains of an export, or of the database itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import IO, Any

import psycopg
from msgspec import Struct
from psycopg.rows import tuple_row

from ...domain.errors import Invalid
from ..chain import ZERO_HASH, Break, ChainEvent, ChainVerifier
from ..export_file import Finding, Progress, VerifyReport, verify_file
from ..export_lines import ROOM_PREFIX, Trailer, event_line, restricted_line, trailer_line
from .errors import translate
from .pool import CONNECT_TIMEOUT_S

__all__ = (
    "Finding",
    "Progress",
    "Trailer",
    "VerifyReport",
    "event_line",
    "export_all",
    "export_stream",
    "restricted_line",
    "stream_name",
    "trailer_line",
    "verify_database",
    "verify_file",
)

PAGE = 2000
"""Rows fetched at a time."""

CHUNK_STREAMS = 500
CHUNK_EVENTS = 100_000
"""A snapshot of the database is held for so many streams or events, or for one stream that has more."""

_FIELDS = (
    "e.seq, e.id, e.type, e.schema_version, e.actor_kind, e.actor_id, e.actor_role, e.run_id, e.caused_by, e.origin,"
    " to_char(e.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), e.redactions, e.classes,"
    " e.origin_client, e.origin_key, e.payload::text, e.salt, encode(e.commitment, 'hex'), encode(e.prev_hash, 'hex'),"
    " encode(e.hash, 'hex')"
)
_EVENTS_OF_STREAM = f"SELECT {_FIELDS} FROM minutebook.events e WHERE e.stream_id = %s AND e.seq > %s ORDER BY e.seq"  # noqa: S608 - constants only
_EVENTS_OF_CHUNK = (
    f"SELECT e.stream_id, e.bytes, {_FIELDS} FROM minutebook.events e"  # noqa: S608 - constants only
    " WHERE e.stream_id > %s AND e.stream_id <= %s ORDER BY e.stream_id, e.seq"
)
_HEAD = "s.id, s.name, s.version, encode(s.head_hash, 'hex'), s.bytes, s.sealed"
_ONE_HEAD = f"SELECT {_HEAD} FROM minutebook.streams s WHERE s.name = %s"  # noqa: S608 - constants only
_HEADS = f"SELECT {_HEAD} FROM minutebook.streams s WHERE s.id > %s ORDER BY s.id LIMIT %s"  # noqa: S608 - constants only
_HASH_AT = "SELECT encode(e.hash, 'hex') FROM minutebook.events e WHERE e.stream_id = %s AND e.seq = %s"
_LAST_ID = 2**63 - 1


class _Head(Struct, frozen=True):
    id: int
    name: str
    version: int
    hash: str
    bytes: int
    sealed: bool


def stream_name(room_or_stream: str) -> str:
    """The stream that a person means: a name such as `room:abcd2345` as it is, anything else as a room's id."""
    return room_or_stream if ":" in room_or_stream else ROOM_PREFIX + room_or_stream


def export_stream(url: str, stream: str, out: IO[bytes], after_seq: int = 0, progress: Progress | None = None) -> int:
    """Write the events of one stream behind `after_seq`, and a trailer; returns how many events.

    `stream` is a stream's name or a room's id. Raises Invalid where there is no such stream or it ends before
    `after_seq`, Unavailable where the database cannot be reached.
    """
    with _reading(url) as connection, connection.transaction():
        head = _one_head(connection, stream_name(stream))
        if not 0 <= after_seq <= head.version:
            raise Invalid.at("$.afterSeq", f"the stream ends at {head.version}")
        return _export(connection, head, out, after_seq, _log_id(connection), 0, _ticker(progress, head.version))


def export_all(url: str, out: IO[bytes], progress: Progress | None = None) -> int:
    """Write every stream, one behind the other, as one snapshot of the log saw them; returns how many events.

    The snapshot is held until the last line: a very large log is better exported from a standby.
    """
    with _reading(url) as connection, connection.transaction():
        log_id = _log_id(connection)
        row = connection.execute(
            "SELECT count(*), coalesce(sum(version), 0)::bigint FROM minutebook.streams"
        ).fetchone()
        streams, events = row or (0, 0)
        tick, done = _ticker(progress, events), 0
        for head in _all_heads(connection):
            streams -= 1
            done += _export(connection, head, out, 0, log_id, streams, tick)
        return done


def verify_database(url: str, stream: str | None = None, progress: Progress | None = None) -> VerifyReport:
    """Recompute the chains of one stream (a name or a room's id) or of all, straight from PostgreSQL.

    Also holds each stream's row against its events: version, head hash and bytes, and events that have no stream.
    `url` is best the auditor's; only reads are made. Raises as export_stream does.
    """
    report = VerifyReport()
    with _reading(url) as connection:
        report.log_id = _log_id(connection)
        if stream is not None:
            with connection.transaction():
                head = _one_head(connection, stream_name(stream))
                _verify_chunk(connection, [head], head.id - 1, head.id, report, _ticker(progress, head.version))
            return report
        row = connection.execute("SELECT coalesce(sum(version), 0)::bigint FROM minutebook.streams").fetchone()
        tick, last = _ticker(progress, row[0] if row else 0), 0
        while last < _LAST_ID:
            with connection.transaction():
                heads = _chunk(connection, last)
                end = heads[-1].id if heads else _LAST_ID
                _verify_chunk(connection, heads, last, end, report, tick)
            last = end
    return report


def _verify_chunk(
    connection: psycopg.Connection[tuple[Any, ...]],
    heads: list[_Head],
    after: int,
    through: int,
    report: VerifyReport,
    tick: Callable[[int], None],
) -> None:
    """Streams with `after < id <= through`, in one snapshot, so that rows and events belong together."""
    known = {head.id: head for head in heads}
    with connection.cursor("minutebook_verify") as cursor:
        cursor.itersize = PAGE
        cursor.execute(_EVENTS_OF_CHUNK, (after, through))
        for stream_id, rows in itertools.groupby(cursor, key=lambda row: row[0]):
            head = known.pop(stream_id, None)
            if head is None:
                report.events += sum(1 for _ in rows)
                report.add(f"There are events of a stream (id {stream_id}) that does not exist.")
                continue
            _verify_rows(head, rows, report, tick)
    for head in known.values():
        _verify_rows(head, iter(()), report, tick)


def _verify_rows(
    head: _Head, rows: Iterator[tuple[Any, ...]], report: VerifyReport, tick: Callable[[int], None]
) -> None:
    verifier = ChainVerifier(head.name)
    add, events, size, lied = verifier.add, 0, 0, None
    for row in rows:
        event = ChainEvent(*row[2:])
        events += 1
        size += row[1]
        add(event)
        if lied is None and event.payload_text is not None and len(event.payload_text.encode()) != row[1]:
            lied = event.seq
        if events % PAGE == 0:
            tick(PAGE)
    tick(events % PAGE)
    broken = verifier.finish(head.version, head.hash)
    if broken is None and lied is not None:
        broken = Break(lied, f"The size of the payload of event {lied} is not what its row says.")
    if broken is None and size != head.bytes:
        broken = Break(head.version, "The sizes of the events do not add up to the bytes of the stream.")
    report.events += events
    report.count(verifier)
    if broken is not None:
        report.add(broken.what, head.name, broken.seq)


def _export(
    connection: psycopg.Connection[tuple[Any, ...]],
    head: _Head,
    out: IO[bytes],
    after_seq: int,
    log_id: str,
    remaining: int,
    tick: Callable[[int], None],
) -> int:
    row = connection.execute(_HASH_AT, (head.id, after_seq)).fetchone() if after_seq else None
    count, through, end = 0, after_seq, row[0] if row else ZERO_HASH
    with connection.cursor("minutebook_export") as cursor:
        cursor.itersize = PAGE
        cursor.execute(_EVENTS_OF_STREAM, (head.id, after_seq))
        for row in cursor:
            event = ChainEvent(*row)
            out.write(event_line(head.name, event))
            count, through, end = count + 1, event.seq, event.hash
            if count % PAGE == 0:
                tick(PAGE)
    tick(count % PAGE)
    out.write(
        trailer_line(Trailer(True, head.name, log_id, count, after_seq + 1, through, end, head.sealed, remaining))
    )
    return count


@contextmanager
def _reading(url: str) -> Generator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection whose every transaction is one read-only snapshot."""
    try:
        with psycopg.connect(
            url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, row_factory=tuple_row
        ) as connection:
            connection.execute("SET search_path = pg_catalog, pg_temp")
            connection.execute("SET client_encoding = 'UTF8'")
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            yield connection
    except psycopg.errors.InsufficientPrivilege as error:
        raise Invalid("This database role may not read the log; connect as minutebook_auditor.") from error
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
        raise Invalid("This database holds no log; is it the right one, and was `minutebook migrate` run?") from error
    except psycopg.Error as error:
        raise translate(error) from error


def _log_id(connection: psycopg.Connection[tuple[Any, ...]]) -> str:
    row = connection.execute("SELECT l.log_id FROM minutebook.log l").fetchone()
    if row is None:
        raise Invalid("This database has lost the row that says which log it is; restore it from a backup.")
    return row[0]


def _one_head(connection: psycopg.Connection[tuple[Any, ...]], name: str) -> _Head:
    row = connection.execute(_ONE_HEAD, (name,)).fetchone()
    if row is None:
        raise Invalid.at("$.stream", "there is no such stream in this log")
    return _Head(*row)


def _all_heads(connection: psycopg.Connection[tuple[Any, ...]]) -> Iterator[_Head]:
    last = 0
    while rows := connection.execute(_HEADS, (last, CHUNK_STREAMS)).fetchall():
        yield from (_Head(*row) for row in rows)
        last = rows[-1][0]


def _chunk(connection: psycopg.Connection[tuple[Any, ...]], after: int) -> list[_Head]:
    heads = [_Head(*row) for row in connection.execute(_HEADS, (after, CHUNK_STREAMS))]
    events = itertools.accumulate(head.version for head in heads)
    fitting = sum(1 for total in events if total <= CHUNK_EVENTS)
    return heads[: max(1, fitting)]


def _ticker(progress: Progress | None, total: int) -> Callable[[int], None]:
    done = 0

    def tick(step: int) -> None:
        nonlocal done
        done += step
        if progress is not None:
            progress(done, max(done, total))

    return tick
