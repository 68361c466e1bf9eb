"""B07: nobody changes or empties the log, by privilege where the role is not the owner, by trigger where it is."""

from __future__ import annotations

from typing import Any

import pytest
from append_helpers import (
    LOGIN_ROLES,
    append,
    as_role,
    contents,
    creation,
    event,
    events,
    item,
    key,
    one,
    refused,
    stream_id,
    verdict,
)

DENIED = "42501"

INSERT_EVENT = """
INSERT INTO minutebook.events (stream_id, seq, id, type, schema_version, actor_kind, actor_id, origin, redactions,
    classes, payload)
VALUES (1, 4, '01ARZ3NDEKTSV4RRFFQ69G5FAV', 'message', 1, 'human', 'eve', 'client', '{}', '{}', '{}')
"""

CHANGES = (
    "UPDATE minutebook.events SET type = 'forged'",
    "UPDATE minutebook.events SET payload = '{}'",
    "UPDATE minutebook.events SET hash = hash, payload = NULL, salt = NULL",
    "DELETE FROM minutebook.events",
    "DELETE FROM minutebook.events WHERE false",
    INSERT_EVENT + " ON CONFLICT (stream_id, seq) DO UPDATE SET type = 'forged'",
    "MERGE INTO minutebook.events e USING minutebook.streams s ON e.stream_id = s.id WHEN MATCHED THEN DELETE",
    "TRUNCATE minutebook.events",
    "TRUNCATE minutebook.events CASCADE",
    "TRUNCATE minutebook.streams CASCADE",
    "TRUNCATE minutebook.snapshots, minutebook.streams, minutebook.events CASCADE",
)

DEFINITIONS = (
    "ALTER TABLE minutebook.events DISABLE TRIGGER ALL",
    "ALTER TABLE minutebook.events DISABLE TRIGGER events_guard_change",
    "ALTER TABLE minutebook.events ENABLE REPLICA TRIGGER events_guard_change",
    "ALTER TABLE minutebook.events NO FORCE ROW LEVEL SECURITY",
    "ALTER TABLE minutebook.events DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE minutebook.events OWNER TO minutebook_app",
    "ALTER TABLE minutebook.events RENAME TO gone",
    "ALTER SCHEMA minutebook OWNER TO minutebook_app",
    "DROP TRIGGER events_guard_change ON minutebook.events",
    "DROP POLICY events_read ON minutebook.events",
    "DROP TABLE minutebook.events",
    "DROP TABLE minutebook.streams CASCADE",
    "DROP SCHEMA minutebook CASCADE",
    "DROP FUNCTION minutebook.guard_event_change() CASCADE",
    "CREATE OR REPLACE FUNCTION minutebook.netstrings(text[]) RETURNS text LANGUAGE sql AS 'SELECT'",
    "CREATE TRIGGER mine BEFORE INSERT ON minutebook.events FOR EACH ROW EXECUTE FUNCTION minutebook.guard_truncate()",
    "CREATE RULE mine AS ON INSERT TO minutebook.events DO INSTEAD NOTHING",
    "CREATE TABLE minutebook.mine (stream_id bigint REFERENCES minutebook.streams (id))",
    "SET session_replication_role = replica",
    "SET ROLE minutebook_owner",
)

DIRECT_WRITES = (
    INSERT_EVENT,
    "INSERT INTO minutebook.streams (name, kind, tenant) VALUES ('room:eeeeeeee', 'room', 'acme')",
    "UPDATE minutebook.streams SET sealed = false",
    "UPDATE minutebook.streams SET held = true",
    "UPDATE minutebook.streams SET version = version + 1",
    "INSERT INTO minutebook.idempotency VALUES ('acme', 'eve', 'post', 'rooms', 'k', '', 200, '{}')",
    "UPDATE minutebook.idempotency SET body = '{}'",
    "INSERT INTO minutebook.leases VALUES (1, 'driver', 'eve', 99, now())",
    "UPDATE minutebook.leases SET epoch = 99",
    "UPDATE minutebook.log SET log_id = 'other'",
    "INSERT INTO minutebook.feed VALUES (1, 1, 1)",
    "DELETE FROM minutebook.feed",
    "DELETE FROM minutebook.feed_queue",
    "DELETE FROM minutebook.migrations",
    "SELECT setval('minutebook.streams_id_seq', 1)",
    "SELECT nextval('minutebook.streams_id_seq')",
    "SELECT minutebook.feed_switch_v1(true)",
)


@pytest.fixture
def superuser(any_database: Any) -> Any:
    """A superuser's session on a log of two streams, one of them sealed."""
    with any_database.connect("app") as app:
        append(app, creation(*events(3), **key("first")), creation(event(), stream="room:bbbbbbbb", seal=True))
    with any_database.connect("postgres") as connection:
        yield connection


@pytest.mark.parametrize("role", LOGIN_ROLES)
def test_b07_a_role_cannot_change_the_log_by_any_statement(any_database: Any, superuser: Any, role: str) -> None:
    before = contents(superuser)
    statements = CHANGES + DEFINITIONS + DIRECT_WRITES
    expected = dict.fromkeys(statements, DENIED)
    if role == "eraser":
        # The eraser has a right to these two columns, so the trigger is what stops it.
        expected["UPDATE minutebook.events SET payload = '{}'"] = "MB010"
    if role == "retention":
        # Retention has DELETE, and row-level security shows it nothing of a stream that may not go.
        expected |= {s: "passed, rows: 0" for s in CHANGES if s.startswith(("DELETE", "MERGE"))}
    with any_database.connect(role) as connection:
        assert {statement: verdict(connection, statement) for statement in statements} == expected
        verdict(connection, "GRANT ALL ON minutebook.events TO minutebook_app")  # answered with a warning, or denied
    assert contents(superuser) == before
    assert not one(superuser, "SELECT has_table_privilege('minutebook_app', 'minutebook.events', 'INSERT, DELETE')")


@pytest.mark.parametrize("session", ["owner", "superuser", "replica"])
def test_b07_triggers_refuse_the_owner_and_a_session_in_replica_mode(superuser: Any, session: str) -> None:
    before = contents(superuser)
    if session == "replica":
        superuser.execute("SET session_replication_role = replica")
    if session == "owner":
        as_role(superuser, "owner")
    for statement in CHANGES:
        with refused("MB010"):
            superuser.execute(statement)
    for statement in ("DELETE FROM minutebook.streams", "DELETE FROM minutebook.streams WHERE false"):
        with refused("MB020"):
            superuser.execute(statement)
    superuser.execute("RESET ROLE")
    assert contents(superuser) == before


def test_b07_a_superuser_as_eraser_or_retention_does_no_more_than_they_do(superuser: Any) -> None:
    before = contents(superuser)
    for role in ("eraser", "retention", "app"):
        as_role(superuser, role)
        for statement in ("UPDATE minutebook.events SET type = 'forged'", "TRUNCATE minutebook.events"):
            with refused(DENIED):
                superuser.execute(statement)
        superuser.execute("RESET ROLE")
    assert contents(superuser) == before


def test_b07_every_guard_fires_always(superuser: Any) -> None:
    rows = superuser.execute(
        "SELECT tgname, tgenabled FROM pg_trigger WHERE NOT tgisinternal"
        " AND tgrelid IN ('minutebook.events'::regclass, 'minutebook.streams'::regclass)"
    ).fetchall()
    assert len(rows) == 24
    assert {mode for _, mode in rows} == {b"A"} or {mode for _, mode in rows} == {"A"}


def test_no_login_role_can_become_another(superuser: Any) -> None:
    members = superuser.execute(
        "SELECT m.rolname, r.rolname FROM pg_auth_members a JOIN pg_roles m ON m.oid = a.member"
        " JOIN pg_roles r ON r.oid = a.roleid WHERE m.rolname LIKE 'minutebook%' AND r.rolname LIKE 'minutebook%'"
    ).fetchall()
    assert members == []
    attributes = superuser.execute(
        "SELECT rolname, rolcanlogin FROM pg_roles WHERE rolname LIKE 'minutebook\\_%'"
        " AND NOT (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls) ORDER BY 1"
    ).fetchall()
    assert dict(attributes) == {"minutebook_owner": False} | {f"minutebook_{role}": True for role in LOGIN_ROLES}


def test_the_retention_role_cannot_touch_what_stands_beside_a_live_stream(any_database: Any, superuser: Any) -> None:
    with any_database.connect("app") as app:
        app.execute("SELECT minutebook.lease_take_v1('room:aaaaaaaa', 'driver', 'anna', 60)")
        app.execute("INSERT INTO minutebook.snapshots VALUES (%s, 3, 'room.1', '{}')", (stream_id(app),))
    with any_database.connect("retention") as retention:
        for table in ("idempotency", "leases", "snapshots"):
            assert retention.execute(f"DELETE FROM minutebook.{table}").rowcount == 0, table
    for table in ("idempotency", "leases", "snapshots"):
        assert one(superuser, f"SELECT count(*) FROM minutebook.{table}") == 1, table


def test_append_goes_on_after_all_that_was_refused(any_database: Any, superuser: Any) -> None:
    with any_database.connect("app") as app:
        for statement in CHANGES:
            with refused(DENIED):
                app.execute(statement)
        assert append(app, item(3, event()))[0].seq == 4
