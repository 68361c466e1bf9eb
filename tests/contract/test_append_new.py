"""The set-wise path of new streams stores and answers what the long path does, and nothing where a name is taken."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from append_helpers import append, creation, event, one
from minutebook.commands.ports import Append, Creation, EventRow
from minutebook.infra.postgres import append_call
from minutebook.infra.postgres.direct import DirectSession
from minutebook.infra.postgres.export import verify_database
from minutebook.infra.postgres.pool import make_pool
from ulid_transform import ulid_now

SPECIAL = 'room:a"b\\c'


def rows(count: int) -> list[EventRow]:
    """Events of a new stream."""
    body = msgspec.Raw(b'{"text": "\xc3\xa4"}')
    return [EventRow(ulid_now(), "message", 1, body, "human", "olga", "client") for _ in range(count)]


def new(stream: str, count: int = 1, **fields: Any) -> Append:
    """A stream that begins."""
    return Append(stream, 0, rows(count), create=Creation("room", "acme", 90), **fields)


def sent(database: Any, *batches: list[Append]) -> list[list[Any]]:
    """The outcomes of each batch, on one session of the app role."""

    async def run() -> list[list[Any]]:
        async with make_pool(database.url("app"), "app", max_size=1, statement_timeout_ms=5000) as pool:
            session = await DirectSession.open(pool)
            try:
                return [await append_call.send(session, batch, notify=False) for batch in batches]
            finally:
                await session.close()

    return asyncio.run(run())


def test_many_streams_begin_with_their_events_and_each_chain_holds(any_database: Any, monkeypatch: Any) -> None:
    async def never(*_args: Any, **_fields: Any) -> Any:
        raise AssertionError("the long path")

    monkeypatch.setattr(append_call, "_send_any", never)
    ((first, second, third),) = sent(any_database, [new("room:aaaaaaaa", 3), new(SPECIAL), new("room:cccccccc", 2)])
    assert [(each.kind, each.seq) for each in (first, second, third)] == [("appended", n) for n in (3, 1, 2)]
    with any_database.connect("app") as app:
        found = app.execute(
            "SELECT s.name, s.version, s.kind, s.tenant, s.retention_days, encode(s.head_hash, 'hex'), s.bytes"
            " FROM minutebook.streams s ORDER BY 1"
        ).fetchall()
        expected = zip(("room:aaaaaaaa", SPECIAL, "room:cccccccc"), (first, second, third), strict=True)
        assert sorted(found) == sorted(
            (name, each.seq, "room", "acme", 90, each.chain, each.bytes) for name, each in expected
        )
    report = verify_database(any_database.url("auditor"))
    assert (report.ok, report.events) == (True, 6)


def test_where_a_name_is_taken_the_long_path_says_so_and_begins_the_others(any_database: Any) -> None:
    with any_database.connect("app") as app:
        append(app, creation(event(), stream="room:aaaaaaaa"))
    taken, twice = sent(
        any_database,
        [new("room:aaaaaaaa"), new("room:bbbbbbbb")],
        [new("room:cccccccc"), new("room:cccccccc")],
    )
    assert [each.kind for each in taken] == ["conflict", "appended"]
    assert [each.kind for each in twice] == ["appended", "conflict"]
    with any_database.connect("app") as app:
        assert one(app, "SELECT count(*) FROM minutebook.events") == 3


def test_a_name_that_somebody_takes_at_the_same_moment_makes_nothing_twice(any_database: Any) -> None:
    async def run() -> None:
        async with make_pool(any_database.url("app"), "app", max_size=4, statement_timeout_ms=5000) as pool:
            sessions = [await DirectSession.open(pool) for _ in range(4)]
            names = [f"room:{n:08d}" for n in range(20)]
            answers = await asyncio.gather(
                *(append_call.send(each, [new(name) for name in names], notify=False) for each in sessions)
            )
            for session in sessions:
                await session.close()
            for of_one in zip(*answers, strict=True):
                assert sorted(each.kind for each in of_one) == ["appended", *["conflict"] * 3]

    asyncio.run(run())
    with any_database.connect("app") as app:
        assert one(app, "SELECT count(*) FROM minutebook.events") == 20
