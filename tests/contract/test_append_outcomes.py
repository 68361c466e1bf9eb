"""append_v1: each item has its own outcome, and an outcome says exactly where its stream stands."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from append_helpers import (
    APPEND,
    ROOM,
    Result,
    append,
    arguments,
    contents,
    creation,
    event,
    events,
    item,
    key,
    one,
    outcomes,
    refused,
    stream_id,
)

OTHER, THIRD = "room:bbbbbbbb", "room:cccccccc"
FENCE = {"fencePurpose": "run", "fenceHolder": "h1"}


@pytest.fixture
def app(any_database: Any) -> Any:
    with any_database.connect("app") as connection:
        yield connection


def assert_true(app: psycopg.Connection, results: list[Result], streams: list[str]) -> None:
    """What each result says of seq, chain and bytes is what the log holds up to that seq."""
    for result, stream in zip(results, streams, strict=True):
        row = app.execute(
            "SELECT coalesce(max(e.seq), 0), coalesce((array_agg(encode(e.hash, 'hex') ORDER BY e.seq DESC))[1], %s),"
            " coalesce(sum(e.bytes), 0), (array_agg(e.id ORDER BY e.seq DESC))[1] FROM minutebook.streams s"
            " JOIN minutebook.events e ON e.stream_id = s.id WHERE s.name = %s AND e.seq <= %s",
            ("0" * 64, stream, result.seq),
        ).fetchone()
        assert row is not None
        assert (result.seq, result.chain, result.bytes) == row[:3], result
        if result.event_id is not None:
            assert result.event_id == row[3]


def test_many_streams_in_a_batch_and_one_loser_aborts_no_other(app: Any) -> None:
    append(app, creation(*events(2)), creation(event(), stream=OTHER), creation(event(), stream=THIRD, seal=True))
    app.execute("SELECT minutebook.lease_take_v1(%s, 'run', 'h1', 60)", (ROOM,))
    batch = {
        "appended": item(1, *events(3), stream=OTHER),
        "conflict": item(9, event()),
        "sealed": item(1, event(), stream=THIRD),
        "fenced": item(2, event(), **FENCE, fenceEpoch=7),
        "appended ": item(2, event(), **FENCE, fenceEpoch=1),
        "conflict ": item(0, event(), stream="room:unknown0"),
    }
    results = append(app, *batch.values())
    assert outcomes(results) == [word.strip() for word in batch]
    assert [result.seq for result in results] == [4, 2, 1, 2, 3, 0]
    assert_true(app, results[:5], [OTHER, ROOM, THIRD, ROOM, ROOM])
    assert one(app, "SELECT count(*) FROM minutebook.streams") == 3


def test_items_of_one_stream_are_chained_within_the_batch(app: Any) -> None:
    results = append(
        app,
        creation(*events(2)),
        creation(event(), stream=OTHER),
        item(2, *events(2)),
        item(2, event()),
        item(4, event(), seal=True),
        item(5, event()),
    )
    assert outcomes(results) == ["appended", "appended", "appended", "conflict", "appended", "sealed"]
    assert [result.seq for result in results] == [2, 1, 4, 4, 5, 5]
    assert_true(app, results, [ROOM, OTHER, ROOM, ROOM, ROOM, ROOM])


def test_what_appends_nothing_answers_the_head_it_found_within_the_batch(app: Any) -> None:
    append(app, creation(*events(2), **key("old")))
    results = append(
        app,
        item(2),
        item(2, *events(2)),
        item(4, **key("empty")),
        item(2, event()),
        item(4, event(), **key("old")),
        item(4, event()),
        item(5),
    )
    expected = ["appended", "appended", "appended", "conflict", "duplicate", "appended", "appended"]
    assert outcomes(results) == expected
    assert [result.seq for result in results] == [2, 4, 4, 4, 4, 5, 5]
    assert_true(app, results, [ROOM] * 7)
    kept = json.loads(one(app, "SELECT body FROM minutebook.idempotency WHERE key = 'empty'"))
    assert kept == {"seq": 4, "chain": results[1].chain, "ok": True}


def test_an_item_that_stands_on_a_refused_one_conflicts_whatever_version_it_meets(app: Any) -> None:
    """Decided one on another behind version 1, where somebody else's event has made it 2 meanwhile."""
    append(app, creation(*events(2)))
    results = append(app, item(1, event()), item(2, event()), item(3, *events(2)), item(2), item(2, event()))
    assert outcomes(results) == ["conflict", "conflict", "conflict", "appended", "appended"]
    assert [result.seq for result in results] == [2, 2, 2, 2, 3]


@pytest.mark.parametrize("more", [{}, key("lost")], ids=["plain", "keyed"])
def test_a_creation_that_loses_leaves_no_stream_and_no_key(app: Any, more: dict[str, Any]) -> None:
    append(app, creation(**key("taken")))
    before = contents(app)
    begin = {"kind": "room", "tenant": "acme", "retention": 90, **more}
    results = append(app, item(5, event(), stream=OTHER, **begin))
    results += append(app, creation(stream=OTHER, **FENCE, fenceEpoch=1, **more))
    results += append(app, creation(**more))
    results += append(app, creation(stream=OTHER, **key("taken", fingerprint="ff")))
    results += append(app, creation(stream=OTHER, **key("taken")))
    assert outcomes(results) == ["conflict", "fenced", "conflict", "key_reused", "duplicate"]
    assert contents(app) == before
    assert outcomes(append(app, creation(stream=OTHER, **more))) == ["appended"]


def test_items_that_count_other_events_than_there_are_store_nothing(app: Any) -> None:
    append(app, creation(*events(2)), creation(stream=OTHER))
    before = contents(app)
    for count in (0, 1, 3, 4):
        names, items, rows, _, _ = arguments(item(2, *events(2), **key("k")), item(1, event(), stream=OTHER))
        wrong = [{**one_item, "count": count if n == 0 else 1} for n, one_item in enumerate(json.loads(items))]
        with refused("MB003", "22004"):
            app.execute(APPEND, (names, json.dumps(wrong), rows, False, True))
        assert contents(app) == before
    # Places within an item that leave one out, or begin elsewhere.
    for places in ((1, 3), (2, 3), (0, 1)):
        names, items, rows, _, _ = arguments(item(2, *events(2)))
        moved = [{**row, "k": k} for row, k in zip(json.loads(rows), places, strict=True)]
        with refused("MB003", "23505"):
            app.execute(APPEND, (names, items, json.dumps(moved), False, True))
    assert contents(app) == before


def test_law_4_the_app_role_cannot_hand_in_a_stamp(app: Any) -> None:
    stamps = {"ts": "1999-01-01", "seq": 77, "hash": "00", "salt": "00", "bytes": 1, "stream_id": 9, "commitment": "00"}
    result = append(app, creation(event(**stamps), event(**stamps)))[0]
    rows = app.execute("SELECT seq, ts > now() - interval '1 hour', bytes, octet_length(salt) FROM minutebook.events")
    assert rows.fetchall() == [(1, True, 17, 16), (2, True, 17, 16)]
    assert result.seq == 2


def test_only_read_committed_may_append(app: Any) -> None:
    """An older snapshot would look up keys, leases and the feed's switch as they were before the locks."""
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        app.execute(f"SET default_transaction_isolation = '{level.lower()}'")
        with refused("MB005"):
            append(app, creation())
    app.execute("RESET default_transaction_isolation")
    assert outcomes(append(app, creation())) == ["appended"]


def test_a_hold_and_its_release_ride_with_their_events(app: Any) -> None:
    held = "SELECT held FROM minutebook.streams WHERE name = %s"
    append(app, creation(), creation(stream=OTHER))
    append(app, item(1, event(), hold=True), item(1, event(), stream=OTHER))
    assert (one(app, held, ROOM), one(app, held, OTHER)) == (True, False)
    append(app, item(2, event()))
    assert one(app, held, ROOM)
    append(app, item(9, event(), hold=False))
    assert one(app, held, ROOM)
    append(app, item(3, event(), hold=False), item(4, event(), hold=True), item(5, event(), hold=False))
    assert not one(app, held, ROOM)


def test_an_empty_batch_and_an_empty_item_change_nothing(app: Any) -> None:
    append(app, creation())
    before = contents(app)
    assert append(app) == []
    assert outcomes(append(app, item(1), item(1), item(0))) == ["appended", "appended", "conflict"]
    assert contents(app) == before
    assert stream_id(app) == 1
