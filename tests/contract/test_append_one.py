"""The short path of a batch of one decides, stores and answers what the long path does."""

from __future__ import annotations

from typing import Any

import pytest
from append_helpers import append, creation, event, events, item, one
from minutebook.infra.postgres.export import verify_database

ONE = (
    "SELECT minutebook.append_one_v2("
    "%s, %s, '01ARZ3NDEKTSV4RRFFQ69G5FAV', 'message', 1, %s::jsonb, 'human', 'ada', %s, %s, %s, 'client',"
    " %s::text[], %s::text[], %s, %s)"
)
PLAIN = (None, None, None, [], [], None, None)
FULL = ("owner", "abcdefgh", 1, ["github-token"], ["secret", "vault"], "abcdefgh", "events:1")


def said(app: Any, parameters: tuple[Any, ...]) -> tuple[str, int, str | None, str | None, int | None]:
    """The answer's words: outcome, seq, chain, ts, bytes."""
    kind, seq, chain, ts, size = one(app, ONE, *parameters).split(" ")
    return kind, int(seq), chain or None, ts or None, int(size) if size else None


@pytest.fixture
def app(any_database: Any) -> Any:
    """The app role, on a stream of two events and a sealed one."""
    with any_database.connect("app") as connection:
        append(connection, creation(*events(2)), creation(event(), stream="room:bbbbbbbb", seal=True))
        yield connection


def test_it_appends_and_the_chain_holds(any_database: Any, app: Any) -> None:
    for seq, (payload, columns) in enumerate(
        [('{"text": "plain"}', PLAIN), ('{"text": "\u00e4\U0001f600 \\" \\\\"}', FULL), ("[]", PLAIN)], 3
    ):
        outcome, at, chain, ts, size = said(app, ("room:aaaaaaaa", seq - 1, payload, *columns))
        assert (outcome, at) == ("appended", seq)
        head = app.execute(
            "SELECT version, encode(head_hash, 'hex'), bytes,"
            " to_char(last_ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
            " FROM minutebook.streams WHERE name = 'room:aaaaaaaa'"
        ).fetchone()
        assert (at, chain, size, ts) == head
    append(app, item(5, event()))
    report = verify_database(any_database.url("auditor"))
    assert report.ok, report.breaks
    assert report.events == 7


def test_it_refuses_what_the_long_path_refuses(app: Any) -> None:
    before = one(app, "SELECT count(*) FROM minutebook.events")
    for stream, expected in (
        ("room:aaaaaaaa", 1),
        ("room:aaaaaaaa", 3),
        ("room:aaaaaaaa", 0),
        ("room:nowhere0", 0),
        ("room:bbbbbbbb", 1),
        ("room:bbbbbbbb", 7),
    ):
        short = said(app, (stream, expected, "{}", *PLAIN))
        long = app.execute(
            "SELECT outcome, seq, chain, ts, bytes FROM minutebook.append_v1(%s, %s::json, '[]', false)",
            ([stream], f'[{{"n": 1, "s": 1, "expected": {expected}, "count": 1}}]'),
        ).fetchone()
        assert short == long, (stream, expected)
    assert one(app, "SELECT count(*) FROM minutebook.events") == before


def test_it_wakes_with_the_streams_id_alone(any_database: Any, app: Any) -> None:
    with any_database.connect("app") as listener:
        listener.execute("LISTEN minutebook")
        app.execute(ONE, ("room:aaaaaaaa", 2, '{"text": "%s"}' % ("x" * 60_000), *PLAIN))
        stream = one(app, "SELECT id FROM minutebook.streams WHERE name = 'room:aaaaaaaa'")
        heard = [notify.payload for notify in listener.notifies(timeout=5, stop_after=1)]
    assert heard == [str(stream)]
