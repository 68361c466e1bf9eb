"""Given events, a projection's rows: the folds without a database, writing rows as projector and rebuild do."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
from gwt import recorded
from minutebook.domain.events import Opaque
from minutebook.projections.ports import LogEvent, Projection, StreamRef
from room_scenes import ROOM, TENANT

STREAM = StreamRef(7, f"room:{ROOM}", TENANT)


def log_of(items: Sequence[Any], after: int = 0) -> list[LogEvent]:
    """Events as projections read them; a LogEvent stays as it is, all else is stored at its place first."""

    def one(seq: int, item: Any) -> LogEvent:
        if isinstance(item, LogEvent):
            return msgspec.structs.replace(item, seq=seq)
        kept = recorded([item])[0]
        payload = b"{}" if isinstance(kept.event, Opaque) else msgspec.json.encode(kept.event.payload())
        return LogEvent(
            seq,
            f"2026-01-02T03:04:{seq % 60:02}.000000Z",
            kept.event.type,
            kept.event.version,
            kept.actor.kind,
            kept.actor.id,
            kept.run_id,
            kept.origin_key,
            list(getattr(item, "classes", ())),
            payload.decode(),
        )

    return [one(seq, item) for seq, item in enumerate(items, after + 1)]


class Folding(msgspec.Struct, frozen=True):
    """A projection and the log that it folds."""

    projection: Projection
    log: tuple[LogEvent, ...]

    def table(self, *cuts: int) -> list[dict[str, Any]]:
        """The rows by column, in the order of their keys; folded in batches that end at `cuts`."""
        projection = self.projection
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        state: str | None = None
        ends = [0, *cuts, len(self.log)]
        for start, end in itertools.pairwise(ends):
            if start == end:
                continue
            folded = projection.fold(STREAM, state, self.log[start:end])
            for row in folded.rows:
                named = dict(zip(projection.columns, row, strict=True))
                rows[tuple(named[column] for column in projection.key)] = named
            for seq in folded.blanked:
                if (STREAM.id, seq) in rows:
                    rows[STREAM.id, seq].update(projection.blank_assignments)
            if projection.state_column is not None:
                state = rows[(STREAM.id,)][projection.state_column]
        return [rows[key] for key in sorted(rows)]

    def rows(self, *want: dict[str, Any] | tuple[Any, ...]) -> None:
        """Exactly these rows: a dict names the columns that matter, a tuple has them all."""
        have = self.table()
        assert len(have) == len(want)
        for row, expected in zip(have, want, strict=True):
            if isinstance(expected, tuple):
                assert tuple(row.values()) == expected
            else:
                assert {column: row[column] for column in expected} == expected


def given(projection: Projection, *events: Any) -> Folding:
    """A projection of a room after these events."""
    return Folding(projection, tuple(log_of(events)))
