"""What a projection is: a pure fold of one stream's events into rows of one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import msgspec


class StreamRef(msgspec.Struct, frozen=True):
    """The stream that is folded: numeric key, name (`room:abcdefgh`) and tenant."""

    id: int
    name: str
    tenant: str

    @property
    def local_id(self) -> str:
        """The part of the name after its kind."""
        return self.name.partition(":")[2]


class LogEvent(msgspec.Struct, frozen=True):
    """A stored event as projections read it. ts is RFC 3339 text; payload is JSON text, None once it was erased."""

    seq: int
    ts: str
    type: str
    version: int
    actor_kind: str
    actor_id: str
    run_id: str | None
    origin_key: str | None
    classes: list[str]
    payload: str | None


class Folded(msgspec.Struct, frozen=True):
    """Rows to write over those with the same primary key, and seqs whose row loses its content."""

    rows: Sequence[tuple[Any, ...]]
    blanked: Sequence[int] = ()


class Projection(Protocol):
    """One read model."""

    name: ClassVar[str]
    """The projection's name, and its table's."""

    kinds: ClassVar[tuple[str, ...]]
    """Kinds of streams that it folds."""

    columns: ClassVar[tuple[str, ...]]
    """The table's columns, stream_id first."""

    key: ClassVar[tuple[str, ...]]
    """Columns of the primary key."""

    state_column: ClassVar[str | None]
    """The column that holds the fold's own state, if it keeps one."""

    blank_assignments: ClassVar[dict[str, str]]
    """What an erased row's columns become."""

    def fold(self, stream: StreamRef, state: str | None, events: Sequence[LogEvent]) -> Folded:
        """The rows that `events`, which follow what was folded before, make or change.

        state: what `state_column` holds for this stream, as JSON text, where the projection keeps one. Pure: folding
        event by event and folding all at once give the same rows. Raises Damaged at an event that cannot be read.
        """
        ...
