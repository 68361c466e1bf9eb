"""The optional audit feed: dense positions that no later commit can come below (law 1, fault B01)."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from append_helpers import (
    Background,
    append,
    as_role,
    creation,
    event,
    events,
    item,
    key,
    one,
    outcomes,
    run,
    until_blocked,
)

A, B, C = "room:aaaaaaaa", "room:bbbbbbbb", "room:cccccccc"
WRITERS = 20
ROUNDS = 25
EVENTS_A_ROUND = 3

FEED = "SELECT f.position, s.name, f.seq FROM minutebook.feed f JOIN minutebook.streams s ON s.id = f.stream_id"


def switch(database: Any, is_on: bool) -> None:
    with database.connect("postgres") as superuser:
        as_role(superuser, "owner")
        run(superuser, f"SELECT minutebook.feed_switch_v1({is_on})")


@pytest.fixture
def app(any_database: Any) -> Any:
    """Two rooms of one event, numbered 1 and 2 by the feed."""
    switch(any_database, True)
    with any_database.connect("app") as connection:
        append(connection, creation(stream=A))
        append(connection, creation(stream=B))
        advance(connection)
        yield connection


def advance(connection: psycopg.Connection, limit: int = 10_000) -> int:
    return one(connection, "SELECT minutebook.feed_advance_v1(%s)", limit)


def delivered(connection: psycopg.Connection, after: int = 0) -> list[tuple[int, str, int]]:
    return run(connection, f"{FEED} WHERE f.position > {after} ORDER BY f.position").fetchall()


def assert_complete(connection: psycopg.Connection) -> None:
    """Every stored event once, positions dense from 1, each stream in its own order."""
    rows = delivered(connection)
    stored = connection.execute(
        "SELECT s.name, e.seq FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
    ).fetchall()
    assert [position for position, _, _ in rows] == list(range(1, len(stored) + 1))
    assert sorted((name, seq) for _, name, seq in rows) == sorted(stored)
    last: dict[str, int] = {}
    for _, name, seq in rows:
        assert seq == last.get(name, 0) + 1, f"{name} is out of order at {seq}"
        last[name] = seq
    assert one(connection, "SELECT count(*) FROM minutebook.feed_queue") == 0


def test_b01_nothing_is_delivered_past_a_writer_that_may_still_commit(any_database: Any, app: Any) -> None:
    with any_database.connect("app") as slow:
        slow.autocommit = False
        append(slow, item(1, event(), stream=A))
        append(app, item(1, event(), stream=B))
        append(app, creation(*events(2), stream=C))
        assert advance(app) == 2
        assert delivered(app, after=2) == []
        slow.commit()
    assert advance(app) == 6
    assert delivered(app, after=2) == [(3, A, 2), (4, B, 2), (5, C, 1), (6, C, 2)]
    assert_complete(app)


def test_b01_an_older_writer_that_commits_first_is_not_held_up_and_a_rollback_leaves_no_hole(
    any_database: Any, app: Any
) -> None:
    with any_database.connect("app") as older, any_database.connect("app") as younger:
        older.autocommit = younger.autocommit = False
        append(older, item(1, event(), stream=A))
        append(younger, item(1, event(), stream=B))
        older.commit()
        assert advance(app) == 3
        assert delivered(app, after=2) == [(3, A, 2)]
        younger.rollback()
    append(app, item(2, event(), stream=A))
    assert advance(app) == 4
    assert_complete(app)


def test_b01_a_stream_keeps_its_order_though_its_writers_got_their_ids_in_another(any_database: Any, app: Any) -> None:
    """The first writer has its transaction id before it comes to room A, where a second writer was faster."""
    with any_database.connect("app") as early:
        early.autocommit = False
        append(early, creation(stream=C, **key("early")))
        append(app, item(1, event(), stream=A))
        assert outcomes(append(early, item(2, event(), stream=A))) == ["appended"]
        append(app, item(1, event(), stream=B))
        early.commit()
    # One range at a time, so that a wrong order would show across calls too.
    heads = [advance(app, 1) for _ in range(4)]
    assert heads == [3, 4, 5, 6]
    assert_complete(app)


@pytest.mark.timeout(120)
def test_b01_twenty_writers_with_random_holds_lose_nothing(any_database: Any, app: Any) -> None:
    names = [f"room:w{letter}" for letter in "abcdefghij"]
    append(app, *(creation(stream=name) for name in names))

    def write(writer: int) -> int:
        draw = random.Random(writer)  # noqa: S311 - a repeatable pattern, no secret
        appended = 0
        with any_database.connect("app") as connection:
            connection.autocommit = False
            for n in range(ROUNDS):
                mine = f"room:own{writer}"
                batch = [creation(*events(EVENTS_A_ROUND - 1), stream=f"{mine}x{n}")]
                append(connection, *batch)
                shared = draw.choice(names)
                head = one(connection, "SELECT version FROM minutebook.streams WHERE name = %s", shared)
                appended += append(connection, item(head, event(), stream=shared))[0].outcome == "appended"
                connection.execute("SELECT pg_sleep(%s)", (draw.random() * 0.02,))
                if draw.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()
        return appended

    seen: list[tuple[int, str, int]] = []
    with any_database.connect("auditor") as follower, ThreadPoolExecutor(WRITERS) as pool:
        writers = [pool.submit(write, n) for n in range(WRITERS)]
        while not all(writer.done() for writer in writers):
            advance(follower)
            seen += delivered(follower, after=seen[-1][0] if seen else 0)
        assert sum(writer.result() for writer in writers) > WRITERS
        advance(follower)
        seen += delivered(follower, after=seen[-1][0])
    assert seen == delivered(app)
    assert len(seen) > WRITERS * ROUNDS * (EVENTS_A_ROUND - 1) * 0.8
    assert_complete(app)


def test_switching_on_later_delivers_what_was_stored_before_and_meanwhile(any_database: Any) -> None:
    with any_database.connect("app") as app:
        append(app, creation(*events(3), stream=A), creation(*events(2), stream=B))
        assert advance(app) == 0
        switch(any_database, True)
        assert advance(app) == 5
        append(app, item(3, event(), stream=A))
        switch(any_database, False)  # what is queued is not lost with it
        append(app, item(2, event(), stream=B))
        switch(any_database, True)
        switch(any_database, True)
        append(app, item(3, event(), stream=B))
        assert advance(app) == 8
        assert_complete(app)


def test_switching_on_waits_for_the_appends_under_way(any_database: Any) -> None:
    with any_database.connect("app") as app, any_database.connect("postgres") as superuser:
        append(app, creation(stream=A), creation(stream=B))
        app.autocommit = False
        append(app, item(1, event(), stream=A))
        as_role(superuser, "owner")
        switching = Background(lambda: superuser.execute("SELECT minutebook.feed_switch_v1(true)"))
        with any_database.connect("postgres") as watcher, any_database.connect("app") as late:
            until_blocked(watcher, superuser.info.backend_pid)
            waiting = Background(lambda: append(late, item(1, event(), stream=B)))
            until_blocked(watcher, late.info.backend_pid)
            app.commit()
            switching.result()
            assert outcomes(waiting.result()) == ["appended"]
        app.autocommit = True
        assert advance(app) == 4
        assert_complete(app)


def test_an_advance_that_is_killed_leaves_everything_to_the_next(any_database: Any, app: Any) -> None:
    append(app, item(1, *events(5), stream=A), item(1, event(), stream=B))
    with any_database.connect("app") as doomed, any_database.connect("postgres") as superuser:
        doomed.autocommit = False
        assert advance(doomed) == 8
        next_one = Background(lambda: advance(app))
        until_blocked(superuser, app.info.backend_pid)
        superuser.execute("SELECT pg_terminate_backend(%s, 10000)", (doomed.info.backend_pid,))
        assert next_one.result() == 8
        with pytest.raises(psycopg.OperationalError):
            doomed.execute("SELECT 1")
    assert_complete(app)


def test_many_that_advance_at_once_number_everything_once(any_database: Any, app: Any) -> None:
    append(app, *(creation(*events(3), stream=f"room:m{n}") for n in range(50)))
    for n in range(20):
        append(app, item(3, event(), stream=f"room:m{n}"))

    def go_on(_: int) -> None:
        with any_database.connect("auditor") as connection:
            for _ in range(20):
                advance(connection, 2)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(go_on, range(4)))
    advance(app)
    assert_complete(app)


def test_only_the_owner_switches_the_feed(any_database: Any) -> None:
    for role in ("app", "projector", "retention", "eraser", "auditor"):
        with any_database.connect(role) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT minutebook.feed_switch_v1(true)")
