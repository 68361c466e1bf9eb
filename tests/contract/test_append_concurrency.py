"""Many writers on the same streams: no deadlock, no gap, no lost append; nothing of what failed stays (B04, B06)."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
from append_helpers import (
    Background,
    Item,
    append,
    creation,
    event,
    events,
    item,
    key,
    one,
    outcomes,
    refused,
    until_blocked,
)

STREAMS = [f"room:s{n}" for n in "abcdef"]
ROUNDS = 60
WRITERS = 4


def heads(connection: psycopg.Connection) -> dict[str, int]:
    return dict(connection.execute("SELECT name, version FROM minutebook.streams").fetchall())


def assert_gapless(connection: psycopg.Connection) -> None:
    broken = connection.execute(
        "SELECT s.name FROM minutebook.streams s JOIN minutebook.events e ON e.stream_id = s.id GROUP BY s.id"
        " HAVING count(*) <> s.version OR min(e.seq) <> 1 OR max(e.seq) <> s.version OR sum(e.bytes) <> s.bytes"
        " OR (array_agg(e.hash ORDER BY e.seq DESC))[1] <> s.head_hash"
    ).fetchall()
    assert broken == []


def test_writers_that_meet_in_opposite_order_never_deadlock(any_database: Any) -> None:
    """Each batch takes the streams in an order of its own, some of them new, some items keyed, some refused."""
    with any_database.connect("app") as app:
        append(app, *(creation(stream=name) for name in STREAMS))

        def write(writer: int) -> int:
            draw = random.Random(writer)  # noqa: S311 - a repeatable order, no secret
            appended = 0
            with any_database.connect("app") as connection:
                for n in range(ROUNDS):
                    known = heads(connection)
                    order = STREAMS if writer % 2 else STREAMS[::-1]
                    batch: list[Item] = [item(known[name], event(), stream=name) for name in order]
                    batch[1] |= key(f"{writer} {n}", keyScope=order[1])
                    batch.insert(draw.randrange(6), creation(stream=f"room:new{draw.randrange(40)}", **key(f"new {n}")))
                    appended += outcomes(append(connection, *batch)).count("appended")
            return appended

        with ThreadPoolExecutor(WRITERS) as pool:
            counts = list(pool.map(write, range(WRITERS)))  # a deadlock would raise 40P01 here
        assert one(app, "SELECT count(*) FROM minutebook.events") == sum(counts) + len(STREAMS)
        assert min(counts) > 0
        assert_gapless(app)


def test_an_append_waits_only_for_writers_of_its_own_streams(any_database: Any) -> None:
    with any_database.connect("app") as holder, any_database.connect("app") as app:
        append(app, *(creation(stream=name) for name in STREAMS))
        holder.autocommit = False
        append(holder, item(1, event(), stream=STREAMS[0]), creation(stream="room:held", **key("held")))
        app.execute("SET lock_timeout = '2s'")
        others = append(app, *(item(1, event(), stream=name) for name in STREAMS[1:]), creation(stream="room:free"))
        assert outcomes(others) == ["appended"] * 6
        with any_database.connect("postgres") as superuser:
            waiting = Background(lambda: append(app, item(1, event(), stream=STREAMS[0])))
            until_blocked(superuser, app.info.backend_pid)
            holder.commit()
        (loser,) = waiting.result()
        assert (loser.outcome, loser.seq) == ("conflict", 2)


def test_b04_failed_appends_leave_no_hole(any_database: Any) -> None:
    """Refused, out of time, cancelled and killed appends; then one good one, which has the next number."""
    with any_database.connect("app") as app, any_database.connect("postgres") as superuser:
        append(app, creation(*events(2)))
        for _ in range(10):
            append(app, item(9, event()))
            with refused("22P05"):
                append(app, item(2, event(), event({"text": "\u0000"})))
        for ending in ("57014", "57P01"):
            with any_database.connect("app") as doomed:
                doomed.autocommit = False
                append(doomed, item(2, *events(3), **key("k")))
                if ending == "57014":
                    doomed.execute("SET LOCAL statement_timeout = '1ms'")
                    with refused(ending):
                        doomed.execute("SELECT pg_sleep(5)")
                else:
                    superuser.execute("SELECT pg_terminate_backend(%s, 10000)", (doomed.info.backend_pid,))
                    with refused(ending):
                        doomed.execute("SELECT 1")
        result = append(app, item(2, event(), **key("k")))[0]
        assert (result.outcome, result.seq) == ("appended", 3)
        assert_gapless(app)


def test_one_winner_for_each_place_in_a_stream(any_database: Any) -> None:
    with any_database.connect("app") as app:
        append(app, creation())

        def race(_: int) -> int:
            won = 0
            with any_database.connect("app") as connection:
                for _ in range(50):
                    seq = one(connection, "SELECT version FROM minutebook.streams")
                    won += append(connection, item(seq, event()))[0].outcome == "appended"
            return won

        with ThreadPoolExecutor(WRITERS) as pool:
            wins = sum(pool.map(race, range(WRITERS)))
        assert one(app, "SELECT version FROM minutebook.streams") == 1 + wins
        times = [ts for (ts,) in app.execute("SELECT ts FROM minutebook.events ORDER BY seq")]
        assert times == sorted(times)
        assert_gapless(app)
