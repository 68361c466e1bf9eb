"""What commands need of the world, as protocols; infra/ has the adapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..domain.principals import Principal

OutcomeKind = Literal["appended", "conflict", "duplicate", "key_reused", "sealed", "fenced"]


class EventRow(
    Struct,
    rename={
        "type": "t",
        "version": "v",
        "payload": "p",
        "actor_kind": "ak",
        "actor_id": "ai",
        "actor_role": "ar",
        "run_id": "r",
        "caused_by": "cb",
        "origin": "o",
        "redactions": "rd",
        "classes": "cl",
        "origin_client": "oc",
        "origin_key": "ok",
    },
):
    """An event in the form that the append takes; the appender fills `i` and `k`, its place in the batch."""

    id: str
    type: str
    version: int
    payload: msgspec.Raw
    actor_kind: str
    actor_id: str
    origin: str
    redactions: Sequence[str] = ()
    classes: Sequence[str] = ()
    actor_role: str | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    caused_by: int | UnsetType = UNSET
    origin_client: str | UnsetType = UNSET
    origin_key: str | UnsetType = UNSET
    i: int = 0
    k: int = 0


class Creation(Struct, frozen=True):
    """Asks the append to begin the stream. retention_days counts from the seal."""

    kind: str
    tenant: str
    retention_days: int


class Fence(Struct, frozen=True):
    """The lease that the writer claims to hold; an older epoch appends nothing.

    stream: whose lease it is, where it is not that of the stream appended to; None for that one's own.
    """

    purpose: str
    holder: str
    epoch: int
    stream: str | None = None


class Key(Struct, frozen=True, rename={"answer": "body"}):
    """An idempotency key with its scope, the request's fingerprint, and the answer to store beside the events.

    As JSON it is what the SQL functions take, where the answer is called `body`.
    """

    tenant: str
    caller: str
    operation: str
    scope: str
    key: str
    fingerprint: str
    status: int
    answer: dict[str, Any]

    @property
    def place(self) -> tuple[str, str, str, str, str]:
        """What must be unique within a batch and in the table."""
        return (self.tenant, self.caller, self.operation, self.scope, self.key)


class Append(Struct, frozen=True):
    """One item of a batch: events for one stream behind `expected`, all or none of them."""

    stream: str
    expected: int
    events: Sequence[EventRow] = ()
    create: Creation | None = None
    seal: bool = False
    fence: Fence | None = None
    key: Key | None = None


class Outcome(Struct, frozen=True):
    """What became of an item. seq: last appended, or the head. body: a keyed item's stored answer, as JSON text."""

    kind: OutcomeKind
    seq: int
    event_id: str | None
    chain: str | None
    ts: str | None
    bytes: int
    status: int | None
    body: str | None


class Fork(Struct, frozen=True):
    """Asks for a new stream with events 1 to `seq` of another, and one event of its own behind them.

    event: its payload gets the source's chain hash at `seq` as `chain`; a key's answer gets it as `forkedFrom.chain`.
    max_events, max_bytes: the limits of a stream, which the fork must stay below.
    """

    source: str
    seq: int
    stream: str
    event: EventRow
    max_events: int
    max_bytes: int
    key: Key | None = None


class Forked(Struct, frozen=True):
    """What became of a fork. source_chain: the source's chain hash at the last copied event; else as Outcome.

    not_found: the source has no such event, or was purged meanwhile. conflict: the new stream's name is taken.
    """

    kind: Literal["appended", "duplicate", "key_reused", "not_found", "too_long", "conflict"]
    seq: int
    event_id: str | None
    chain: str | None
    ts: str | None
    bytes: int
    status: int | None
    body: str | None
    source_chain: str | None


class Head(Struct, frozen=True):
    """Where a stream stands. chain: hash of its last event in hex. bytes: of all its payloads.

    held: whether retention must wait. last_ts: when its last event was recorded; None before the first.
    """

    id: int
    tenant: str
    version: int
    bytes: int
    sealed: bool
    chain: str
    held: bool = False
    last_ts: datetime | None = None


class StoredAnswer(Struct, frozen=True):
    """The first answer to a keyed command."""

    fingerprint: str
    status: int
    body: str


class Snapshot(Struct, frozen=True):
    """A cached fold: state is JSON text of the shape named by `schema`."""

    seq: int
    schema: str
    state: str


class StoredEvent(Struct, frozen=True):
    """The part of a stored event that a fold reads. ts: RFC 3339; only processes are told it."""

    seq: int
    type: str
    version: int
    actor_kind: str
    actor_id: str
    run_id: str | None
    origin_key: str | None
    payload: str
    classes: Sequence[str] = ()
    ts: str = ""


class Watch(Protocol):
    """Is told what a process appended, right after the commit. It neither raises nor waits."""

    def appended(self, rows: Sequence[EventRow], events: Sequence[tuple[Principal, Any]]) -> None:
        """Rows of one command, and the same as actors and events."""
        ...


class EventStore(Protocol):
    """The log as commands see it. Every method raises Unavailable where the database cannot be reached in time."""

    async def append(self, items: Sequence[Append]) -> list[Outcome]:
        """One transaction shared with whoever appends at the same moment; one outcome an item, in order."""
        ...

    async def head(self, stream: str) -> Head | None:
        """Where the stream stands, None where there is none."""
        ...

    async def load(self, stream: str, schema: str) -> tuple[Head, Snapshot | None] | None:
        """The head and a usable snapshot of that schema."""
        ...

    async def read_for_fold(self, stream_id: int, after: int, limit: int) -> list[StoredEvent]:
        """At most `limit` events behind `after`, ascending."""
        ...

    async def read_back(self, stream_id: int, type_: str, start: int, before: int, limit: int) -> list[StoredEvent]:
        """At most `limit` events of that type with `start <= seq < before`, newest first."""
        ...

    async def save_snapshot(self, stream_id: int, snapshot: Snapshot) -> None:
        """Keep a fold, unless a newer one of that schema is kept already."""
        ...

    async def find_answer(self, place: tuple[str, str, str, str, str]) -> StoredAnswer | None:
        """The stored answer of a key."""
        ...


class Leases(Protocol):
    """Fencing leases of streams, by the database's clock."""

    async def take(self, stream: str, purpose: str, holder: str, ttl_s: int) -> tuple[int, str]:
        """The new epoch and the holder; epoch 0 where another holder's lease is younger than ttl_s."""
        ...

    async def drop(self, stream: str, purpose: str, holder: str, epoch: int) -> None:
        """Let it lapse at once; nothing where it is not held with that epoch."""
        ...


class Forks(Protocol):
    """Copies of streams, beside the group commit."""

    async def fork(self, fork: Fork) -> Forked:
        """One transaction of its own: all of it or nothing. Raises Unavailable where the outcome is not known."""
        ...


Redact = Callable[[Any], tuple[Any, list[str]]]
"""The redaction hook: payload in, payload and rule ids out. Runs before every append (architecture.md, Trust)."""


def no_redaction(payload: Any) -> tuple[Any, list[str]]:
    """The hook where no rules are loaded."""
    return payload, []
