"""The aggregate recorder of the eventsourcing library over our append: all or nothing, and exactly once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from eventsourcing import persistence
from eventsourcing.persistence import AggregateRecorder, IntegrityError, StoredEvent
from msgspec import UNSET, Struct, UnsetType
from psycopg_pool import PoolClosed, PoolTimeout
from ulid_transform import ulid_now

from ..commands.ports import EventRow
from .interop_log import FIRST_VERSIONS, ROW, LogAccess, Row, Streams, translate
from .postgres.errors import TRANSIENT, is_lost_connection

MAX_TRIES = 4
"""Times that an append is sent when the connection broke, a deadlock was found or the like."""

BACKOFF_S = (0.05, 0.25, 1.0)

FAR = 2**62
"""Beyond every seq."""

_FIND = (
    "SELECT s.name, s.id, s.version, f.origin_key FROM minutebook.streams s"
    " LEFT JOIN minutebook.events f ON f.stream_id = s.id AND f.seq = 1 WHERE s.name = ANY(%s)"
)
_READ = (
    f"SELECT {ROW} FROM minutebook.events e WHERE e.stream_id = %s AND e.seq > %s AND e.seq <= %s"  # noqa: S608 - constants only
    " ORDER BY e.seq LIMIT %s"
)
_READ_BACK = _READ.replace("ORDER BY e.seq", "ORDER BY e.seq DESC")
_APPEND = "SELECT outcome FROM minutebook.append_v1(%s::text[], %s::json, %s::json, %s)"
_IS_OURS = "SELECT FROM minutebook.events e WHERE e.stream_id = %s AND e.seq = %s AND e.id = %s"


class Place(Struct, frozen=True):
    """Where an event was stored."""

    stream: str
    seq: int


class _Found(Struct, frozen=True):
    """A stream as it stands: first is the library's version of the event with seq 1."""

    id: int
    version: int
    first: int


class _Item(Struct, omit_defaults=True):
    n: int
    s: int
    expected: int
    count: int
    kind: str | UnsetType = UNSET
    tenant: str | UnsetType = UNSET


class _Group(Struct):
    """The events of one call that are for one stream; rows keep their ids over every try."""

    stream: str
    versions: list[int]
    rows: list[EventRow]


class MinutebookRecorder(AggregateRecorder):
    """Stores and reads the events of the aggregates in `streams`, through connections of the app role.

    Errors are the library's: IntegrityError where an event's place is taken or does not follow its stream,
    NotSupportedError for a stream that is sealed or read-only, OperationalError where the database cannot be reached.
    """

    def __init__(self, access: LogAccess, streams: Streams) -> None:
        self._access = access
        self._streams = streams

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Store all of the events or none of them; a lost answer is settled by their ids, not by repeating blindly."""
        self._store(stored_events, kwargs)
        return None

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """The events of an aggregate with `gt < version <= lte`; empty where there is no such aggregate."""
        name = self._streams.name(originator_id)
        rows = self._access.rows(_FIND, ([name],))
        if not rows:
            return []
        found = _Found(rows[0][1], rows[0][2], self._streams.first(rows[0][3]))
        after = 0 if gt is None else gt - found.first + 1
        through = FAR if lte is None else lte - found.first + 1
        read = self._access.rows(_READ_BACK if desc else _READ, (found.id, after, through, limit))
        return [self._streams.stored(originator_id, Row(*row)) for row in read]

    def _store(self, events: Sequence[StoredEvent], kwargs: dict[str, Any]) -> list[Place]:
        """Where each event now is, in the order given."""
        if kwargs.get("tracking") is not None:
            raise persistence.NotSupportedError(
                "This recorder keeps no tracking records; project into a tracking recorder of your own."
            )
        groups = self._grouped(events)
        if not groups:
            return []
        in_doubt = False
        for pause in (*BACKOFF_S, None):
            try:
                firsts = self._try(groups, in_doubt=in_doubt)
                break
            except (PoolTimeout, PoolClosed) as error:
                raise persistence.OperationalError("No connection to the database came free in time.") from error
            except psycopg.Error as error:
                lost = is_lost_connection(error)
                if pause is None or not (lost or error.sqlstate in TRANSIENT):
                    raise translate(error) from error
                in_doubt = in_doubt or lost
                time.sleep(pause)
        else:  # pragma: no cover
            raise AssertionError("unreachable")
        names = [self._streams.name(event.originator_id) for event in events]
        return [
            Place(name, event.originator_version - firsts[name] + 1) for name, event in zip(names, events, strict=True)
        ]

    def _grouped(self, events: Sequence[StoredEvent]) -> dict[str, _Group]:
        groups: dict[str, _Group] = {}
        for event in events:
            name = self._streams.name(event.originator_id)
            group = groups.setdefault(name, _Group(name, [], []))
            group.versions.append(event.originator_version)
            group.rows.append(self._streams.to_row(event, ulid_now()))
        for group in groups.values():
            if any(later != version + 1 for version, later in itertools.pairwise(group.versions)):
                raise IntegrityError(f"The versions of the events for {group.stream} do not follow one another.")
        return groups

    def _try(self, groups: dict[str, _Group], *, in_doubt: bool) -> dict[str, int]:
        """The first version of each stream. One stream needs no transaction: its item is all or nothing by itself."""
        with self._access.connection() as connection:
            try:
                found = self._find(connection, groups)
                if len(groups) == 1:
                    return self._append(connection, groups, found)
                with connection.transaction():
                    return self._append(connection, groups, found)
            except (IntegrityError, persistence.NotSupportedError):
                # What is in the way may be our own earlier try, which was still under way a moment ago.
                found = self._find(connection, groups) if in_doubt else {}
                if self._landed(connection, next(iter(groups.values())), found):
                    return {name: stream.first for name, stream in found.items()}
                raise

    def _find(self, connection: psycopg.Connection[Any], groups: dict[str, _Group]) -> dict[str, _Found]:
        rows = connection.execute(_FIND, (list(groups),), prepare=True).fetchall()
        return {name: _Found(id_, version, self._streams.first(key)) for name, id_, version, key in rows if version}

    def _landed(self, connection: psycopg.Connection[Any], group: _Group, found: dict[str, _Found]) -> bool:
        """Whether an earlier try, whose answer was lost, was committed. One event tells for all of them."""
        stream = found.get(group.stream)
        if stream is None:
            return False
        seq = group.versions[0] - stream.first + 1
        return connection.execute(_IS_OURS, (stream.id, seq, group.rows[0].id)).fetchone() is not None

    def _append(
        self, connection: psycopg.Connection[Any], groups: dict[str, _Group], found: dict[str, _Found]
    ) -> dict[str, int]:
        items = [self._item(n, group, found.get(group.stream)) for n, group in enumerate(groups.values(), 1)]
        rows: list[EventRow] = []
        for n, group in enumerate(groups.values(), 1):
            for k, row in enumerate(group.rows, 1):
                row.i, row.k = n, k
                rows.append(row)
        parameters = (
            list(groups),
            msgspec.json.encode(items).decode(),
            msgspec.json.encode(rows).decode(),
            any(item.kind is not UNSET for item in items),
        )
        outcomes = connection.execute(_APPEND, parameters, prepare=True).fetchall()
        for group, (outcome,) in zip(groups.values(), outcomes, strict=True):
            if outcome == "sealed":
                raise persistence.NotSupportedError(f"{group.stream} is sealed; nothing can be appended to it.")
            if outcome != "appended":
                raise IntegrityError(f"{group.stream} moved on meanwhile; load the aggregate again.")
        return {
            group.stream: found[group.stream].first if group.stream in found else group.versions[0]
            for group in groups.values()
        }

    def _item(self, n: int, group: _Group, found: _Found | None) -> _Item:
        version = group.versions[0]
        if found is None:
            if version not in FIRST_VERSIONS:
                raise IntegrityError(f"{group.stream} does not exist, so it cannot go on with version {version}.")
            return _Item(n, n, 0, len(group.rows), self._streams.kind, self._streams.tenant)
        expected = version - found.first
        if expected != found.version:
            head = found.first + found.version - 1
            raise IntegrityError(f"{group.stream} is at version {head}, so version {version} cannot follow.")
        return _Item(n, n, expected, len(group.rows))
