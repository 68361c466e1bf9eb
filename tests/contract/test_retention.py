"""Law 5: retention takes whole, sealed, expired streams that nobody holds, and nothing else, by any statement."""

from __future__ import annotations

from typing import Any

import pytest
from append_helpers import (
    Background,
    append,
    as_role,
    contents,
    creation,
    event,
    events,
    expire,
    item,
    key,
    one,
    outcomes,
    refused,
    stream_id,
    triggers_off,
    until_blocked,
    verdict,
)

EXPIRED, FRESH, OPEN, HELD, KEPT = (f"room:{letter * 8}" for letter in "abcde")
LEFTOVERS = ("events", "streams", "idempotency", "leases", "snapshots")


@pytest.fixture
def superuser(any_database: Any) -> Any:
    """Five rooms: expired; sealed but fresh; open; expired and held; sealed for ever (no retention)."""
    with any_database.connect("app") as app:
        append(app, *(creation(*events(3), stream=name, **key(name)) for name in (EXPIRED, FRESH, OPEN, HELD)))
        append(app, creation(*events(3), stream=KEPT, retention=None))
        for name in (EXPIRED, HELD):
            app.execute("SELECT minutebook.lease_take_v1(%s, 'driver', 'anna', 60)", (name,))
            app.execute("INSERT INTO minutebook.snapshots VALUES (%s, 3, 'room.1', '{}')", (stream_id(app, name),))
        append(app, item(3, event(), stream=HELD, hold=True))
        append(app, *(item(3, event(), stream=name, seal=True) for name in (EXPIRED, FRESH, KEPT)))
        append(app, item(4, event(), stream=HELD, seal=True))
    with any_database.connect("postgres") as connection:
        expire(connection, EXPIRED, days=90)  # one second less would keep it: see the fresh one below
        expire(connection, FRESH, days=89)
        expire(connection, HELD, days=9999)
        expire(connection, KEPT, days=9999)
        yield connection


def left(superuser: Any, stream: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    for table in LEFTOVERS:
        column = "id" if table == "streams" else "stream_id"
        counts[table] = one(superuser, f"SELECT count(*) FROM minutebook.{table} WHERE {column} = %s", stream)
    return counts


def test_purge_takes_all_of_an_expired_stream_and_nothing_of_the_others(any_database: Any, superuser: Any) -> None:
    ids = {name: stream_id(superuser, name) for name in (EXPIRED, FRESH, OPEN, HELD, KEPT)}
    before = {name: left(superuser, stream) for name, stream in ids.items()}
    with any_database.connect("projector") as projector:
        for stream in (ids[EXPIRED], ids[FRESH]):
            projector.execute("INSERT INTO minutebook_views.checkpoints VALUES ('room_list', %s, 4)", (stream,))
    with any_database.connect("retention") as retention:
        visible = retention.execute("SELECT name FROM minutebook.streams").fetchall()
        assert visible == [(EXPIRED,)]
        counts = {n: one(retention, "SELECT minutebook.purge_stream_v1(%s)", stream) for n, stream in ids.items()}
        assert counts == {EXPIRED: 4, FRESH: None, OPEN: None, HELD: None, KEPT: None}
        assert one(retention, "SELECT minutebook.purge_stream_v1(%s)", ids[EXPIRED]) is None
    assert left(superuser, ids.pop(EXPIRED)) == dict.fromkeys(LEFTOVERS, 0)
    assert {name: left(superuser, stream) for name, stream in ids.items()} == {name: before[name] for name in ids}
    assert superuser.execute("SELECT stream_id FROM minutebook_views.checkpoints").fetchall() == [(ids[FRESH],)]


def test_retention_cannot_read_what_it_deletes(any_database: Any, superuser: Any) -> None:
    with any_database.connect("retention") as retention:
        for columns in ("payload", "*", "actor_id", "salt", "hash", "classes", "e"):
            assert verdict(retention, f"SELECT {columns} FROM minutebook.events e") == "42501", columns
        assert verdict(retention, "DELETE FROM minutebook.events RETURNING payload") == "42501"
        assert verdict(retention, "DELETE FROM minutebook.events WHERE payload IS NOT NULL") == "42501"
        assert verdict(retention, "COPY minutebook.events TO STDOUT") == "42501"
        for table in ("idempotency", "snapshots", "leases", "feed"):
            assert verdict(retention, f"SELECT * FROM minutebook.{table}") == "42501", table
        assert verdict(retention, "SELECT * FROM minutebook_views.transcript") == "42501"


def test_direct_deletes_are_whole_or_refused(any_database: Any, superuser: Any) -> None:
    before = contents(superuser)
    expired = stream_id(superuser, EXPIRED)
    with any_database.connect("retention") as retention:
        for part in ("seq = 1", "seq > 1", "seq < 4", f"stream_id = {expired} AND seq <> 2"):
            assert verdict(retention, f"DELETE FROM minutebook.events WHERE {part}") == "MB010", part
        assert verdict(retention, "DELETE FROM minutebook.streams") == "MB020"  # its events are still there
        for name in (FRESH, OPEN, HELD, KEPT):
            other = stream_id(superuser, name)
            assert verdict(retention, f"DELETE FROM minutebook.events WHERE stream_id = {other}") == "passed, rows: 0"
            assert verdict(retention, f"DELETE FROM minutebook.streams WHERE id = {other}") == "passed, rows: 0"
        assert contents(superuser) == before
        assert verdict(retention, "DELETE FROM minutebook.events") == "passed, rows: 4"
        assert verdict(retention, "DELETE FROM minutebook.streams") == "passed, rows: 1"
    assert one(superuser, "SELECT count(*) FROM minutebook.streams") == 4


def test_law_5_no_other_role_can_switch_retention_on(any_database: Any, superuser: Any) -> None:
    before = contents(superuser)
    for role in ("app", "projector", "eraser", "auditor"):
        with any_database.connect(role) as connection:
            for statement in (
                "SELECT minutebook.purge_stream_v1(1)",
                "SELECT minutebook.is_purge_whole('{1}')",
                "SET ROLE minutebook_retention",
                "SET SESSION AUTHORIZATION minutebook_retention",
                "DELETE FROM minutebook.events",
                "DELETE FROM minutebook.streams",
            ):
                assert verdict(connection, statement) == "42501", f"{role}: {statement}"
    assert contents(superuser) == before


def test_with_row_security_gone_the_triggers_still_keep_what_may_not_go(superuser: Any) -> None:
    """Row security is the outer wall; this takes it down, as a migration could by mistake, to see the inner one."""
    before = contents(superuser)
    ids = {name: stream_id(superuser, name) for name in (FRESH, OPEN, HELD, KEPT)}
    for table in ("events", "streams"):
        superuser.execute(f"ALTER TABLE minutebook.{table} NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY")
    as_role(superuser, "retention")
    for name in (FRESH, OPEN, HELD, KEPT):
        assert verdict(superuser, f"DELETE FROM minutebook.events WHERE stream_id = {ids[name]}") == "MB010", name
        assert verdict(superuser, f"DELETE FROM minutebook.streams WHERE id = {ids[name]}") == "MB020", name
    superuser.execute("RESET ROLE")
    assert contents(superuser) == before
    # A row whose events are gone already goes by the same rules.
    with triggers_off(superuser, "events"):
        superuser.execute("DELETE FROM minutebook.events")
    for name in (FRESH, OPEN, HELD, KEPT):
        as_role(superuser, "retention")
        delete = f"DELETE FROM minutebook.streams WHERE id = {ids[name]}"
        assert verdict(superuser, delete) == "MB020", name
        superuser.execute("RESET ROLE")
        assert verdict(superuser, delete) == "MB020", name


@pytest.mark.parametrize("statement", ["DELETE FROM minutebook.events", "DELETE FROM minutebook.events WHERE seq < 4"])
def test_a_hold_that_comes_during_a_deletion_stops_it(any_database: Any, superuser: Any, statement: str) -> None:
    """Retention saw the stream expired and deletes its events; the hold commits before the deletion ends."""
    before = contents(superuser)[0]
    stream = stream_id(superuser, EXPIRED)
    with any_database.connect("postgres") as holder, any_database.connect("retention") as retention:
        holder.autocommit = False
        as_role(holder, "owner")
        holder.execute("UPDATE minutebook.streams SET held = true WHERE id = %s", (stream,))
        deletion = Background(lambda: retention.execute(statement))
        until_blocked(superuser, retention.info.backend_pid)
        holder.commit()
        with refused("MB010"):
            deletion.result()
        assert verdict(retention, f"SELECT minutebook.purge_stream_v1({stream})") == "passed, rows: 1"
    assert contents(superuser)[0] == before
    assert one(superuser, "SELECT held FROM minutebook.streams WHERE id = %s", stream)


def test_law_10_a_snapshot_saved_during_a_purge_goes_with_its_stream(any_database: Any, superuser: Any) -> None:
    superuser.execute("DELETE FROM minutebook.snapshots")
    stream = stream_id(superuser, EXPIRED)
    with any_database.connect("app") as app, any_database.connect("retention") as retention:
        app.autocommit = False
        app.execute("INSERT INTO minutebook.snapshots VALUES (%s, 4, 'room.1', '{\"title\": \"x\"}')", (stream,))
        purge = Background(lambda: one(retention, "SELECT minutebook.purge_stream_v1(%s)", stream))
        until_blocked(superuser, retention.info.backend_pid)
        app.commit()
        assert purge.result() == 4
        app.autocommit = True
        with refused("23503"):
            app.execute("INSERT INTO minutebook.snapshots VALUES (%s, 4, 'room.1', '{}')", (stream,))
    assert left(superuser, stream) == dict.fromkeys(LEFTOVERS, 0)


def test_keys_older_than_30_days_may_be_swept_and_younger_ones_not(any_database: Any, superuser: Any) -> None:
    superuser.execute(
        "UPDATE minutebook.idempotency SET created_at = created_at - interval '31 days' WHERE key = %s", (OPEN,)
    )
    superuser.execute("DELETE FROM minutebook.idempotency WHERE key = %s", (EXPIRED,))
    with any_database.connect("retention") as retention:
        assert verdict(retention, "DELETE FROM minutebook.idempotency") == "passed, rows: 1"
    kept = superuser.execute("SELECT key FROM minutebook.idempotency ORDER BY 1").fetchall()
    assert kept == [(FRESH,), (HELD,)]


def test_b15_an_append_during_a_purge_is_sealed_or_finds_no_stream(any_database: Any, superuser: Any) -> None:
    stream = stream_id(superuser, EXPIRED)
    with any_database.connect("app") as app, any_database.connect("retention") as retention:
        retention.autocommit = False
        assert one(retention, "SELECT minutebook.purge_stream_v1(%s)", stream) == 4
        appending = Background(lambda: outcomes(append(app, item(4, event(), stream=EXPIRED))))
        until_blocked(superuser, app.info.backend_pid)
        retention.commit()
        assert appending.result() == ["conflict"]
        assert outcomes(append(app, item(4, event(), stream=EXPIRED))) == ["conflict"]
    assert left(superuser, stream) == dict.fromkeys(LEFTOVERS, 0)


def test_who_looked_into_a_conversation_goes_with_it(any_database: Any) -> None:
    talk, other, room = (f"conversation:{letter * 26}" for letter in "xyz")
    trails = [stream.replace("conversation", "audit") for stream in (talk, other, room)]
    with any_database.connect("app") as app:
        append(app, *(creation(*events(3), stream=name, kind="conversation") for name in (talk, other)))
        append(app, *(creation(*events(2), stream=name, kind="audit") for name in trails))
        append(app, *(item(3, event(), stream=name, seal=True) for name in (talk, other)))
    with any_database.connect("postgres") as superuser:
        ids = {name: stream_id(superuser, name) for name in (talk, other, *trails)}
        expire(superuser, talk, days=90)
        with any_database.connect("app") as app:
            assert outcomes(append(app, item(2, event(), stream=trails[0]))) == ["appended"], "behind the seal"
        with any_database.connect("retention") as retention:
            assert retention.execute("SELECT name FROM minutebook.streams").fetchall() == [(talk,)]
            assert one(retention, "SELECT minutebook.purge_stream_v1(%s)", ids[trails[0]]) is None, "not before it"
            assert one(retention, "SELECT minutebook.purge_stream_v1(%s)", ids[talk]) == 4 + 3
        assert left(superuser, ids[talk]) == left(superuser, ids[trails[0]]) == dict.fromkeys(LEFTOVERS, 0)
        names = superuser.execute("SELECT name, sealed FROM minutebook.streams ORDER BY id").fetchall()
        assert names == [(other, True), (trails[1], False), (trails[2], False)]
