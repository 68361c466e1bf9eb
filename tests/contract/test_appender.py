"""The group commit: what many callers hand in goes in few transactions, and each gets its own answer."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import msgspec
import pytest
from append_helpers import one, until
from appender_helpers import Pool, appending, create, fenced, keyed, kinds, row, rows, run
from minutebook.commands.ports import Append, Outcome
from minutebook.domain.errors import Conflict, Damaged, Invalid, Unavailable
from minutebook.infra.postgres import appender as appender_module
from minutebook.infra.postgres import pool as pool_module
from minutebook.infra.postgres.appender import Appender

ROOM, OTHER = "room:aaaaaaaa", "room:bbbbbbbb"
CALLERS = 200


@pytest.fixture
def log(database: Any) -> Any:
    """A session that looks at what was stored."""
    with database.connect("postgres") as superuser:
        yield superuser


def test_many_callers_share_few_transactions_and_each_gets_its_own_answer(database: Any, log: Any) -> None:
    async def go(appender: Appender, _: Pool) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    appender.append([create(f"room:n{n}", *rows(1 + n % 3)), Append(f"room:n{n}", 9, rows(1))])
                )
                for n in range(CALLERS)
            ]
        for n, task in enumerate(tasks):
            first, second = task.result()
            assert (first.kind, first.seq) == ("appended", 1 + n % 3)
            assert (second.kind, second.seq, second.chain) == ("conflict", first.seq, first.chain)
            stored = log.execute(
                "SELECT e.id, encode(e.hash, 'hex') FROM minutebook.events e"
                " JOIN minutebook.streams s ON s.id = e.stream_id WHERE s.name = %s AND e.seq = %s",
                (f"room:n{n}", first.seq),
            ).fetchone()
            assert stored == (first.event_id, first.chain)

    run(go, database.url())
    assert one(log, "SELECT count(*) FROM minutebook.streams") == CALLERS
    assert one(log, "SELECT count(DISTINCT xmin::text) FROM minutebook.events") <= 4


def test_a_batch_is_bounded_and_one_larger_group_goes_alone(database: Any, log: Any) -> None:
    async def go(appender: Appender, _: Pool) -> None:
        sizes = [300, 300, 1200, 10, 20]
        results = await asyncio.gather(
            *(appender.append([create(f"room:n{n}", *rows(size))]) for n, size in enumerate(sizes))
        )
        assert [outcomes[0].seq for outcomes in results] == sizes

    run(go, database.url())
    batches = log.execute("SELECT count(*) FROM minutebook.events GROUP BY xmin::text ORDER BY 1").fetchall()
    assert [count for (count,) in batches] == [30, 300, 300, 1200]


@pytest.mark.parametrize("writers", [1, 3])
def test_law_3_the_same_key_by_two_callers_at_once_has_one_effect(database: Any, log: Any, writers: int) -> None:
    async def go(appender: Appender, _: Pool) -> None:
        await appender.append([create(ROOM)])
        keyed_ones = [[Append(ROOM, 1, rows(2), key=keyed("k"))] for _ in range(5)]
        creations = [[create(f"room:c{n}", key=keyed("new"))] for n in range(5)]
        results = await asyncio.gather(*(appender.append(items) for items in keyed_ones + creations))
        for some in (results[:5], results[5:]):
            words = kinds([outcome for outcomes in some for outcome in outcomes])
            assert sorted(words) == ["appended"] + ["duplicate"] * 4
            assert len({outcomes[0].body for outcomes in some}) == 1

    run(go, database.url(), writers=writers, connections=3)
    if writers == 1:
        # The second waits for the next batch: nothing was tried that had to be rolled back.
        gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'minutebook app'"
        until(log, gone)
        assert one(log, "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()") == 0
    assert one(log, "SELECT count(*) FROM minutebook.events") == 4
    assert one(log, "SELECT count(*) FROM minutebook.streams") == 2


def test_law_3_the_same_key_twice_in_one_call_has_one_effect(database: Any, log: Any) -> None:
    """A mailbox may hold a command and its retry at the same moment, and hand both in at once."""

    async def go(appender: Appender, _: Pool) -> None:
        await appender.append([create(ROOM)])
        outcomes = await appender.append(
            [
                Append(ROOM, 1, rows(1), key=keyed("k")),
                Append(ROOM, 2, rows(1)),
                Append(ROOM, 3, rows(1), key=keyed("k")),
                Append(ROOM, 3, rows(1), key=keyed("l")),
                Append(ROOM, 4, rows(1), key=keyed("k", fingerprint="ff")),
            ]
        )
        assert kinds(outcomes) == ["appended", "appended", "duplicate", "appended", "key_reused"]
        assert outcomes[2].body == outcomes[0].body
        assert [outcome.seq for outcome in outcomes] == [2, 3, 3, 4, 4]

    run(go, database.url())
    assert one(log, "SELECT version FROM minutebook.streams") == 4


def bad_ones() -> dict[str, tuple[Append, type[Exception]]]:
    """Items that cannot be stored, each for another reason, with what its caller gets to know."""
    long_key = secrets.token_hex(6000)
    twice = (row(origin_client="b", origin_key="1"), row(origin_client="b", origin_key="1"))
    return {
        "NUL": (create("room:bad1", row(payload=msgspec.Raw(b'{"text":"a\\u0000b"}'))), Invalid),
        "a lone surrogate": (create("room:bad2", row(actor_role="\ud800")), Invalid),
        "no JSON": (create("room:bad3", row(payload=msgspec.Raw(b"{"))), Invalid),
        "a number beyond bigint": (create("room:bad4", row(caused_by=2**63)), Invalid),
        "a number beyond 64 bits": (create("room:bad5", row(caused_by=2**70)), Invalid),
        "an index row too long": (create("room:bad6", row(origin_client="b", origin_key=long_key)), Invalid),
        "no payload": (create("room:bad7", row(payload=msgspec.Raw(b"null"))), Invalid),
        "NUL in a name": (Append("room:\0", 1, rows(1)), Invalid),
        "a name too long": (create("room:" + "x" * 400), Damaged),
        "a number twice": (create("room:bad8", *twice), Conflict),
        "an id that is none": (create("room:bad9", msgspec.structs.replace(row(), id="x")), Damaged),
    }


def test_what_cannot_be_stored_is_the_answer_of_its_own_caller_alone(database: Any, log: Any) -> None:
    bad = bad_ones()

    async def go(appender: Appender, _: Pool) -> None:
        for n, (what, (item, error)) in enumerate(bad.items()):
            before, refused, after = await asyncio.gather(
                appender.append([create(f"room:before{n}")]),
                appender.append([create(f"room:neighbour{n}"), item]),
                appender.append([create(f"room:after{n}")]),
                return_exceptions=True,
            )
            assert type(refused) is error, f"{what}: {refused!r}"
            for result in (before, after):
                assert isinstance(result, list), f"{what}: {result!r}"
                assert kinds(result) == ["appended"]

    run(go, database.url())
    names = [name for (name,) in log.execute("SELECT name FROM minutebook.streams")]
    assert sorted(names) == sorted(f"room:{place}{n}" for n in range(len(bad)) for place in ("before", "after"))


def test_a_caller_that_goes_away_undoes_nothing_and_disturbs_nobody(database: Any, log: Any) -> None:
    async def go(appender: Appender, _: Pool) -> None:
        leaving = [asyncio.create_task(appender.append([create(f"room:gone{n}")])) for n in range(20)]
        failing = asyncio.create_task(appender.append([create("room:bad", row(actor_role="\ud800"))]))
        staying = asyncio.create_task(appender.append([create(ROOM)]))
        await asyncio.sleep(0)
        for task in (*leaving, failing):
            task.cancel()
        assert kinds(await staying) == ["appended"]
        assert kinds(await appender.append([Append(ROOM, 1, rows(1))])) == ["appended"]

    run(go, database.url())
    assert one(log, "SELECT count(*) FROM minutebook.streams") == 21


def test_close_writes_what_is_queued_and_then_takes_no_more(database: Any, log: Any) -> None:
    async def go() -> None:
        async with appending(database.url()) as (appender, _):
            tasks = [asyncio.create_task(appender.append([create(f"room:n{n}", *rows(20))])) for n in range(60)]
            await asyncio.sleep(0)
            await appender.close()
            assert all(task.done() for task in tasks)
            assert {outcome.kind for task in tasks for outcome in task.result()} == {"appended"}
            with pytest.raises(Unavailable, match="stopping"):
                await appender.append([create(ROOM)])

    asyncio.run(go())
    assert one(log, "SELECT count(*) FROM minutebook.events") == 60 * 20


def test_a_full_queue_refuses_at_once(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender_module, "MAX_QUEUED_GROUPS", 3)

    async def go(appender: Appender, _: Pool) -> None:
        calls = [asyncio.create_task(appender.append([create(f"room:n{n}")])) for n in range(5)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [list, list, list, Unavailable, Unavailable]
        assert isinstance(results[4], Unavailable)
        assert results[4].attributes["retryAfterMs"] > 0

    run(go, database.url())


def test_b81_no_free_connection_is_a_503_within_one_wait_for_everybody_who_queued(
    database: Any, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_s = 0.5
    monkeypatch.setattr(pool_module, "POOL_TIMEOUT_S", wait_s)
    monkeypatch.setattr(appender_module, "MAX_BATCH_GROUPS", 4)

    async def go(appender: Appender, pool: Pool) -> None:
        loop = asyncio.get_running_loop()
        async with pool.connection():
            began = loop.time()
            calls = [appender.append([create(f"room:n{n}")]) for n in range(40)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(result) for result in results] == [Unavailable] * 40
            assert wait_s <= loop.time() - began < 4 * wait_s  # ten batches, and no try after the first wait
        assert kinds(await appender.append([create("room:n0")])) == ["appended"]

    run(go, database.url(), connections=1)
    assert one(log, "SELECT count(*) FROM minutebook.streams") == 1


def test_the_answer_of_a_batch_names_each_item(database: Any) -> None:
    async def go(appender: Appender, _: Pool) -> None:
        outcomes = await appender.append(
            [
                create(ROOM, key=keyed("new")),
                Append(ROOM, 1, rows(1), fence=fenced(1)),
                Append(ROOM, 1, rows(1), seal=True),
                Append(ROOM, 2, rows(1)),
                Append(OTHER, 0, rows(1)),
            ]
        )
        assert kinds(outcomes) == ["appended", "fenced", "appended", "sealed", "conflict"]
        first, sealed = outcomes[0], outcomes[3]
        assert msgspec.json.decode(first.body or "") == {
            "ok": True,
            "seq": 1,
            "id": first.event_id,
            "chain": first.chain,
        }
        assert sealed == Outcome("sealed", 2, None, outcomes[2].chain, None, outcomes[2].bytes, None, None)

    run(go, database.url())
