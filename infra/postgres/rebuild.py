"""Rebuild of a read model from the log: a shadow beside the live table, compared, then swapped while readers go on."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from ...projections.ports import Folded, LogEvent, Projection, StreamRef
from . import views

LOCK_KEY = 7_215_003
"""First half of the advisory lock that lets one rebuild of a projection run at a time."""

VIEWS_LOCK = "SELECT pg_advisory_xact_lock(7215004)"
"""Held while views are made, dropped or swapped; a purge (23_purge_v1.sql) shares it while it deletes from them."""

BATCH_EVENTS = 5_000
"""Events folded into the shadow in one transaction."""

PARALLEL_FROM = 20_000
"""Events in the log from which the build is shared by several processes."""

MAX_WORKERS = 4
MAX_CATCH_UPS = 20
SWAP_LOCK_TIMEOUT = "10s"
"""Longest wait for the live projectors to finish their transactions before the swap."""

MAX_SHOWN = 20
"""Differences that a report lists by stream."""

Progress = Callable[[str, int, int], None]
"""Called with what is going on, events done, events in all."""


class RebuildError(Exception):
    """The rebuild did not happen; the message says why and what to do. The live view is as it was."""


class Difference(msgspec.Struct, frozen=True, rename="camel"):
    """A stream whose live rows are not what the log says. missing: not in the live view; extra: only there."""

    stream: str
    missing: int
    extra: int


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """What a rebuild or a check found. compared: streams whose live rows stood at the same position as the shadow's."""

    projection: str
    events: int
    streams: int
    compared: int
    differences: list[Difference]
    parked: list[str]
    is_swapped: bool


def rebuild(url: str, projection: Projection, *, check: bool = False, progress: Progress | None = None) -> Report:
    """Build, compare and, unless `check`, swap. `url` is the projector's.

    The shadow is thrown away first if an earlier rebuild died, so any step may be killed and the whole started again.
    Raises RebuildError where another rebuild of this projection is running.
    """
    tell = progress or _silent
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = pg_catalog, pg_temp")
        with _alone(connection, projection):
            _drop_shadow(connection, projection)
            _make_shadow(connection, projection)
            try:
                events = _build(url, connection, projection, tell)
                events += _catch_up(connection, projection, tell)
                tell("comparing", events, events)
                compared, differences = _compare(connection, projection)
                if not check:
                    tell("swapping", events, events)
                    events += _swap(connection, projection)
                parked = _unfolded(connection, projection, swapped=not check)
                streams = _count(connection, projection, swapped=not check)
            finally:
                if not connection.closed:
                    _drop_shadow(connection, projection)
    return Report(projection.name, events, streams, compared, differences, parked, not check)


def _silent(_what: str, _done: int, _all: int) -> None:
    pass


@contextmanager
def _alone(connection: psycopg.Connection[Any], projection: Projection) -> Generator[None]:
    row = connection.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", (LOCK_KEY, projection.name)).fetchone()
    if row != (True,):
        raise RebuildError(f"Another rebuild of {projection.name} is running; wait for it, or stop it first.")
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", (LOCK_KEY, projection.name))


def _shadow(projection: Projection) -> str:
    return projection.name + views.SHADOW


def _drop_shadow(connection: psycopg.Connection[Any], projection: Projection) -> None:
    with connection.transaction():
        connection.execute(VIEWS_LOCK)
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(views.table(_shadow(projection))))
        for place in ("checkpoints", "parked"):
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE projection = %s").format(views.table(place)), (_shadow(projection),)
            )


def _make_shadow(connection: psycopg.Connection[Any], projection: Projection) -> None:
    shadow = views.table(_shadow(projection))
    live = views.table(projection.name)
    with connection.transaction():
        connection.execute(VIEWS_LOCK)
        connection.execute(sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(shadow, live))
        connection.execute(sql.SQL("GRANT SELECT (stream_id), DELETE ON {} TO minutebook_retention").format(shadow))


def _build(url: str, connection: psycopg.Connection[Any], projection: Projection, tell: Progress) -> int:
    rows = connection.execute(
        "SELECT s.id, s.version FROM minutebook.streams s WHERE s.kind = ANY (%s) AND s.version > 0 ORDER BY s.id",
        (list(projection.kinds),),
    ).fetchall()
    total = sum(version for _, version in rows)
    workers = min(MAX_WORKERS, os.cpu_count() or 1)
    if total < PARALLEL_FROM or workers == 1:
        return _build_part(url, projection.name, [row[0] for row in rows], lambda done: tell("folding", done, total))
    parts: list[list[int]] = [[] for _ in range(workers * 8)]
    for place, (stream_id, _) in enumerate(sorted(rows, key=lambda row: -row[1])):
        parts[place % len(parts)].append(stream_id)
    done = 0
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for finished in as_completed([pool.submit(_build_part, url, projection.name, part) for part in parts if part]):
            done += finished.result()
            tell("folding", done, total)
    return done


def _build_part(url: str, name: str, ids: Sequence[int], tell: Callable[[int], None] | None = None) -> int:
    """Fold some streams whole into the shadow; also the entry point of a worker process."""
    done = 0
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = pg_catalog, pg_temp")
        # A shadow that a crash cuts short is thrown away, and the commit of the swap waits for all that was before it.
        connection.execute("SET synchronous_commit = off")
        for start in range(0, len(ids), views.PAGE_EVENTS):
            done += _fold(connection, views.PROJECTIONS[name], list(ids[start : start + views.PAGE_EVENTS]))
            if tell is not None:
                tell(done)
    return done


def _catch_up(connection: psycopg.Connection[Any], projection: Projection, tell: Progress) -> int:
    done = 0
    for _ in range(MAX_CATCH_UPS):
        behind = _behind(connection, projection)
        if not behind:
            break
        done += _fold(connection, projection, behind)
        tell("catching up", done, done)
    return done


def _behind(connection: psycopg.Connection[Any], projection: Projection) -> list[int]:
    scope = {"name": _shadow(projection), "kinds": list(projection.kinds), "limit": 10_000}
    return [row[0] for row in connection.execute(views.BEHIND, scope)]


def _fold(connection: psycopg.Connection[Any], projection: Projection, ids: list[int]) -> int:
    """Fold what these streams have beyond the shadow's checkpoints, in transactions of BATCH_EVENTS."""
    done = 0
    waiting = ids
    scope = {"name": _shadow(projection), "kinds": list(projection.kinds)}
    while waiting:
        # Committed before the fold, so that a purge of the stream finds the checkpoint, and waits for the fold there.
        connection.execute(views.BEGIN, {**scope, "ids": waiting})
        with connection.transaction():
            folded, waiting = _fold_batch(connection, projection, waiting)
        done += folded
    return done


def _fold_batch(connection: psycopg.Connection[Any], projection: Projection, ids: list[int]) -> tuple[int, list[int]]:
    """Answers the events folded, and the streams that are not done."""
    name = _shadow(projection)
    scope = {"name": name, "kinds": list(projection.kinds), "ids": ids}
    claimed = views.stream_refs(connection.execute(views.CLAIM, scope).fetchall())
    if not claimed:
        return 0, []
    taken: list[int] = []
    room = BATCH_EVENTS
    for stream_id, (_, after, head) in claimed.items():
        if room <= 0:
            break
        taken.append(stream_id)
        room -= head - after
    afters = [claimed[each][1] for each in taken]
    events = views.group_events(connection.execute(views.READ, (taken, afters, BATCH_EVENTS)).fetchall())
    select = views.states(projection, views.SHADOW)
    states: dict[int, str] = {} if select is None else dict(connection.execute(select, (taken,)).fetchall())
    folded: dict[int, Folded] = {}
    for stream_id, found in events.items():
        try:
            folded[stream_id] = projection.fold(claimed[stream_id][0], states.get(stream_id), found)
        except Exception as error:  # noqa: BLE001 - a stream that cannot be folded stays out, the others go on
            _park(connection, name, claimed[stream_id][0], found, error)
    _write(connection, projection, folded, begun=[each for each in folded if claimed[each][1] > 0])
    ends = {each: events[each][-1].seq for each in folded}
    connection.execute(views.ADVANCE, (list(ends), list(ends.values()), name))
    left = [each for each in claimed if each not in events or (each in ends and ends[each] < claimed[each][2])]
    return sum(len(events[each]) for each in folded), left


def _park(
    connection: psycopg.Connection[Any], name: str, stream: StreamRef, found: list[LogEvent], error: Exception
) -> None:
    connection.execute(views.PARK, {"name": name, "id": stream.id, "seq": found[0].seq, "reason": type(error).__name__})


def _write(
    connection: psycopg.Connection[Any], projection: Projection, folded: dict[int, Folded], begun: list[int]
) -> None:
    """By COPY alone: nobody else writes a shadow, and rows of later events are new where the key holds the event.

    begun: streams that the shadow has rows of; a row a stream is taken away before its successor comes.
    """
    blanked = [(each, seq) for each in folded for seq in folded[each].blanked]
    with connection.cursor() as cursor:
        columns = sql.SQL(", ").join(sql.Identifier(column) for column in projection.columns)
        target = views.table(_shadow(projection))
        if begun and "seq" not in projection.key:
            cursor.execute(sql.SQL("DELETE FROM {} WHERE stream_id = ANY (%s::bigint[])").format(target), (begun,))
        if folded:
            with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(target, columns)) as copy:
                for each in folded.values():
                    for row in each.rows:
                        copy.write_row(row)
        if blanked:
            cursor.executemany(views.blank(projection, views.SHADOW), blanked)


def _compare(connection: psycopg.Connection[Any], projection: Projection) -> tuple[int, list[Difference]]:
    """Rows of streams whose live and shadow checkpoints agree, in one snapshot."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        same = [
            row[0]
            for row in connection.execute(
                "SELECT l.stream_id FROM minutebook_views.checkpoints l JOIN minutebook_views.checkpoints s"
                " ON s.projection = %s AND s.stream_id = l.stream_id AND s.seq = l.seq WHERE l.projection = %s",
                (_shadow(projection), projection.name),
            )
        ]
        counts: dict[int, tuple[int, int]] = {
            stream_id: (missing, extra)
            for stream_id, missing, extra in connection.execute(_differing(projection), (same, same))
        }
        names = dict(
            connection.execute(
                "SELECT s.id, s.name FROM minutebook.streams s WHERE s.id = ANY (%s::bigint[])", (list(counts),)
            ).fetchall()
        )
    found = [Difference(names.get(each, str(each)), *pair) for each, pair in sorted(counts.items())]
    return len(same), found


def _differing(projection: Projection) -> sql.Composed:
    """By stream id, how many rows of the shadow the live view has not as they are, and the other way round; one pass,
    since both have their rows by the same key."""
    on = sql.SQL(" AND ").join(sql.SQL("s.{0} = l.{0}").format(sql.Identifier(column)) for column in projection.key)
    return sql.SQL(
        "SELECT coalesce(s.stream_id, l.stream_id), count(s.stream_id), count(l.stream_id)"
        " FROM (SELECT * FROM {} WHERE stream_id = ANY (%s::bigint[])) s"
        " FULL JOIN (SELECT * FROM {} WHERE stream_id = ANY (%s::bigint[])) l ON {}"
        " WHERE (s.*) IS DISTINCT FROM (l.*) GROUP BY 1"
    ).format(views.table(_shadow(projection)), views.table(projection.name), on)


def _swap(connection: psycopg.Connection[Any], projection: Projection) -> int:
    """Fence the live projectors, fold the last events, exchange the tables, all in one transaction."""
    name, shadow = projection.name, _shadow(projection)
    done = 0
    with connection.transaction():
        connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(SWAP_LOCK_TIMEOUT)))
        connection.execute(VIEWS_LOCK)
        # Conflicts with the row locks of CLAIM: a fold under way ends first, and none begins until the swap is done.
        connection.execute("LOCK TABLE minutebook_views.checkpoints IN EXCLUSIVE MODE")
        waiting = _behind(connection, projection)
        connection.execute(views.BEGIN, {"name": shadow, "kinds": list(projection.kinds), "ids": waiting})
        while waiting:
            folded, waiting = _fold_batch(connection, projection, waiting)
            done += folded
        indexes = _indexes(connection, name)
        connection.execute(sql.SQL("DROP TABLE {}").format(views.table(name)))
        connection.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(views.table(shadow), sql.Identifier(name)))
        for definition, made in _indexes(connection, name).items():
            if definition in indexes and indexes[definition] != made:
                connection.execute(
                    sql.SQL("ALTER INDEX {} RENAME TO {}").format(
                        views.table(made), sql.Identifier(indexes[definition])
                    )
                )
        for place in ("checkpoints", "parked"):
            target = views.table(place)
            connection.execute(sql.SQL("DELETE FROM {} WHERE projection = %s").format(target), (name,))
            connection.execute(
                sql.SQL("UPDATE {} SET projection = %s WHERE projection = %s").format(target), (name, shadow)
            )
    return done


def _indexes(connection: psycopg.Connection[Any], table: str) -> dict[str, str]:
    """Index names by what they index, so that the shadow's can take the live ones' names."""
    rows = connection.execute(
        "SELECT c.relname, regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING ', '')"
        " FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass(%s)",
        (f"{views.SCHEMA}.{table}",),
    )
    return {definition: name for name, definition in rows}


def _unfolded(connection: psycopg.Connection[Any], projection: Projection, *, swapped: bool) -> list[str]:
    rows = connection.execute(
        "SELECT s.name FROM minutebook_views.parked p JOIN minutebook.streams s ON s.id = p.stream_id"
        " WHERE p.projection = %s ORDER BY s.name LIMIT %s",
        (projection.name if swapped else _shadow(projection), MAX_SHOWN),
    )
    return [row[0] for row in rows]


def _count(connection: psycopg.Connection[Any], projection: Projection, *, swapped: bool) -> int:
    row = connection.execute(
        "SELECT count(*) FROM minutebook_views.checkpoints WHERE projection = %s AND seq > 0",
        (projection.name if swapped else _shadow(projection),),
    ).fetchone()
    return row[0] if row else 0
