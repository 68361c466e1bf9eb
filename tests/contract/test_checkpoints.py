"""A kind of stream whose state stands in events of its own is folded from the newest of them that is one."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import msgspec
import pytest
from append_helpers import run as execute
from appender_helpers import Pool, run
from minutebook.commands import streams
from minutebook.commands.dispatcher import Bounds, Dispatcher, Fingerprints
from minutebook.commands.mailbox import Decided
from minutebook.commands.ports import Append, Creation, EventRow, Head, StoredEvent
from minutebook.commands.streams import Kind, load
from minutebook.domain.events import Recorded, Registry
from minutebook.domain.principals import Principal
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.store import PostgresStore
from ulid_transform import ulid_now

STREAM = "sum:a"


class Sum(msgspec.Struct, frozen=True):
    """A running total, and how many events it was folded from."""

    total: int = 0
    folded: int = 0


class Added(msgspec.Struct, frozen=True):
    """What every event of the stream holds; a checkpoint's `number` is the total up to it."""

    number: int
    is_ours: bool = True


def evolve(state: Sum, recorded: Recorded[Any]) -> Sum:
    return Sum(state.total + recorded.event.number, state.folded + 1)


class SumKind(Kind[Sum], frozen=True):
    """Begins at `total` events that say that they are ours."""

    checkpoint_type: ClassVar[str | None] = "total"

    def is_checkpoint(self, event: StoredEvent) -> bool:
        return msgspec.json.decode(event.payload, type=Added).is_ours

    def fold(self, state: Sum, event: StoredEvent) -> Sum:
        added = msgspec.json.decode(event.payload, type=Added)
        if event.type == "total":
            return Sum(added.number, 1) if added.is_ours else state
        return evolve(state, Recorded(event.seq, Principal("human", "ada"), None, None, added))


KIND = SumKind("sum", "sum.1", Sum(), Sum, Registry(()), evolve, lambda state, _: state)
ADA = Principal("human", "ada")


class ReadStore(PostgresStore):
    """Knows how much was read of it."""

    events: int = 0
    reads: int = 0

    async def read_for_fold(self, stream_id: int, after: int, limit: int) -> list[StoredEvent]:
        found = await super().read_for_fold(stream_id, after, limit)
        self.events += len(found)
        return found

    async def read_back(self, stream_id: int, type_: str, start: int, before: int, limit: int) -> list[StoredEvent]:
        self.reads += 1
        found = await super().read_back(stream_id, type_, start, before, limit)
        self.events += len(found)
        return found


def row(number: int, type_: str = "added", *, is_ours: bool = True) -> EventRow:
    payload = msgspec.Raw(msgspec.json.encode(Added(number, is_ours)))
    return EventRow(ulid_now(), type_, 1, payload, "human", "ada", "client")


async def extend(appender: Appender, expected: int, *rows: EventRow) -> None:
    create = Creation("sum", "acme", 90) if expected == 0 else None
    outcomes = await appender.append([Append(STREAM, expected, rows, create=create)])
    assert outcomes[0].kind == "appended"


def test_a_fold_begins_at_the_newest_checkpoint_that_is_one(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PAGE", 10)
    monkeypatch.setattr(streams, "CHECKPOINTS", 2)

    async def work(appender: Appender, pool: Pool) -> None:
        store = ReadStore(pool, appender)

        async def loaded() -> tuple[int, int, int, int, int]:
            """Total, events folded, version; and the reads for a checkpoint and events read that it took."""
            store.events = store.reads = 0
            found = await load(store, KIND, STREAM)
            assert found is not None
            return found.state.total, found.state.folded, found.head.version, store.reads, store.events

        assert await load(store, KIND, STREAM) is None
        await extend(appender, 0, *(row(1) for _ in range(25)))
        assert await loaded() == (25, 25, 25, 3, 25), "no checkpoint: from the first event"
        await extend(appender, 25, row(100, "total"), *(row(1) for _ in range(4)))
        assert await loaded() == (104, 5, 30, 1, 5)
        await extend(appender, 30, *(row(1) for _ in range(20)))
        assert await loaded() == (124, 25, 50, 3, 25), "found further back, page by page"
        await extend(appender, 50, *(row(7, "total", is_ours=False) for _ in range(5)))
        total, folded, version, reads, _ = await loaded()
        assert (total, folded, version) == (124, 25, 55), "what is none of ours is passed over"
        assert reads <= 6
        await extend(appender, 55, row(1000, "total"))
        assert await loaded() == (1000, 1, 56, 1, 1)

    run(work, database.url())


def test_a_checkpoint_as_the_first_event_is_found(database: Any) -> None:
    async def work(appender: Appender, pool: Pool) -> None:
        await extend(appender, 0, row(5, "total"), row(1))
        found = await load(PostgresStore(pool, appender), KIND, STREAM)
        assert found is not None
        assert (found.state, found.head.version) == (Sum(6, 2), 2)

    run(work, database.url())


def test_its_mailbox_keeps_no_snapshot_and_reads_none(database: Any) -> None:
    async def work(appender: Appender, pool: Pool) -> None:
        store = ReadStore(pool, appender)
        await extend(appender, 0, row(1), row(50, "total"))
        with database.connect("postgres") as superuser:
            execute(
                superuser,
                "INSERT INTO minutebook.snapshots SELECT s.id, 2, 'sum.1', '{\"total\": 9}' FROM minutebook.streams s",
            )
            bounds = Bounds(snapshot_every=1)
            dispatcher = Dispatcher(store, Fingerprints(b"k"), bounds)

            def decide(state: Sum, head: Head) -> Decided:
                number = Added(head.version)
                return Decided([row(number.number)], [(ADA, number)], False, {"total": state.total})

            answers = [
                (await dispatcher.run(KIND, STREAM, lambda state, head: None, decide)).body["total"] for _ in range(3)
            ]
            assert answers == [50, 52, 55]
            other = Dispatcher(store, Fingerprints(b"k"), bounds)
            again = await asyncio.gather(
                *(
                    each.run(KIND, STREAM, lambda state, head: None, decide)
                    for each in (dispatcher, other, dispatcher, other)
                )
            )
            assert sorted(each.body["total"] for each in again) == [59, 64, 70, 77]
            kept = superuser.execute("SELECT n.seq, n.state FROM minutebook.snapshots n").fetchall()
            assert kept == [(2, {"total": 9})]

    run(work, database.url())
