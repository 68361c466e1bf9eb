"""Deltas of running replies: at once to viewers here, one batch a tick for all others, under the newest lease alone."""

from __future__ import annotations

import asyncio
from typing import Any

from conversation_desk import Desk, desk
from minutebook.commands.conversations.kind import stream_of
from minutebook.commands.conversations.ports import RUNNER_LEASE, Delta, Position
from minutebook.infra import deltas as deltas_module
from minutebook.infra.deltas import Deltas
from minutebook.infra.postgres.deltas_table import PostgresDeltaTable

TICK_S = 0.02


async def leased(here: Desk) -> tuple[int, int]:
    """Id of a conversation's stream, and the epoch of its runner's lease."""
    stream = stream_of(await here.start())
    epoch, _ = await here.store.take(stream, RUNNER_LEASE, "h1", 15)
    head = await here.store.head(stream)
    assert head is not None
    return head.id, epoch


async def kept(table: PostgresDeltaTable, stream_id: int, count: int) -> list[tuple[int, int, int, str]]:
    """The rows of the table, once there are so many."""
    async with asyncio.timeout(10):
        while len(rows := await table.behind({stream_id: Position()})) < count:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(TICK_S)
    return [(each.turn, each.attempt, each.offset, each.text) for each in rows]


def test_viewers_here_hear_at_once_and_others_by_the_table(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            stream_id, epoch = await leased(here)
            table = PostgresDeltaTable(here.pool)
            deltas = Deltas(table, TICK_S)
            deltas.start()
            heard: list[Delta] = []
            end = deltas.subscribe(stream_id, heard.append)
            deltas.began(stream_id, 1, 1, epoch)
            for number in range(50):
                deltas.put(Delta(stream_id, 1, 1, number * 2, "w ", epoch))
            assert len(heard) == 51  # nothing was awaited
            rows = await kept(table, stream_id, 1)
            assert "".join(text for _, _, _, text in rows) == "w " * 50
            assert len(rows) <= 3  # in one piece, or the first in one of its own
            end()
            deltas.put(Delta(stream_id, 1, 1, 100, "more", epoch))
            assert len(heard) == 51
            await deltas.ended(stream_id, 1)
            async with asyncio.timeout(10):
                while await table.behind({stream_id: Position()}):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(TICK_S)
            await deltas.close()
            assert deltas.dropped == 0

    asyncio.run(go())


def test_what_a_displaced_runner_says_reaches_nobody(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            stream_id, epoch = await leased(here)
            table = PostgresDeltaTable(here.pool)
            deltas = Deltas(table, TICK_S)
            deltas.start()
            deltas.put(Delta(stream_id, 1, 1, 0, "too late ", epoch - 1))
            deltas.put(Delta(stream_id, 1, 2, 0, "in time ", epoch))
            assert await kept(table, stream_id, 1) == [(1, 2, 0, "in time ")]
            await deltas.close()

    asyncio.run(go())


def test_what_is_over_the_bound_is_counted_and_what_the_database_refuses_waits(database: Any, monkeypatch: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            stream_id, epoch = await leased(here)
            table = PostgresDeltaTable(here.pool)
            deltas = Deltas(table, TICK_S)
            monkeypatch.setattr(deltas_module, "MAX_PENDING_CHARS", 10)
            deltas.put(Delta(stream_id, 1, 1, 0, "0123456789", epoch))
            deltas.put(Delta(stream_id, 1, 1, 10, "x", epoch))
            assert deltas.dropped == 1
            monkeypatch.setattr(deltas_module, "RETRY_S", TICK_S)
            with database.connect("postgres") as superuser:
                superuser.execute("ALTER TABLE minutebook.deltas RENAME TO away")
                deltas.start()
                await asyncio.sleep(5 * TICK_S)
                superuser.execute("ALTER TABLE minutebook.away RENAME TO deltas")
            assert await kept(table, stream_id, 1) == [(1, 1, 0, "0123456789")]
            await deltas.close()

    asyncio.run(go())
