"""Marks of presence: how often, how many, and what becomes of those that could not be kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from appender_helpers import Pool, row
from appender_helpers import run as with_database
from minutebook.commands import attendance
from minutebook.commands.attendance import Attendance
from minutebook.commands.ports import Append, Creation
from minutebook.domain.principals import Caller, Principal
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.presence import PostgresPresence

ROOM = "aaaaaaaa"
BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def person(name: str) -> Caller:
    """A person of some tenant."""
    return Caller(Principal("human", name), "acme")


class Clock:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)


def in_room(database: Any, body: Callable[[PostgresPresence, Clock], Coroutine[Any, Any, None]]) -> None:
    """Run a test's body beside a database that has the room."""

    async def go(appender: Appender, pool: Pool) -> None:
        await appender.append([Append(f"room:{ROOM}", 0, [row()], create=Creation("room", "acme", 90))])
        await body(PostgresPresence(pool), Clock())

    with_database(go, database.url())


def test_one_mark_in_the_interval_and_the_last_one_in_the_end(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "TICK_S", 0.01)

    async def body(presence: PostgresPresence, clock: Clock) -> None:
        book = Attendance(presence, clock, 30)
        book.start()
        book.acted(ROOM, person("ann"))
        await until(lambda: kept(presence, "ann"), lambda mark: mark is not None and mark.acted_at == BEGIN)
        clock.pass_(29)
        book.seen(ROOM, person("ann"))
        book.seen(ROOM, person("bob"))  # written before or with ann's, if hers were due
        await until(lambda: kept(presence, "bob"), lambda mark: mark is not None)
        assert (await kept(presence, "ann")).seen_at == BEGIN
        clock.pass_(1)
        await until(lambda: kept(presence, "ann"), lambda mark: mark.seen_at == BEGIN + timedelta(seconds=29))
        assert (await kept(presence, "ann")).acted_at == BEGIN
        clock.pass_(1)
        book.acted(ROOM, person("ann"))
        await book.close()
        assert (await kept(presence, "ann")).acted_at == BEGIN + timedelta(seconds=31)

    in_room(database, body)


def test_the_later_time_stands_whoever_writes_last(database: Any) -> None:
    async def body(presence: PostgresPresence, clock: Clock) -> None:
        early, late = Attendance(presence, clock, 30), Attendance(presence, clock, 30)
        early.acted(ROOM, person("ann"))
        clock.pass_(5)
        late.seen(ROOM, person("ann"))
        await late.close()
        await early.close()
        mark = await kept(presence, "ann")
        assert (mark.seen_at, mark.acted_at) == (BEGIN + timedelta(seconds=5), BEGIN)
        assert await presence.read("bbbbbbbb") == {}

    in_room(database, body)


def test_memory_is_bounded_and_a_room_that_is_gone_hurts_nobody(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "MAX_PEOPLE", 3)

    async def body(presence: PostgresPresence, clock: Clock) -> None:
        book = Attendance(presence, clock, 30)
        book.seen("gonegone", person("ann"))
        for name in ("ann", "bob", "cid", "ann", "dan"):
            book.seen(ROOM, person(name))
        await book.close()
        assert set(await presence.read(ROOM)) == {"human:ann", "human:cid", "human:dan"}
        assert await presence.read("gonegone") == {}

    in_room(database, body)


async def kept(presence: PostgresPresence, name: str) -> Any:
    """What is kept of a person."""
    return (await presence.read(ROOM)).get(f"human:{name}")


async def until(look: Callable[[], Coroutine[Any, Any, Any]], check: Callable[[Any], bool]) -> None:
    """Look until it holds, 10 s at most."""
    async with asyncio.timeout(10):
        while not check(await look()):  # noqa: ASYNC110 - nobody announces what a table holds
            await asyncio.sleep(0.01)
