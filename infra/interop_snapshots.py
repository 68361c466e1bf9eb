"""Snapshots of the eventsourcing library's aggregates: a cache beside the log, the newest one of each aggregate."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from eventsourcing import persistence
from eventsourcing.persistence import AggregateRecorder, StoredEvent
from msgspec import Struct

from .interop_log import LogAccess, Streams

SCHEMA = "eventsourcing.1"
"""Names the shape at rest; our own folds ignore snapshots of it."""

_SAVE = (
    "INSERT INTO minutebook.snapshots AS n (stream_id, seq, schema, state)"
    " SELECT s.id, s.version, %s, %s::jsonb FROM minutebook.streams s WHERE s.name = %s"
    " ON CONFLICT (stream_id) DO UPDATE SET seq = EXCLUDED.seq, schema = EXCLUDED.schema, state = EXCLUDED.state"
    " WHERE n.schema <> EXCLUDED.schema OR (n.state->>'version')::bigint < (EXCLUDED.state->>'version')::bigint"
    " RETURNING n.seq"
)
_FIND = (
    "SELECT n.state::text FROM minutebook.streams s JOIN minutebook.snapshots n ON n.stream_id = s.id"
    " WHERE s.name = %s AND n.schema = %s"
)


class _Kept(Struct, frozen=True):
    """state: in base64."""

    version: int
    topic: str
    state: str


class MinutebookSnapshotRecorder(AggregateRecorder):
    """Keeps one snapshot an aggregate; an older one than it has is not kept. The log can do without all of them."""

    def __init__(self, access: LogAccess, streams: Streams) -> None:
        self._access = access
        self._streams = streams

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Keep each snapshot, unless a newer one is kept already or its aggregate has no stream."""
        del kwargs
        if self._streams.is_read_only:
            raise persistence.NotSupportedError(f"Streams of kind {self._streams.kind} are read-only here.")
        for event in stored_events:
            kept = _Kept(event.originator_version, event.topic, base64.b64encode(event.state).decode())
            name = self._streams.name(event.originator_id)
            self._access.rows(_SAVE, (SCHEMA, msgspec.json.encode(kept).decode(), name))
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
        """The snapshot, if `gt < version <= lte`; an earlier version than the newest is folded from the events."""
        del desc
        rows = [] if limit == 0 else self._access.rows(_FIND, (self._streams.name(originator_id), SCHEMA))
        found = [msgspec.json.decode(state, type=_Kept) for (state,) in rows]
        return [
            StoredEvent(originator_id, kept.version, kept.topic, base64.b64decode(kept.state))
            for kept in found
            if (gt is None or kept.version > gt) and (lte is None or kept.version <= lte)
        ]
