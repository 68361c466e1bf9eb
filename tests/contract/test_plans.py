"""Every look-up of an append uses its primary key whatever the statistics say, and a long stream costs no more."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from append_helpers import (
    ROOM,
    Item,
    append,
    append_fenced,
    append_one,
    append_plain,
    creation,
    event,
    events,
    item,
    key,
    outcomes,
    run,
)

SMALL = "room:n7"
OTHERS = 3000
HOT_EVENTS = 6000
MAX_TUPLES = 40
"""Index entries that an append of one event may read, whatever the sizes: about twice what it does read."""

Plan = dict[str, Any]

INDEXES = {
    "events": {"events_pkey"},
    "streams": {"streams_pkey", "streams_name_key"},
    "idempotency": {"idempotency_pkey"},
    "leases": {"leases_pkey"},
}

MINE = "/* of the test */"
"""Marks the test's own statements, which are not shown."""

FENCE: Item = {"fencePurpose": "run", "fenceHolder": "h", "fenceEpoch": 1}


class Explained:
    """A session that shows the plan of every statement inside its functions and triggers."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        self.plans: list[Plan] = []
        for statement in (
            "LOAD 'auto_explain'",
            "SET auto_explain.log_min_duration = 0",
            "SET auto_explain.log_nested_statements = on",
            "SET auto_explain.log_format = json",
            "SET auto_explain.log_level = notice",
        ):
            run(connection, statement)
        connection.add_notice_handler(self._keep)

    def _keep(self, notice: psycopg.errors.Diagnostic) -> None:
        text = notice.message_primary or ""
        if "plan:" in text:
            self.plans.append(json.loads(text.split("plan:", 1)[1]))

    def of(self, work: Callable[[psycopg.Connection], object]) -> list[Plan]:
        """The plans of what `work` ran."""
        self.plans.clear()
        work(self.connection)
        return list(self.plans)


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def assert_by_primary_key(plans: list[Plan]) -> None:
    """No scan of our tables but by the named indexes; of events always by both columns or from the end."""
    seen: set[str] = set()
    for plan in plans:
        for node in nodes(plan["Plan"]):
            table = node.get("Relation Name", "")
            if table not in INDEXES or node["Node Type"] == "ModifyTable":
                continue
            assert node["Node Type"] in ("Index Scan", "Index Only Scan"), plan
            assert node["Index Name"] in INDEXES[table], plan
            condition = node.get("Index Cond", "")
            assert condition, f"{table} is walked whole: {plan}"
            if table == "events":
                assert "seq" in condition or node["Scan Direction"] == "Backward", plan
            seen.add(table)
    assert seen == set(INDEXES), "a look-up was not explained, so nothing was shown"


def assert_locks_in_id_order(plans: list[Plan]) -> None:
    """The rows are locked above the sort by id; otherwise two batches could wait for each other."""
    locks = [node for plan in plans for node in nodes(plan["Plan"]) if node["Node Type"] == "LockRows"]
    sorts = [lock["Plans"][0] for lock in locks if lock["Plans"][0]["Node Type"] == "Sort"]
    assert [re.sub(r"s\w*\.", "", sort["Sort Key"][0]) for sort in sorts] == ["((id + 0))"] * 5, (
        "long, set-wise, fenced"
    )
    assert len(locks) == 7, "the short path locks its one stream, before the set-wise one too"


def tuples_read(connection: psycopg.Connection, watcher: psycopg.Connection, work: Callable[[], object]) -> int:
    """Index entries of our tables that `work`, on `connection`, returned."""
    count = (
        "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE schemaname = 'minutebook'"
        " AND relname IN ('events', 'streams')"
    )

    def total() -> int:
        for session in (connection, watcher):  # each reports what it read when it next waits for a statement
            session.execute("SELECT pg_stat_force_next_flush()")
            session.execute("SELECT 1")
        row = watcher.execute(count).fetchone()
        assert row is not None
        return row[0]

    before = total()
    work()
    return total() - before


def analyze(superuser: psycopg.Connection) -> None:
    run(superuser, "ANALYZE " + ", ".join(f"minutebook.{table}" for table in INDEXES))


def head(connection: psycopg.Connection, stream: str) -> int:
    row = connection.execute(f"SELECT version {MINE} FROM minutebook.streams WHERE name = %s", (stream,)).fetchone()
    assert row is not None
    return row[0]


def grow(connection: psycopg.Connection) -> None:
    for first in range(0, OTHERS, 500):
        append(connection, *(creation(stream=f"room:n{n}") for n in range(first, first + 500)))


def heat(connection: psycopg.Connection) -> None:
    for first in range(head(connection, ROOM), HOT_EVENTS, 1000):
        append(connection, item(first, *events(1000)))


def stamp(connection: psycopg.Connection, stream: str, seq: int) -> None:
    """An event without a hash, which the row trigger stamps: the owner's way past the functions."""
    connection.execute(
        f"INSERT {MINE} INTO minutebook.events (stream_id, seq, id, type, schema_version, actor_kind, actor_id, origin,"
        " redactions, classes, payload) SELECT s.id, %s, '01ARZ3NDEKTSV4RRFFQ69G5FAV', 'message', 1, 'human', 'ada',"
        " 'client', '{}', '{}', '{}' FROM minutebook.streams s WHERE s.name = %s",
        (seq, stream),
    )


@pytest.mark.timeout(180)
def test_look_ups_use_the_primary_keys_whatever_the_statistics_say(any_database: Any) -> None:
    with any_database.connect("postgres") as old, any_database.connect("postgres") as superuser:
        for table in INDEXES:
            run(superuser, f"ALTER TABLE minutebook.{table} SET (autovacuum_enabled = off)")

        def full_append(connection: psycopg.Connection) -> None:
            batch = (
                item(head(connection, ROOM), event(), **key(str(head(connection, ROOM))), **FENCE),
                item(head(connection, SMALL), event(), stream=SMALL),
            )
            assert outcomes(append(connection, *batch)) == ["appended", "appended"]
            for name in (ROOM, SMALL):
                assert append_one(connection, name, head(connection, name)).startswith("appended ")
                assert append_plain(connection, {name: head(connection, name)}, [event()]) is not None
                stamp(connection, name, head(connection, name) + 1)
            held = [{"i": 1, "purpose": "run", "holder": "h", "epoch": 1}]
            assert append_fenced(connection, {ROOM: head(connection, ROOM)}, [event()], held) is not None

        def check(session: psycopg.Connection) -> None:
            explained = Explained(session)
            plans = [plan for plan in explained.of(full_append) if MINE not in plan["Query Text"]]
            assert_by_primary_key(plans)
            assert_locks_in_id_order(plans)

        def cost(session: psycopg.Connection, stream: str) -> int:
            at = head(session, stream)
            return tuples_read(session, superuser, lambda: append(session, item(at, event(), stream=stream)))

        # Plans made when the tables were known to be tiny, kept by a session that lives on.
        append(superuser, creation(), creation(stream="room:first"))
        analyze(superuser)
        for _ in range(6):
            append(old, item(head(old, ROOM), event()))
        old.execute("SELECT minutebook.lease_take_v1(%s, 'run', 'h', 3600)", (ROOM,))
        grow(superuser)
        assert cost(old, SMALL) <= MAX_TUPLES

        # Statistics that know one event a stream, then a stream that is hot.
        analyze(superuser)
        heat(superuser)
        with any_database.connect("postgres") as fresh:
            check(fresh)
            assert cost(fresh, ROOM) == cost(fresh, SMALL) <= MAX_TUPLES

        # Statistics that know the hot stream.
        analyze(superuser)
        with any_database.connect("postgres") as fresh:
            check(fresh)
            assert cost(fresh, ROOM) == cost(fresh, SMALL) <= MAX_TUPLES
        check(old)
        assert cost(old, ROOM) == cost(old, SMALL) <= MAX_TUPLES


def test_the_walk_over_a_stream_would_be_seen(any_database: Any) -> None:
    """The measure itself: reading a stream's events counts in it."""
    with any_database.connect("postgres") as superuser, any_database.connect("postgres") as session:
        append(session, creation(*events(300)))
        session.execute("SET enable_seqscan = off")
        session.execute("SET enable_bitmapscan = off")
        walk = "SELECT count(payload) FROM minutebook.events WHERE stream_id = 1"
        assert tuples_read(session, superuser, lambda: session.execute(walk)) >= 300
