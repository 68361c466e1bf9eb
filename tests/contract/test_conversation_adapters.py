"""The database side of conversations as commands see it: reads by key, work, replies on their way, ceilings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg
from append_helpers import append as append_batch
from append_helpers import creation, event, item
from append_helpers import run as execute
from appender_helpers import Pool, run
from minutebook.commands.conversations.ports import LEASE_TTL_S, RUNNER_LEASE, At, Delta, Position
from minutebook.commands.ports import Append, Creation, EventRow
from minutebook.domain.conversations.identity import Identity, identity_key
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.conversation_log import PostgresConversationLog
from minutebook.infra.postgres.deltas_table import CHECKED, PostgresDeltaTable
from minutebook.infra.postgres.store import PostgresStore
from minutebook.infra.postgres.token_ceiling import UNBOUNDED, PostgresTokenCeiling
from minutebook.infra.postgres.turn_seen import PostgresTurnSeen
from minutebook.infra.postgres.turn_work import PostgresTurnWork
from ulid_transform import ulid_now

A, B, C = (letter * 26 for letter in "abc")
ADA = Identity("human:ada", "acme")
BEN = Identity("human:ben")
FOR_ADA = Identity("system:desk", "acme", "human:ada")


def stored(type_: str, client: str | None = None, key: str | None = None, **payload: Any) -> EventRow:
    """An event as the scribe would write it."""
    raw = msgspec.Raw(msgspec.json.encode(payload))
    fields = {} if client is None else {"origin_client": client, "origin_key": key}
    return EventRow(ulid_now(), type_, 1, raw, "human", "ada", "client", **fields)


def record(ord_: int, type_: str = "user_recorded") -> EventRow:
    """A record with its ord."""
    return stored(type_, "ord", str(ord_), ord=ord_)


async def begin(appender: Appender, id_: str, owner: Identity, *more: EventRow, seal: bool = False) -> None:
    """Start a conversation."""
    rows = [stored("conversation_started", owner=msgspec.to_builtins(owner)), *more]
    made = Creation("conversation", "acme", 90)
    await appender.append([Append(f"conversation:{id_}", 0, rows, create=made, seal=seal)])


def seqs(found: Sequence[At]) -> list[int]:
    """Only the places."""
    return [each.event.seq for each in found]


def test_reads_of_a_conversation(database: Any) -> None:
    async def work(appender: Appender, pool: Pool) -> None:
        log = PostgresConversationLog(pool)
        context = stored("context_decided", "context", "7", turn=7)
        others = (record(1), context, stored("envelope_received"), record(2, "reply_recorded"), record(10))
        await begin(appender, A, ADA, *others, stored("conversation_closed"), seal=True)
        await begin(appender, B, ADA, record(1))
        found = await log.first(f"conversation:{A}", None)
        assert found is not None
        stream_id, tenant, first, newest = found
        assert newest is None
        assert (tenant, first.seq, first.type, first.actor_id) == ("acme", 1, "conversation_started", "ada")
        assert msgspec.json.decode(first.payload) == {"owner": {"actor": "human:ada", "tenant": "acme"}}
        assert await log.first(f"conversation:{C}", None) is None
        assert seqs(await log.at(stream_id, [5, 1, 99, 5])) == [1, 5]
        assert seqs(await log.by_ords(stream_id, [10, 1, 3, 10])) == [2, 6]
        one = (await log.by_ords(stream_id, [2]))[0]
        assert (one.event.type, one.event.origin_key, one.at.tzinfo is not None) == ("reply_recorded", "2", True)
        assert seqs(await log.records(stream_id, 0, 10)) == [2, 5, 6, 7]
        assert seqs(await log.records(stream_id, 2, 2)) == [5, 6]
        found_context = await log.context_of(stream_id, 7)
        assert found_context is not None
        assert found_context.event.seq == 3
        assert await log.context_of(stream_id, 1) is None

    run(work, database.url())


def test_the_list_of_an_owner_is_theirs_alone(database: Any) -> None:
    async def work(appender: Appender, pool: Pool) -> None:
        log = PostgresConversationLog(pool)
        for id_, owner in ((A, ADA), (B, BEN), (C, FOR_ADA), ("d" * 26, ADA), ("e" * 26, ADA)):
            await begin(appender, id_, owner, seal=id_ == A)

        async def listed(owner: Identity, limit: int = 9, before: str | None = None) -> list[str] | None:
            found = await log.listed(owner, owner, limit, before)
            return None if found is None else [each.conversation_id[0] for each in found]

        assert await listed(ADA) == ["e", "d", "a"]
        assert await listed(ADA, 2) == ["e", "d"]
        assert await listed(ADA, 2, "d" * 26) == ["a"]
        assert await listed(ADA, 2, A) == []
        assert await listed(BEN) == ["b"]
        assert await listed(FOR_ADA) == ["c"]
        assert await listed(Identity("human:ada")) == [], "no tenant is not any tenant"
        assert await listed(Identity("human:ben", "acme")) == []
        for foreign in (B, C, "z" * 26, "%", ""):
            assert await listed(ADA, 2, foreign) is None
        newest, oldest = (await log.listed(ADA, ADA, 9, None) or [])[::2]
        assert (newest.is_closed, oldest.is_closed) == (False, True)
        assert (oldest.first.event.type, oldest.first.at) == ("conversation_started", oldest.last_at)

    run(work, database.url())


def part(type_: str, who: Identity, seq: int) -> EventRow:
    """Somebody comes or goes."""
    return stored(type_, f"participant:{identity_key(who)}", f"{seq:016}", participant=msgspec.to_builtins(who))


def test_the_newest_of_a_persons_part_comes_with_the_first_event(database: Any) -> None:
    async def work(appender: Appender, pool: Pool) -> None:
        log = PostgresConversationLog(pool)
        gone, came = (part(f"participant_{what}", BEN, seq) for what, seq in (("removed", 4), ("added", 2)))
        await begin(appender, A, ADA, came, part("participant_added", ADA, 3), gone, stored("envelope_received"))
        await begin(appender, B, ADA, came)
        for id_, person, newest in ((A, BEN, 4), (A, ADA, 3), (A, FOR_ADA, None), (A, None, None), (B, BEN, 2)):
            found = await log.first(f"conversation:{id_}", person)
            assert found is not None
            assert found[2].type == "conversation_started"
            assert (None if found[3] is None else found[3].seq) == newest
        assert await log.first(f"conversation:{C}", BEN) is None

    run(work, database.url())


def test_a_list_has_what_one_started_and_what_one_takes_part_in(database: Any) -> None:
    async def work(appender: Appender, pool: Pool) -> None:
        log = PostgresConversationLog(pool)
        for id_ in (A, B, C, "d" * 26):
            await begin(appender, id_, ADA if id_ == B else FOR_ADA, part("participant_added", BEN, 2))
        await begin(appender, "e" * 26, BEN, stored("participant_added", participant={"actor": 7}))
        await appender.append([Append(f"conversation:{C}", 2, [part("participant_removed", BEN, 3)])])

        async def listed(person: Identity | None, limit: int = 9, before: str | None = None) -> str | None:
            found = await log.listed(BEN, person, limit, before)
            return None if found is None else "".join(each.conversation_id[0] for each in found)

        assert await listed(BEN) == "edba"
        assert await listed(BEN, 2) == "ed"
        assert await listed(BEN, 2, "d" * 26) == "ba"
        assert await listed(None) == "e"
        assert await listed(BEN, 9, C) is None, "who was removed has no place there"
        assert await listed(None, 9, B) is None
        newest = (await log.listed(BEN, BEN, 9, None) or [])[1].newest
        assert newest is not None
        assert (newest.seq, newest.type) == (2, "participant_added")

    run(work, database.url())


def test_work_is_due_while_nobody_holds_the_lease(database: Any) -> None:
    async def work(appender: Appender, pool: Pool) -> None:
        turns, store = PostgresTurnWork(pool), PostgresStore(pool, appender)
        await begin(appender, A, ADA, stored("envelope_received"))
        await begin(appender, B, ADA, stored("envelope_received"))
        await begin(appender, C, ADA)
        due = dict(await turns.due(9))
        assert set(due.values()) == {f"conversation:{A}", f"conversation:{B}"}
        assert len(await turns.due(1)) == 1
        epoch, _ = await store.take(f"conversation:{A}", RUNNER_LEASE, "r1", LEASE_TTL_S)
        assert [name for _, name in await turns.due(9)] == [f"conversation:{B}"]
        with database.connect("postgres") as superuser:
            age = "UPDATE minutebook.leases SET seen_at = seen_at - make_interval(secs => %s)"
            superuser.execute(age, (LEASE_TTL_S - 5,))
            assert len(await turns.due(9)) == 1
            superuser.execute(age, (5,))
            assert len(await turns.due(9)) == 2
        await store.take(f"conversation:{A}", RUNNER_LEASE, "r1", LEASE_TTL_S)
        await store.drop(f"conversation:{A}", RUNNER_LEASE, "r1", epoch + 1)
        assert len(await turns.due(9)) == 2
        for stream_id in due:
            await turns.done(stream_id, 1)
        assert len(await turns.due(9)) == 2
        for stream_id in due:
            await turns.done(stream_id, 2)
        assert await turns.due(9) == []

    run(work, database.url())


def test_deltas_are_read_from_where_a_viewer_stands(database: Any) -> None:
    async def work(appender: Appender, pool: Pool) -> None:
        table, store, log = PostgresDeltaTable(pool), PostgresStore(pool, appender), PostgresConversationLog(pool)
        ids: dict[str, int] = {}
        for id_ in (A, B):
            await begin(appender, id_, ADA)
            first = await log.first(f"conversation:{id_}", None)
            assert first is not None
            ids[id_] = first[0]
        a, b = ids[A], ids[B]
        epochs = {
            ids[id_]: (await store.take(f"conversation:{id_}", RUNNER_LEASE, "r1", LEASE_TTL_S))[0] for id_ in ids
        }

        def delta(stream_id: int, turn: int, attempt: int, offset: int, text: str) -> Delta:
            return Delta(stream_id, turn, attempt, offset, text, epochs[stream_id])

        async def behind(positions: dict[int, Position]) -> list[tuple[int, int, int, int, str]]:
            found = await table.behind(positions)
            assert all(each.epoch == CHECKED for each in found)
            return [(each.stream_id, each.turn, each.attempt, each.offset, each.text) for each in found]

        await table.put([])
        assert await behind({}) == []
        first = [delta(a, 1, 1, 0, ""), delta(a, 1, 1, 0, "grün 🌱"), delta(a, 1, 1, 6, "\0x"), delta(b, 3, 1, 0, "b")]
        await table.put(first)
        rows = [(a, 1, 1, 0, "grün 🌱"), (a, 1, 1, 6, "\N{REPLACEMENT CHARACTER}x"), (b, 3, 1, 0, "b")]
        assert await behind({b: Position(), a: Position()}) == rows
        assert await behind({a: Position(1, 1, 6)}) == rows[1:2]
        assert await behind({a: Position(1, 1, 5), b: Position(3, 1, 1)}) == rows[:2]
        assert await behind({a: Position(1, 1, 8), b: Position(4, 1, 0)}) == []
        await table.put([delta(a, 1, 2, 0, "")])
        assert await behind({a: Position(1, 1, 8)}) == [(a, 1, 2, 0, "")], "another attempt began"
        assert await behind({a: Position(), b: Position()}) == [(a, 1, 2, 0, ""), rows[2]]
        await table.put([delta(a, 2, 1, 0, "next")])
        await table.clear(a, 1)
        assert await behind({a: Position()}) == [(a, 2, 1, 0, "next")]
        await table.expire()
        with database.connect("postgres") as superuser:
            superuser.execute(
                "UPDATE minutebook.deltas SET put_at = put_at - interval '1 hour' WHERE stream_id = %s", (a,)
            )
        await table.expire()
        assert await behind({a: Position(), b: Position()}) == [rows[2]]

    run(work, database.url())


def test_what_was_seen_and_what_may_be_spent(database: Any) -> None:
    async def work(appender: Appender, pool: Pool) -> None:
        seen, tokens = PostgresTurnSeen(pool), PostgresTokenCeiling(pool)
        await begin(appender, A, ADA)
        first = await PostgresConversationLog(pool).first(f"conversation:{A}", None)
        assert first is not None
        assert await seen.of(first[0], 1) is None
        for offset in (4, 9, 2):
            await seen.note(first[0], 1, offset)
        assert await seen.of(first[0], 1) == 9
        assert await tokens.left(ADA, "echo", 100) == 100
        assert await asyncio.gather(*(tokens.reserve(f"e{n}", ADA, "echo", 30, 100) for n in range(4))) != [True] * 4
        assert await tokens.left(ADA, "echo", 100) == 10
        assert await tokens.left(FOR_ADA, "echo", 100) == await tokens.left(ADA, "other", 100) == 100
        for n in range(4):
            await tokens.settle(f"e{n}", 25)
            await tokens.settle(f"e{n}", 1000)
        assert await tokens.left(ADA, "echo", 100) == 25
        assert await tokens.left(ADA, "echo", 50) == 0
        assert await tokens.left(ADA, "echo", 0) == UNBOUNDED
        assert await tokens.reserve("free", ADA, "echo", 10**9, 0)
        await tokens.expire()
        assert await tokens.left(ADA, "echo", 10**10) == 10**10 - 75 - 10**9

    run(work, database.url())


def test_records_are_looked_up_by_their_key_whatever_the_statistics_say(database: Any) -> None:
    """Statistics that know two events a stream, and then one that is long: a plan of before must not walk it whole."""
    looked = ("events_pkey", "events_origin_key")

    def read(superuser: psycopg.Connection) -> int:
        sql = "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE indexrelname = ANY(%s)"
        row = superuser.execute(sql, (list(looked),)).fetchone()
        assert row is not None
        return row[0]

    async def work(appender: Appender, pool: Pool) -> None:
        log = PostgresConversationLog(pool)
        with database.connect("postgres") as superuser:
            execute(superuser, "ALTER TABLE minutebook.events SET (autovacuum_enabled = off)")
            many = [creation(event(), event(oc="ord", ok="1"), stream=f"conversation:n{n}") for n in range(1500)]
            append_batch(superuser, *many)
            execute(superuser, "ANALYZE minutebook.events")
            long = [event({"ord": n}, t="user_recorded", oc="ord", ok=str(n)) for n in range(1, 3001)]
            first = await log.first("conversation:n7", None)
            assert first is not None
            for _ in range(8):  # until the plan is the generic one
                await log.by_ords(first[0], list(range(1, 51)))
                await log.at(first[0], list(range(1, 51)))
            append_batch(superuser, item(2, *long[1:], stream="conversation:n7"))
            async with pool.connection() as connection:
                await connection.execute("SELECT pg_stat_force_next_flush()")
            before = read(superuser)
            assert len(await log.by_ords(first[0], list(range(2900, 2950)))) == 50
            assert len(await log.at(first[0], list(range(2900, 2950)))) == 50
            async with pool.connection() as connection:
                await connection.execute("SELECT pg_stat_force_next_flush()")
            execute(superuser, "SELECT pg_stat_clear_snapshot()")
            assert 100 <= read(superuser) - before <= 200

    run(work, database.url(), connections=1)
