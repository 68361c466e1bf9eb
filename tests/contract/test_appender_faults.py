"""An append whose answer is lost: told from somebody else's by its own ids, never stored twice (law 3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from append_helpers import append as append_sql
from append_helpers import creation, event, item, one, until, until_blocked
from appender_helpers import Pool, Proxy, appending, create, fenced, keyed, kinds, row, rows
from minutebook.commands.ports import Append
from minutebook.domain.errors import Unavailable
from minutebook.infra.postgres import pool as pool_module
from minutebook.infra.postgres.appender import Appender
from psycopg.conninfo import conninfo_to_dict

ROOM = "room:aaaaaaaa"

Body = Callable[[Appender, Pool, Proxy], Coroutine[Any, Any, None]]


@pytest.fixture
def log(database: Any) -> Any:
    """The app's session past the proxy: what others do, and what was stored."""
    with database.connect("app") as connection:
        append_sql(connection, creation(event(), event()))
        yield connection


def through_proxy(database: Any, body: Body, **options: Any) -> None:
    settings = conninfo_to_dict(database.url())

    async def go() -> None:
        proxy = Proxy(str(Path(str(settings["host"])) / f".s.PGSQL.{settings['port']}"))
        await proxy.start()
        url = f"postgresql://minutebook_app@127.0.0.1:{proxy.port}/{settings['dbname']}?sslmode=disable&gssencmode=disable"
        try:
            async with appending(url, **options) as (appender, pool):
                await body(appender, pool, proxy)
        finally:
            await proxy.stop()

    asyncio.run(go())


def stored(log: Any, seq: int) -> tuple[Any, ...]:
    return log.execute(
        "SELECT e.seq, e.id, encode(e.hash, 'hex'),"
        " to_char(e.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),"
        " (SELECT sum(b.bytes)::bigint FROM minutebook.events b WHERE b.stream_id = 1 AND b.seq <= e.seq)"
        " FROM minutebook.events e WHERE e.stream_id = 1 AND e.seq = %s",
        (seq,),
    ).fetchone()


def test_law_3_an_append_whose_answer_was_lost_is_known_as_its_own(database: Any, log: Any) -> None:
    """Plain, keyed and fenced items; by the time of the second try others have appended and taken the lease."""

    def others() -> None:
        append_sql(log, item(5, event({"text": "somebody else, later and longer"})))
        log.execute("SELECT minutebook.lease_take_v1(%s, 'run', 'h2', 0)", (ROOM,))

    async def body(appender: Appender, _: Pool, proxy: Proxy) -> None:
        log.execute("SELECT minutebook.lease_take_v1(%s, 'run', 'h1', 60)", (ROOM,))
        unlucky = row("unlucky")
        proxy.lose(unlucky.id, lands=True, meanwhile=others)
        items = [
            Append(ROOM, 2, [unlucky, row()], fence=fenced(1)),
            Append(ROOM, 4, rows(1), key=keyed("k")),
            Append(ROOM, 9, rows(1)),
            create("room:bbbbbbbb"),
        ]
        first, second, loser, created = await appender.append(items)
        assert proxy.lost == 1
        assert [first.kind, second.kind, loser.kind, created.kind] == ["appended", "appended", "conflict", "appended"]
        for outcome, seq in ((first, 4), (second, 5)):
            assert (outcome.seq, outcome.event_id, outcome.chain, outcome.ts, outcome.bytes) == stored(log, seq)
        assert (second.status, msgspec.json.decode(second.body or "")["seq"]) == (201, 5)
        assert loser.seq == 6

    through_proxy(database, body)
    assert one(log, "SELECT count(*) FROM minutebook.events WHERE stream_id = 1") == 6
    assert one(log, "SELECT count(*) FROM minutebook.events") == 7


def test_a_seal_whose_answer_was_lost_is_known_as_its_own(database: Any, log: Any) -> None:
    async def body(appender: Appender, _: Pool, proxy: Proxy) -> None:
        unlucky = row()
        proxy.lose(unlucky.id, lands=True)
        (outcome,) = await appender.append([Append(ROOM, 2, [unlucky], seal=True)])
        assert (outcome.kind, outcome.seq) == ("appended", 3)
        (after,) = await appender.append([Append(ROOM, 3, rows(1))])
        assert after.kind == "sealed"

    through_proxy(database, body)


@pytest.mark.parametrize("others_append", [False, True])
def test_a_request_that_was_lost_is_sent_again_and_meets_others_as_a_conflict(
    database: Any, log: Any, others_append: bool
) -> None:
    async def body(appender: Appender, _: Pool, proxy: Proxy) -> None:
        unlucky = row()
        meanwhile = (lambda: append_sql(log, item(2, event(), event()))) if others_append else (lambda: None)
        proxy.lose(unlucky.id, lands=False, meanwhile=meanwhile)
        (outcome,) = await appender.append([Append(ROOM, 2, [unlucky], key=keyed("k"))])
        assert proxy.lost == 1
        assert (outcome.kind, outcome.seq) == (("conflict", 4) if others_append else ("appended", 3))

    through_proxy(database, body)
    assert one(log, "SELECT count(*) FROM minutebook.idempotency") == (0 if others_append else 1)


def test_every_answer_lost_ends_as_a_503_and_the_append_is_there_once(database: Any, log: Any) -> None:
    """The outcome is unknown, and says so; the retry with the same key gets the first answer."""

    async def body(appender: Appender, _: Pool, proxy: Proxy) -> None:
        unlucky = row()

        def again() -> None:
            proxy.lose(unlucky.id, lands=True, meanwhile=again)

        again()
        with pytest.raises(Unavailable, match="same idempotency key"):
            await appender.append([Append(ROOM, 2, [unlucky], key=keyed("k"))])
        assert proxy.lost == 4
        proxy.lose("nothing", lands=True)
        (outcome,) = await appender.append([Append(ROOM, 2, [row()], key=keyed("k"))])
        assert (outcome.kind, outcome.status) == ("duplicate", 201)

    through_proxy(database, body)
    assert one(log, "SELECT count(*) FROM minutebook.events") == 3


def test_b81_a_database_that_is_down_is_a_503_and_comes_back_without_a_restart(
    database: Any, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "POOL_TIMEOUT_S", 0.5)

    async def body(appender: Appender, pool: Pool, proxy: Proxy) -> None:
        assert kinds(await appender.append([Append(ROOM, 2, rows(1))])) == ["appended"]
        await proxy.stop()
        began = asyncio.get_running_loop().time()
        calls = [appender.append([Append(ROOM, 3, rows(1))]), appender.append([create("room:bbbbbbbb")])]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [Unavailable, Unavailable]
        assert asyncio.get_running_loop().time() - began < 5
        await proxy.start()
        await pool.wait(timeout=20)
        assert kinds(await appender.append([Append(ROOM, 3, rows(1))])) == ["appended"]

    through_proxy(database, body)
    assert one(log, "SELECT count(*) FROM minutebook.events") == 4


def test_a_lock_timeout_is_tried_again(database: Any, log: Any) -> None:
    """The session's lock_timeout ends the first try while another writer holds the room; then that writer is done."""

    async def body(appender: Appender, pool: Pool, _: Proxy) -> None:
        async with pool.connection() as connection:
            await connection.execute("SET lock_timeout = '50ms'")
            pid = connection.info.backend_pid
        log.autocommit = False
        append_sql(log, item(2, event()))
        with database.connect("postgres") as superuser:
            waiting = asyncio.create_task(appender.append([Append(ROOM, 2, rows(1))]))
            await asyncio.to_thread(until_blocked, superuser, pid)
            given_up = "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = %s"
            await asyncio.to_thread(until, superuser, given_up, pid)
        log.commit()
        (outcome,) = await waiting
        assert (outcome.kind, outcome.seq) == ("conflict", 3)

    through_proxy(database, body, connections=1)
