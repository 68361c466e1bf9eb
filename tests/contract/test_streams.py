"""The sequencer: seq without gaps, seals that hold, stamps that nobody chooses (laws 4 and 5)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, LiteralString, cast

import psycopg
import pytest
from append_helpers import (
    ROOM,
    Background,
    append,
    as_role,
    contents,
    creation,
    event,
    events,
    item,
    one,
    outcomes,
    refused,
    stream_id,
    until_blocked,
    verdict,
)

INSERT = """
INSERT INTO minutebook.events (stream_id, seq, id, type, schema_version, actor_kind, actor_id, origin, redactions,
    classes, payload, ts, bytes, salt, commitment, prev_hash)
VALUES (%s, %s, '01ARZ3NDEKTSV4RRFFQ69G5FAV', 'message', 1, 'human', 'eve', 'client', '{}', '{}',
    %s, '1999-01-01', 7, 'salt', 'commitment', 'prev')
"""


@pytest.fixture
def owner(any_database: Any) -> Any:
    """The owner's rights in a superuser's session, on a stream of three events and a sealed one of one."""
    with any_database.connect("app") as app:
        append(app, creation(*events(3)), creation(event(), stream="room:bbbbbbbb", seal=True))
    with any_database.connect("postgres") as connection:
        as_role(connection, "owner")
        yield connection


def insert(connection: psycopg.Connection, stream: int, seq: int, payload: str | None = "{}") -> None:
    connection.execute(cast("LiteralString", INSERT), (stream, seq, payload))


def row(connection: psycopg.Connection, table: str, stream: int, seq: int | None = None) -> dict[str, Any]:
    found = one(
        connection,
        f"SELECT to_jsonb(t) FROM minutebook.{table} t WHERE "
        + (f"id = {stream}" if seq is None else f"stream_id = {stream} AND seq = {seq}"),
    )
    return cast("dict[str, Any]", found)


def test_seq_is_gapless_and_every_other_seq_is_refused(owner: Any) -> None:
    stream = stream_id(owner)
    before = contents(owner)
    for seq in (-1, 0, 5, 6, 2**62):
        with refused("MB003"):
            insert(owner, stream, seq)
    for seq in (1, 2, 3):
        with refused("23505"):
            insert(owner, stream, seq)
    with refused("MB001"):
        insert(owner, stream + 1000, 1)
    assert contents(owner) == before
    insert(owner, stream, 4)
    seqs = [seq for (seq,) in owner.execute("SELECT seq FROM minutebook.events WHERE stream_id = %s", (stream,))]
    assert sorted(seqs) == [1, 2, 3, 4]
    assert row(owner, "streams", stream)["version"] == 4


def test_law_4_nobody_chooses_time_salt_hash_or_size(owner: Any) -> None:
    stream = stream_id(owner)
    before = row(owner, "streams", stream)
    insert(owner, stream, 4, '{"text": "mine"}')
    stored, head, previous = (
        row(owner, "events", stream, 4),
        row(owner, "streams", stream),
        row(owner, "events", stream, 3),
    )
    assert datetime.fromisoformat(stored["ts"]) > datetime(2020, 1, 1, tzinfo=UTC)
    assert stored["ts"] >= previous["ts"]
    assert stored["bytes"] == len('{"text": "mine"}')
    assert stored["prev_hash"] == previous["hash"] == before["head_hash"]
    assert [len(stored[name]) for name in ("salt", "commitment", "hash")] == [2 + 32, 2 + 64, 2 + 64]
    assert head["head_hash"] == stored["hash"]
    assert (head["bytes"], head["last_ts"]) == (before["bytes"] + stored["bytes"], stored["ts"])


def test_law_4_a_hash_of_ones_own_is_refused_unless_it_is_the_right_one(owner: Any) -> None:
    """A row with a hash is not stamped but checked, as those of append_v1 are: place, words, size, salt and time."""
    stream = stream_id(owner)
    copy = (
        "INSERT INTO minutebook.events SELECT (jsonb_populate_record(e, jsonb_build_object("
        " 'seq', 4, 'prev_hash', s.head_hash, 'ts', clock_timestamp()) || %s)).*"
        " FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
        " WHERE e.stream_id = %s AND e.seq = 3"
    )
    for change in ("{}", '{"payload": {"text": "other"}}', '{"bytes": 1}', '{"hash": "\\\\x00"}'):
        with refused("MB006"):
            owner.execute(cast("LiteralString", copy), (change, stream))
    right = (
        "INSERT INTO minutebook.events SELECT (jsonb_populate_record(e, jsonb_build_object("
        " 'seq', 4, 'prev_hash', s.head_hash, 'ts', t.ts, 'hash',"
        " minutebook.event_hash(s.name, 4, e.id, e.type, e.schema_version, e.actor_kind, e.actor_id,"
        " e.actor_role, e.run_id, e.caused_by, e.origin, t.ts, e.redactions, e.classes, e.origin_client, e.origin_key,"
        " e.commitment, s.head_hash)))).* FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
        " CROSS JOIN LATERAL (SELECT clock_timestamp() + %s::interval AS ts) t WHERE e.stream_id = %s AND e.seq = 3"
    )
    for shift in ("-1 hour", "1 hour"):
        with refused("MB007"):
            owner.execute(cast("LiteralString", right), (shift, stream))
    owner.execute(cast("LiteralString", right), ("0", stream))


def test_an_event_needs_a_payload_and_flat_lists(owner: Any) -> None:
    stream = stream_id(owner)
    with refused("MB004"):
        insert(owner, stream, 4, None)
    as_role(owner, "app")
    for lists in ({"rd": [None]}, {"cl": ["a", None]}, {"cl": [["a"], ["b"]]}):
        with refused("MB004"):
            append(owner, item(3, event(**lists)))
    with refused("MB004"):
        append(owner, item(3, {**event(), "p": None}))


def test_nothing_appends_to_a_sealed_stream_and_it_stays_sealed(any_database: Any, owner: Any) -> None:
    sealed = stream_id(owner, "room:bbbbbbbb")
    before = contents(owner)
    with refused("MB002"):
        insert(owner, sealed, 2)
    for change in (
        "sealed = false",
        "sealed = false, closed_at = NULL",
        "closed_at = now()",
        "closed_at = '2000-01-01'",
        "version = 2",
    ):
        assert verdict(owner, f"UPDATE minutebook.streams SET {change} WHERE id = {sealed}") == "MB002", change
    with any_database.connect("app") as app:
        results = append(
            app,
            item(1, event(), stream="room:bbbbbbbb"),
            item(1, event(), stream="room:bbbbbbbb", seal=True),
            item(0, event(), stream="room:bbbbbbbb"),
        )
        assert outcomes(results) == ["sealed"] * 3
        assert {result.seq for result in results} == {1}
    assert contents(owner) == before


def test_the_seal_sets_its_own_time_and_an_open_stream_has_none(owner: Any) -> None:
    stream = stream_id(owner)
    assert verdict(owner, f"UPDATE minutebook.streams SET closed_at = now() WHERE id = {stream}") == "23514"
    owner.execute(
        "UPDATE minutebook.streams SET sealed = true, closed_at = now() - interval '1 year' WHERE id = %s", (stream,)
    )
    assert one(owner, "SELECT now() - closed_at < interval '1 minute' FROM minutebook.streams WHERE id = %s", stream)


def test_what_a_stream_is_never_changes_and_its_head_moves_only_with_events(owner: Any) -> None:
    stream = stream_id(owner)
    before = contents(owner)
    fixed = {
        "name": "'room:zzzzzzzz'",
        "kind": "'other'",
        "tenant": "'evil'",
        "retention_days": "1",
        "created_at": "'2000-01-01'",
    }
    moving = ("version = 4", "version = 2", "version = 0", "bytes = bytes + 1", "bytes = 0", "last_ts = now()")
    for name, value in fixed.items():
        assert verdict(owner, f"UPDATE minutebook.streams SET {name} = {value} WHERE id = {stream}") == "MB021", name
    assert verdict(owner, f"UPDATE minutebook.streams SET retention_days = NULL WHERE id = {stream}") == "MB021"
    assert verdict(owner, f"UPDATE minutebook.streams SET id = DEFAULT WHERE id = {stream}") == "MB021"
    assert verdict(owner, f"UPDATE minutebook.streams SET id = 77 WHERE id = {stream}") == "428C9"
    for change in (*moving, "head_hash = sha256('x')"):
        assert verdict(owner, f"UPDATE minutebook.streams SET {change} WHERE id = {stream}") == "MB022", change
    assert contents(owner) == before


def test_a_stream_begins_empty_and_is_named_after_its_kind(owner: Any) -> None:
    columns = "INSERT INTO minutebook.streams (name, kind, tenant, "
    for name, value in {
        "version": "1",
        "bytes": "1",
        "held": "true",
        "last_ts": "now()",
        "head_hash": "sha256('x')",
    }.items():
        assert verdict(owner, f"{columns}{name}) VALUES ('room:c', 'room', 'acme', {value})") == "MB020", name
    assert verdict(owner, f"{columns}sealed, closed_at) VALUES ('room:c', 'room', 'acme', true, now())") == "MB020"
    assert verdict(owner, f"{columns}retention_days) VALUES ('room:c', 'room', 'acme', 0)") == "23514"
    for name, kind in (("c", "room"), ("room", "room"), ("room:c", "conversation"), ("Room:c", "Room"), (":c", "")):
        assert verdict(owner, f"{columns}version) VALUES ('{name}', '{kind}', 'acme', 0)") == "MB020", name
    assert verdict(owner, f"{columns}version) VALUES ('room:{'x' * 316}', 'room', 'acme', 0)") == "MB020"
    as_role(owner, "owner")
    owner.execute(f"{columns}created_at) VALUES ('room:{'x' * 315}', 'room', 'acme', '2000-01-01')")
    assert one(owner, "SELECT min(created_at) > now() - interval '1 hour' FROM minutebook.streams")


def test_a_seal_that_commits_first_refuses_the_append_that_waited(any_database: Any, owner: Any) -> None:
    stream = stream_id(owner)
    with any_database.connect("postgres") as other:
        other.autocommit = False
        as_role(other, "owner")
        other.execute("UPDATE minutebook.streams SET sealed = true WHERE id = %s", (stream,))
        # The row guard sees an open stream; what this waits for is the stream's row.
        waiting = Background(lambda: insert(owner, stream, 4))
        with any_database.connect("postgres") as watcher:
            until_blocked(watcher, owner.info.backend_pid)
        other.commit()
        with refused("MB002"):
            waiting.result()
    assert one(owner, "SELECT count(*) FROM minutebook.events WHERE stream_id = %s", stream) == 3


def test_b16_time_never_runs_back_within_a_stream(any_database: Any, owner: Any) -> None:
    """The stream's last event is put an hour ahead of the clock, which is what a clock that was set back looks like."""
    owner.execute("RESET ROLE")
    ahead = "UPDATE minutebook.events SET ts = ts + interval '1 hour' WHERE seq = 3"
    owner.execute("ALTER TABLE minutebook.events DISABLE TRIGGER ALL")
    owner.execute(ahead)
    owner.execute("ALTER TABLE minutebook.streams DISABLE TRIGGER ALL")
    owner.execute("UPDATE minutebook.streams SET last_ts = last_ts + interval '1 hour' WHERE id = 1")
    owner.execute("ALTER TABLE minutebook.streams ENABLE ALWAYS TRIGGER streams_guard")
    owner.execute("ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_guard_insert")
    owner.execute("ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_advance")
    with any_database.connect("app") as app:
        append(app, item(3, *events(2)), item(5, event()))
        times = [ts for (ts,) in app.execute("SELECT ts FROM minutebook.events WHERE stream_id = 1 ORDER BY seq")]
    assert times == sorted(times)
    assert len(set(times[2:])) == 1
    assert one(owner, "SELECT name FROM minutebook.streams WHERE last_ts > now() + interval '50 minutes'") == ROOM
