"""A fork: copies of events 1 to N in a stream of their own, by one function that lets nobody choose what it copies."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from append_helpers import (
    LOGIN_ROLES,
    Background,
    append,
    as_role,
    contents,
    creation,
    event,
    events,
    expire,
    item,
    one,
    outcomes,
    refused,
    stream_id,
    triggers_off,
    until_blocked,
    verdict,
)
from minutebook.infra.postgres.export import verify_database

SOURCE, FORK, OTHER, LATER = "room:aaaaaaaa", "room:ffffffff", "room:gggggggg", "room:hhhhhhhh"
FORK_SQL = "SELECT * FROM minutebook.fork_v1(%s, %s, %s, %s::pg_catalog.json, %s, %s, %s::pg_catalog.json)"
KEPT = (
    "seq, type, schema_version, actor_kind, actor_id, actor_role, run_id, caused_by, origin, ts, redactions, classes,"
    " payload::text, sha256(convert_to(payload::text, 'UTF8')), bytes"
)
INSERT_COPY = """
INSERT INTO minutebook.events
SELECT {stream}, e.seq, e.id, e.type, e.schema_version, e.actor_kind, e.actor_id, e.actor_role, e.run_id,
    e.caused_by, e.origin, {ts}, e.redactions, e.classes, {payload}, e.bytes, {salt}, {commitment}, {client},
    {client}, s.head_hash, minutebook.event_hash(s.name, e.seq, e.id, e.type, e.schema_version, e.actor_kind,
        e.actor_id, e.actor_role, e.run_id, e.caused_by, e.origin, {ts}, e.redactions, e.classes, {client},
        {client}, {commitment}, s.head_hash)
FROM minutebook.events e, minutebook.streams s
WHERE e.stream_id = {source} AND e.seq = {seq} AND s.id = {stream}
"""
RICH = (
    event({"text": "größe 𝄞"}, ai="zoë", ar="owner", rd=["rule-a"], cl=["secret"]),
    event(
        {"n": 1.10, "big": 10**30},
        ak="agent",
        ai="runrunaa",
        r="runrunaa",
        cb=1,
        o="harness",
        oc="runrunaa",
        ok="events:1",
    ),
    event({"text": "three"}),
    event({"phase": "closed"}, t="state_changed", o="broker", oc="minutebook", ok="seal"),
)


def forked(
    connection: psycopg.Connection, seq: int, *, source: str = SOURCE, stream: str = FORK, **options: Any
) -> dict[str, Any]:
    """Run one fork; the columns of its answer."""
    payload = {"kind": "forked_from", "room": source.partition(":")[2], "seq": seq, "owner": "human:fay"}
    own = event(payload, t="state_changed", ai="fay", o="client")
    limits = (options.pop("max_events", 100_000), options.pop("max_bytes", 1 << 28))
    key = options.pop("key", None)
    parameters = (source, seq, stream, json.dumps(own), *limits, None if key is None else json.dumps(key))
    cursor = connection.execute(FORK_SQL, parameters)
    row = cursor.fetchone()
    assert row is not None
    assert cursor.description is not None
    return dict(zip([column.name for column in cursor.description], row, strict=True))


def key_of(name: str, fingerprint: str = "0a") -> dict[str, Any]:
    """An idempotency key as the adapter hands it over."""
    place = {"tenant": "acme", "caller": "human:fay", "operation": "fork_room", "scope": SOURCE, "key": name}
    body = {"id": "ffffffff", "forkedFrom": {"room": "aaaaaaaa", "seq": 3}}
    return {**place, "fingerprint": fingerprint, "status": 201, "body": body}


def rows(connection: psycopg.Connection, columns: str, stream: str, upto: int = 1 << 40) -> list[Any]:
    """Columns of a stream's events in order."""
    return connection.execute(
        f"SELECT {columns} FROM minutebook.events WHERE stream_id = %s AND seq <= %s ORDER BY seq",  # type: ignore[arg-type]
        (stream_id(connection, stream), upto),
    ).fetchall()


def assert_verifies(database: Any) -> None:
    """Every stream's chain verifies, and its hashes are those of what it says."""
    report = verify_database(database.url("auditor"))
    assert report.ok, report.breaks


@pytest.fixture
def superuser(any_database: Any) -> Any:
    """A superuser's session on a log with one rich room of four events."""
    with any_database.connect("app") as app:
        append(app, creation(*RICH, retention=30))
    with any_database.connect("postgres") as connection:
        yield connection


@pytest.fixture
def app(any_database: Any, superuser: Any) -> Any:
    """The app role on the same log."""
    with any_database.connect("app") as connection:
        yield connection


@pytest.mark.parametrize("seq", [1, 3, 4])
def test_sc_7_a_forks_events_are_those_of_the_source(any_database: Any, superuser: Any, app: Any, seq: int) -> None:
    answer = forked(app, seq)
    assert rows(superuser, KEPT, FORK, seq) == rows(superuser, KEPT, SOURCE, seq)
    source_chain = one(
        superuser,
        "SELECT encode(hash, 'hex') FROM minutebook.events WHERE stream_id = %s AND seq = %s",
        stream_id(superuser),
        seq,
    )
    (last,) = rows(superuser, "seq, id, encode(hash, 'hex'), payload", FORK)[seq:]
    assert last[3]["chain"] == source_chain
    assert (answer["outcome"], answer["seq"], answer["event_id"], answer["chain"], answer["source_chain"]) == (
        "appended",
        *last[:3],
        source_chain,
    )
    assert_verifies(any_database)


def test_id_salt_and_chain_are_new_and_the_writers_numbering_is_gone(superuser: Any, app: Any) -> None:
    forked(app, 4)
    forked(app, 4, stream=OTHER)
    new = "id, salt, commitment, prev_hash, hash"
    copies = [rows(superuser, new, stream, 4) for stream in (SOURCE, FORK, OTHER)]
    for column in range(5):
        values = [row[column] for each in copies for row in each]
        first_prev = 2 if column == 3 else 0  # all three begin with the same zeros
        assert len(set(values)) == len(values) - first_prev
    assert set(rows(superuser, "origin_client, origin_key", FORK)) == {(None, None)}
    assert all(len(id_) == 26 for id_, *_ in copies[1])


def test_the_new_stream_begins_open_with_tenant_and_retention_of_the_source(superuser: Any, app: Any) -> None:
    append(app, item(4, event(), hold=True), item(5, event(), seal=True))
    app.execute("SELECT minutebook.lease_drop_v1(%s, 'run', 'nobody', 1)", (SOURCE,))
    answer = forked(app, 6)
    stream = superuser.execute(
        "SELECT kind, tenant, retention_days, sealed, held, closed_at, version, bytes FROM minutebook.streams"
        " WHERE name = %s",
        (FORK,),
    ).fetchone()
    assert stream == ("room", "acme", 30, False, False, None, 7, answer["bytes"])
    assert one(superuser, "SELECT sum(bytes) FROM minutebook.events WHERE stream_id = %s", stream_id(superuser, FORK))
    assert outcomes(append(app, item(7, event(), stream=FORK))) == ["appended"]
    assert outcomes(append(app, item(6, event()))) == ["sealed"]


def test_a_fork_leaves_its_source_as_it_is(superuser: Any, app: Any) -> None:
    before = contents(superuser)
    forked(app, 3)
    source = stream_id(superuser)
    after = contents(superuser)
    assert [row for row in after[0] if row[0].startswith(f"({source},")] == before[0]
    assert [row for row in after[1] if row[0].startswith(f"({source},")] == before[1]


def test_a_fork_of_a_fork(any_database: Any, superuser: Any, app: Any) -> None:
    forked(app, 3)
    answer = forked(app, 4, source=FORK, stream=OTHER)
    assert answer["outcome"] == "appended"
    assert rows(superuser, KEPT, OTHER, 4) == rows(superuser, KEPT, FORK, 4)
    assert rows(superuser, "payload", OTHER)[4][0]["room"] == "ffffffff"
    assert_verifies(any_database)


def test_a_fork_survives_the_purge_of_its_source(any_database: Any, superuser: Any, app: Any) -> None:
    forked(app, 4)
    before = rows(superuser, KEPT, FORK)
    append(app, item(4, event(), seal=True))
    source = expire(superuser, SOURCE)
    with any_database.connect("retention") as retention:
        assert one(retention, "SELECT minutebook.purge_stream_v1(%s)", source) == 5
    assert rows(superuser, KEPT, FORK) == before
    assert_verifies(any_database)
    assert forked(app, 2, stream=OTHER)["outcome"] == "not_found"


@pytest.mark.parametrize(
    ("seq", "source"), [(5, SOURCE), (2**53, SOURCE), (0, SOURCE), (-1, SOURCE), (1, "room:nowhere0")]
)
def test_what_is_not_there_is_not_copied(superuser: Any, app: Any, seq: int, source: str) -> None:
    before = contents(superuser)
    answer = forked(app, seq, source=source, key=key_of("k"))
    assert answer["outcome"] == "not_found"
    assert contents(superuser) == before


def test_a_taken_name_is_a_conflict(superuser: Any, app: Any) -> None:
    append(app, creation(stream=FORK))
    before = contents(superuser)
    for stream in (FORK, SOURCE):
        assert forked(app, 3, stream=stream, key=key_of("k"))["outcome"] == "conflict"
    assert contents(superuser) == before


def test_a_fork_stays_below_the_limits_of_a_room(superuser: Any, app: Any) -> None:
    size = one(superuser, "SELECT sum(bytes) FROM minutebook.events WHERE seq <= 3")
    before = contents(superuser)
    assert forked(app, 3, max_events=4)["outcome"] == "too_long"
    assert forked(app, 3, max_bytes=size, key=key_of("k"))["outcome"] == "too_long"
    assert contents(superuser) == before
    assert forked(app, 3, max_events=5, max_bytes=size + 1)["outcome"] == "appended"


def test_the_same_key_makes_one_fork(superuser: Any, app: Any) -> None:
    """B67: a double click is one fork, and hears the same."""
    first = forked(app, 3, key=key_of("k"))
    again = forked(app, 3, stream=OTHER, key=key_of("k"))
    other = forked(app, 2, stream=OTHER, key=key_of("k", "0b"))
    assert (first["outcome"], again["outcome"], other["outcome"]) == ("appended", "duplicate", "key_reused")
    assert (again["status"], again["body"]) == (201, first["body"])
    assert json.loads(first["body"]) == {
        "id": "ffffffff",
        "seq": 4,
        "chain": first["chain"],
        "forkedFrom": {"room": "aaaaaaaa", "seq": 3, "chain": first["source_chain"]},
    }
    assert one(superuser, "SELECT count(*) FROM minutebook.streams") == 2
    kept = superuser.execute("SELECT status, body, stream_id FROM minutebook.idempotency").fetchall()
    assert kept == [(201, first["body"], stream_id(superuser, FORK))]


def test_the_same_key_at_once_makes_one_fork(any_database: Any, superuser: Any, app: Any) -> None:
    with any_database.connect("app") as other, app.transaction():
        first = forked(app, 3, key=key_of("k"))
        second = Background(lambda: forked(other, 3, stream=OTHER, key=key_of("k")))
        until_blocked(superuser, other.info.backend_pid)
    assert second.result()["body"] == first["body"]
    assert one(superuser, "SELECT count(*) FROM minutebook.streams") == 2


def test_the_source_takes_appends_while_it_is_forked(any_database: Any, superuser: Any, app: Any) -> None:
    with any_database.connect("app") as other:
        with app.transaction():
            forked(app, 4)
            assert outcomes(append(other, item(4, event()))) == ["appended"]
        assert [row[0] for row in rows(superuser, "seq", FORK)] == [1, 2, 3, 4, 5]


def test_a_purge_waits_for_the_fork_and_then_goes_on(any_database: Any, superuser: Any, app: Any) -> None:
    append(app, item(4, event(), seal=True))
    source = expire(superuser, SOURCE)
    with any_database.connect("retention") as retention:
        with app.transaction():
            assert forked(app, 5)["outcome"] == "appended"
            purge = Background(lambda: one(retention, "SELECT minutebook.purge_stream_v1(%s)", source))
            until_blocked(superuser, retention.info.backend_pid)
        assert purge.result() == 5
    assert len(rows(superuser, "seq", FORK)) == 6
    assert_verifies(any_database)


def test_a_source_that_is_purged_meanwhile_is_not_found(any_database: Any, superuser: Any, app: Any) -> None:
    append(app, item(4, event(), seal=True))
    source = expire(superuser, SOURCE)
    with any_database.connect("retention") as retention, retention.transaction():
        assert one(retention, "SELECT minutebook.purge_stream_v1(%s)", source) == 5
        fork = Background(lambda: forked(app, 4, key=key_of("k")))
        until_blocked(superuser, app.info.backend_pid)
    assert fork.result()["outcome"] == "not_found"
    assert one(superuser, "SELECT count(*) FROM minutebook.streams") == 0
    assert one(superuser, "SELECT count(*) FROM minutebook.idempotency") == 0


def erase(database: Any, stream: int, seq: int) -> None:
    """Take one payload away, as the eraser."""
    with database.connect("eraser") as eraser:
        statement = "UPDATE minutebook.events SET payload = NULL, salt = NULL WHERE stream_id = %s AND seq = %s"
        assert eraser.execute(statement, (stream, seq)).rowcount == 1


def naming(seq: int) -> dict[str, Any]:
    """An erasure event."""
    return event({"kind": "payload_erased", "erasedSeq": seq}, t="state_changed")


def test_law_10_what_is_erased_in_the_source_is_erased_in_the_copy(any_database: Any, superuser: Any, app: Any) -> None:
    append(app, item(4, naming(2), naming(3)))
    for seq in (2, 3):
        erase(any_database, stream_id(superuser), seq)
    answer = forked(app, 5)  # event 6, which names event 3, stays behind
    erased = rows(superuser, "seq, payload, salt, commitment, bytes", FORK, 3)[1:]
    assert erased == rows(superuser, "seq, payload, salt, commitment, bytes", SOURCE, 3)[1:]
    assert [row[1:3] for row in erased] == [(None, None), (None, None)]
    behind = rows(superuser, "seq, type, origin, actor_id, payload", FORK)[5:]
    assert behind[0][:2] == (6, "state_changed")
    assert behind[1:] == [(7, "state_changed", "broker", "minutebook", {"kind": "payload_erased", "erasedSeq": 3})]
    assert answer["seq"] == 7
    assert_verifies(any_database)
    assert forked(app, 5, stream=OTHER, max_events=7)["outcome"] == "too_long"


def test_the_fork_can_be_erased_by_itself(any_database: Any, superuser: Any, app: Any) -> None:
    forked(app, 3)
    append(app, item(4, naming(1), stream=FORK))
    erase(any_database, stream_id(superuser, FORK), 1)
    assert one(superuser, "SELECT count(*) FROM minutebook.events WHERE payload IS NULL") == 1
    assert_verifies(any_database)


def test_the_clock_may_have_run_back_before_the_fork(any_database: Any, superuser: Any, app: Any) -> None:
    with triggers_off(superuser, "events"), triggers_off(superuser, "streams"):
        superuser.execute("UPDATE minutebook.streams SET last_ts = last_ts + interval '1 hour'")
    append(app, item(4, *events(2)))
    assert forked(app, 6)["outcome"] == "appended"
    times = [row[0] for row in rows(superuser, "ts", FORK)]
    assert times == sorted(times)
    assert_verifies(any_database)


@pytest.mark.parametrize("role", [role for role in LOGIN_ROLES if role != "app"])
def test_only_the_app_role_forks(any_database: Any, superuser: Any, role: str) -> None:
    before = contents(superuser)
    with any_database.connect(role) as connection, refused("42501"):
        forked(connection, 3)
    assert contents(superuser) == before


def test_law_4_naming_a_source_lets_nobody_choose_a_time(any_database: Any, superuser: Any, app: Any) -> None:
    """What fork_v1 sets for its own call anybody can set; nothing but the stored event at its own place is let in."""
    append(app, creation(*events(2), stream=OTHER))
    append(app, creation(*events(4), naming(4), stream=LATER))
    source = stream_id(superuser, LATER)
    erase(any_database, source, 4)
    for connection in (app, superuser):
        connection.execute("SELECT set_config('minutebook.fork_source', %s, false)", (str(source),))
    as_role(superuser, "owner")
    same = {
        "source": source,
        "stream": stream_id(superuser, OTHER),
        "seq": 3,
        "ts": "e.ts",
        "payload": "e.payload",
        "salt": "e.salt",
        "commitment": "e.commitment",
        "client": "NULL",
    }
    erased = {"seq": 4, "payload": "NULL::jsonb", "salt": "NULL::bytea"}
    forged = '{"text": "forged 3"}'  # as long as what it stands for
    attempts = [
        ({"ts": "(e.ts - interval '1 second')"}, "MB007"),
        ({"ts": "(e.ts + interval '1 hour')"}, "MB007"),
        ({"payload": f"'{forged}'::jsonb"}, "MB006"),
        (
            {"payload": f"'{forged}'::jsonb", "commitment": f"sha256(e.salt || convert_to('{forged}', 'UTF8'))"},
            "MB007",
        ),
        ({"client": "'mine'"}, "MB007"),
        ({"payload": "NULL::jsonb", "salt": "NULL::bytea"}, "MB006"),
    ]
    for changes, code in attempts:
        assert verdict(superuser, INSERT_COPY.format(**{**same, **changes})) == code, changes
    superuser.execute("SELECT set_config('minutebook.fork_source', '', false)")
    assert verdict(superuser, INSERT_COPY.format(**same)) == "MB007"
    superuser.execute("SELECT set_config('minutebook.fork_source', %s, false)", (str(source),))
    assert verdict(superuser, INSERT_COPY.format(**same)) == "passed, rows: 1", "all that was refused was a near miss"
    assert verdict(superuser, INSERT_COPY.format(**{**same, **erased, "commitment": "sha256('forged')"})) == "MB006"
    assert verdict(superuser, INSERT_COPY.format(**{**same, **erased})) == "passed, rows: 1"
    assert outcomes(append(app, item(4, event(), stream=OTHER))) == ["appended"]
    recent = "SELECT ts > now() - interval '1 minute' FROM minutebook.events WHERE stream_id = %s AND seq = 5"
    assert one(app, recent, stream_id(app, OTHER))


def test_the_name_of_a_source_does_not_outlive_the_call(app: Any) -> None:
    with app.transaction():
        forked(app, 3)
        assert one(app, "SELECT current_setting('minutebook.fork_source')") == ""


def test_a_fork_runs_under_read_committed_only(superuser: Any, app: Any) -> None:
    before = contents(superuser)
    app.execute("SET default_transaction_isolation = 'repeatable read'")
    with refused("MB005"):
        forked(app, 3)
    assert contents(superuser) == before


def test_viewers_are_woken_once(any_database: Any, app: Any) -> None:
    with any_database.connect("app") as listener:
        listener.execute("LISTEN minutebook")
        forked(app, 3)
        heard = [notify.payload for notify in listener.notifies(timeout=5, stop_after=1)]
    assert heard == [str(stream_id(app, FORK))]


def test_the_audit_feed_has_the_fork_in_its_order(superuser: Any, app: Any) -> None:
    superuser.execute("SELECT minutebook.feed_switch_v1(true)")
    forked(app, 4)
    app.execute("SELECT minutebook.feed_advance_v1()")
    fork = stream_id(superuser, FORK)
    fed = superuser.execute(
        "SELECT seq FROM minutebook.feed WHERE stream_id = %s ORDER BY position", (fork,)
    ).fetchall()
    assert fed == [(1,), (2,), (3,), (4,), (5,)]


def test_a_fork_of_many_events_goes_in_parts(any_database: Any, superuser: Any, app: Any) -> None:
    for start in range(4, 1000, 249):
        append(app, item(start, *events(249)))
    for seq, stream in ((256, "room:fffffff2"), (257, "room:fffffff3"), (1000, "room:fffffff4")):
        assert forked(app, seq, stream=stream)["seq"] == seq + 1
        assert rows(superuser, KEPT, stream, seq) == rows(superuser, KEPT, SOURCE, seq)
    assert_verifies(any_database)
