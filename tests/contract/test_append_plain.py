"""The set-wise path decides, stores and answers what the long path does, and nothing where it cannot take all."""

from __future__ import annotations

from typing import Any

import pytest
from append_helpers import (
    append,
    append_plain,
    creation,
    event,
    events,
    item,
    one,
    outcomes,
    refused,
)
from minutebook.infra.postgres.export import verify_database

A, B, SEALED = "room:aaaaaaaa", "room:bbbbbbbb", "room:cccccccc"

FULL = {"ar": "owner", "r": "abcdefgh", "cb": 1, "rd": ["token"], "cl": ["secret", "vault"], "oc": "abcdefgh"}


@pytest.fixture
def app(any_database: Any) -> Any:
    """The app role, on two streams of one event and a sealed one."""
    with any_database.connect("app") as connection:
        append(connection, creation(event(), stream=A), creation(event(), stream=B), creation(stream=SEALED, seal=True))
        yield connection


def count(app: Any) -> int:
    return one(app, "SELECT count(*) FROM minutebook.events")


def test_it_appends_to_many_streams_and_each_chain_holds(any_database: Any, app: Any) -> None:
    texts = ["plain", '\u00e4\U0001f600 " \\', "x" * 60_000]
    batch = [{**event({"text": text}), **FULL, "ok": f"events:{k}", "k": k} for k, text in enumerate(texts, 1)]
    batch += [{**event(), "i": 2, "k": k} for k in (1, 2)]
    lines = append_plain(app, {A: 1, B: 1}, batch)
    assert lines is not None
    for name, mine in ((A, lines[:3]), (B, lines[3:])):
        stored = app.execute(
            "SELECT encode(e.hash, 'hex'), to_char(e.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),"
            " e.bytes::text, (s.bytes - sum(e.bytes) OVER ())::text"
            " FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
            " WHERE s.name = %s AND e.seq > 1 ORDER BY e.seq",
            (name,),
        ).fetchall()
        assert mine == [list(row) for row in stored]
    assert outcomes(append(app, item(4, event(), stream=A), item(3, event(), stream=B))) == ["appended", "appended"]
    report = verify_database(any_database.url("auditor"))
    assert report.ok, report.breaks
    assert report.events == 10


@pytest.mark.parametrize(
    "first",
    [{A: 0, B: 1}, {A: 1, B: 2}, {A: 1, "room:nowhere0": 0}, {A: 1, SEALED: 1}],
    ids=["behind", "ahead", "nowhere", "sealed"],
)
def test_it_takes_all_or_nothing(app: Any, first: dict[str, int]) -> None:
    before = count(app)
    assert append_plain(app, first, [event(), {**event(), "i": 2, "k": 1}]) is None
    assert count(app) == before


def test_it_refuses_a_batch_that_does_not_add_up(app: Any) -> None:
    before = count(app)
    for batch, counted in (
        (events(2), 3),
        ([event(), {**event(), "i": 2, "k": 1}], 2),  # of a stream that was not named
        ([{**event(), "k": 2}], 1),
        ([{**event(), "k": 1}, {**event(), "k": 3}], 2),
    ):
        with refused("MB003"):
            append_plain(app, {A: 1}, batch, count=counted)
    with refused("MB003"):
        append_plain(app, {A: 1}, [{**event(), "k": 2}, {**event(), "k": 1}])
    with refused("MB004"):
        append_plain(app, {A: 1}, [{**event(), "p": None}])
    for lists in ({"rd": [None]}, {"cl": [["a"], ["b"]]}):
        with refused("MB004"):
            append_plain(app, {A: 1}, [event(**lists)])
    for broken in ({"id": "short"}, {"id": "I" * 26}, {"o": "elsewhere"}, {"ok": "1"}):
        with refused("23514"):
            append_plain(app, {A: 1}, [event(**broken), event()])
        with refused("23514"):
            append_plain(app, {A: 1}, [event(**broken)])
    assert count(app) == before


def test_it_runs_under_read_committed_only(app: Any) -> None:
    app.execute("SET default_transaction_isolation = 'repeatable read'")
    with refused("MB005"):
        append_plain(app, {A: 1}, [event()])


def test_one_wake_up_names_every_stream_once(any_database: Any, app: Any) -> None:
    with any_database.connect("app") as listener:
        listener.execute("LISTEN minutebook")
        append_plain(app, {A: 1, B: 1}, [*events(2), {**event(), "i": 2, "k": 1}], notify=True)
        ids = one(app, "SELECT string_agg(id::text, ',') FROM minutebook.streams WHERE name IN (%s, %s)", A, B)
        heard = [notify.payload for notify in listener.notifies(timeout=5, stop_after=1)]
    assert [sorted(heard[0].split(","))] == [sorted(ids.split(","))]
