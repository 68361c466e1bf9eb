"""Law 6: functions with more rights than their caller ignore its search_path and temporary objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from append_helpers import (
    Item,
    append,
    creation,
    event,
    events,
    expire,
    item,
    key,
    one,
    outcomes,
    refused,
    run,
    stream_id,
    verdict,
)

FIXED = "search_path=pg_catalog, pg_temp"

CALLERS = {
    "append_one_v2": {"app"},
    "append_fenced_v1": {"app"},
    "append_new_v1": {"app"},
    "append_plain_v1": {"app"},
    "append_v1": {"app"},
    "lease_take_v1": {"app"},
    "lease_drop_v1": {"app"},
    "feed_advance_v1": {"app", "auditor"},
    "fork_v1": {"app"},
    "hold_closed_v1": {"app"},
    "name_erasure_v1": {"eraser"},
    "name_words_erasure_v1": {"eraser"},
    "turn_work_done_v1": {"app"},
    "turn_seen_v1": {"app"},
    "deltas_put_v1": {"app"},
    "deltas_drop_v1": {"app"},
    "deltas_expire_v1": {"app"},
    "token_reserve_v1": {"app"},
    "token_settle_v1": {"app"},
    "tokens_expire_v1": {"app"},
    "memory_write_v1": {"app"},
    "memories_expire_v1": {"app"},
    "seq_at_v1": {"app"},
    "release_orders_v1": {"app"},
    "inbox_open_v1": {"app"},
    "take_push_v1": {"app"},
    "inbox_put_v1": {"app"},
    "inbox_purge_v1": {"app"},
    "inbox_expire_v1": {"app"},
    "forget_ends_v2": {"app"},
    "is_purge_whole": {"retention"},
    "purge_stream_v1": {"retention"},
}
"""Which roles of the house may execute what; nobody but the owner executes anything else."""

DEFINERS = {
    "append_fenced_v1",
    "append_one_v2",
    "append_new_v1",
    "append_plain_v1",
    "append_v1",
    "lease_take_v1",
    "lease_drop_v1",
    "feed_advance_v1",
    "fork_v1",
    "hold_closed_v1",
    "forget_snapshot",
    "name_erasure_v1",
    "name_words_erasure_v1",
    "turn_work_done_v1",
    "turn_seen_v1",
    "deltas_put_v1",
    "deltas_drop_v1",
    "deltas_expire_v1",
    "token_reserve_v1",
    "token_settle_v1",
    "tokens_expire_v1",
    "memory_write_v1",
    "memories_expire_v1",
    "seal_audit",
    "release_orders_v1",
    "inbox_open_v1",
    "take_push_v1",
    "inbox_put_v1",
    "inbox_purge_v1",
    "inbox_expire_v1",
    "forget_ends_v2",
    "is_purge_whole",
}

FORK = (
    "SELECT outcome FROM minutebook.fork_v1('room:aaaaaaaa', 2, 'room:cccccccc', %s::pg_catalog.json, 100, 9999,"
    " %s::pg_catalog.json)"
)
FORK_KEY = {
    "tenant": "acme",
    "caller": "anna",
    "operation": "fork",
    "scope": "room",
    "key": "f",
    "fingerprint": "0a",
    "status": 201,
    "body": {"forkedFrom": {"seq": 2}},
}

OURS = "NOT p.pronamespace = ANY (ARRAY['pg_catalog', 'information_schema']::regnamespace[])"

ROLES = ("minutebook_app", "minutebook_projector", "minutebook_retention", "minutebook_eraser", "minutebook_auditor")

TRAPPED_FUNCTIONS = (
    "clock_timestamp() RETURNS timestamptz",
    "gen_random_uuid() RETURNS uuid",
    "sha256(bytea) RETURNS bytea",
    "uuid_send(uuid) RETURNS bytea",
    "octet_length(text) RETURNS int",
    "convert_to(text, name) RETURNS bytea",
    "encode(bytea, text) RETURNS text",
    "decode(text, text) RETURNS bytea",
    "to_char(timestamp, text) RETURNS text",
    "substr(text, int) RETURNS text",
    "pg_notify(text, text) RETURNS void",
    "current_setting(text) RETURNS text",
    "pg_current_xact_id() RETURNS xid8",
    "pg_advisory_xact_lock(bigint) RETURNS void",
    "strpos(text, text) RETURNS int",
    "array_remove(bigint[], bigint) RETURNS bigint[]",
    "jsonb_strip_nulls(jsonb) RETURNS jsonb",
    "netstrings(text[]) RETURNS text",
    "set_config(text, text, boolean) RETURNS text",
    "json_to_record(json) RETURNS record",
    "int8send(bigint) RETURNS bytea",
    "upper(text) RETURNS text",
    "jsonb_set(jsonb, text[], jsonb) RETURNS jsonb",
    "floor(numeric) RETURNS numeric",
    "char_length(text) RETURNS int",
    "timezone(text, timestamptz) RETURNS timestamp",
    "to_jsonb(anyelement) RETURNS jsonb",
    "json_to_recordset(json) RETURNS SETOF record",
)

TRAPPED_OPERATORS = (
    ("=", "bigint", "boolean"),
    ("=", "integer", "boolean"),
    ("=", "text", "boolean"),
    ("=", "bytea", "boolean"),
    ("<>", "bigint", "boolean"),
    ("<>", "text", "boolean"),
    ("<>", "bytea", "boolean"),
    ("<", "xid8", "boolean"),
    ("<=", "timestamptz", "boolean"),
    (">", "bigint", "boolean"),
    ("+", "bigint", "bigint"),
    ("-", "bigint", "bigint"),
    ("||", "text", "text"),
    ("||", "bytea", "bytea"),
    ("||", "jsonb", "jsonb"),
    ("@>", "jsonb", "boolean"),
)

TEMPORARY = (
    "CREATE TEMP TABLE {} (id bigint, stream_id bigint, seq bigint, name text, sealed boolean, version bigint,"
    " key text, hash bytea, ts timestamptz, bytes bigint, txid xid8, epoch bigint, holder text, audit_feed boolean)"
)
TEMPORARY_NAMES = (
    "streams",
    "events",
    "idempotency",
    "leases",
    "snapshots",
    "log",
    "feed",
    "feed_queue",
    "inserted",
    "deleted",
    "pg_class",
    "turn_work",
    "turn_seen",
    "conversations",
    "deltas",
    "token_use",
    "token_reservations",
    "memories",
    "stored",
)


def trap(superuser: psycopg.Connection) -> None:
    """A schema that everybody may use, where each name that our functions call raises when it is called."""
    superuser.execute("CREATE SCHEMA trap")
    superuser.execute("GRANT USAGE ON SCHEMA trap TO PUBLIC")
    body = "LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'trapped'; END$$"
    for signature in TRAPPED_FUNCTIONS:
        run(superuser, f"CREATE FUNCTION trap.{signature} {body}")
    for n, (operator, type_, result) in enumerate(TRAPPED_OPERATORS):
        run(superuser, f"CREATE FUNCTION trap.op{n}({type_}, {type_}) RETURNS {result} {body}")
        run(
            superuser, f"CREATE OPERATOR trap.{operator} (FUNCTION = trap.op{n}, LEFTARG = {type_}, RIGHTARG = {type_})"
        )
    superuser.execute("CREATE DOMAIN trap.text AS pg_catalog.text CHECK (false)")
    superuser.execute("CREATE DOMAIN trap.jsonb AS pg_catalog.jsonb CHECK (false)")


def walk_in(connection: psycopg.Connection) -> None:
    """Put the traps before everything of the session, and temporary tables under our tables' names."""
    for name in TEMPORARY_NAMES:
        run(connection, TEMPORARY.format(name))
    connection.execute("SET search_path = trap, pg_temp, pg_catalog, minutebook")
    with refused("P0001"):
        connection.execute("SELECT 1::pg_catalog.int8 = 1::pg_catalog.int8")
    with refused("P0001"):
        connection.execute("SELECT clock_timestamp()")


@pytest.fixture
def superuser(any_database: Any) -> Iterator[psycopg.Connection]:
    with any_database.connect("postgres") as connection:
        trap(connection)
        connection.execute("SELECT minutebook.feed_switch_v1(true)")
        yield connection


def test_law_6_append_leases_and_feed_ignore_the_callers_names(any_database: Any, superuser: Any) -> None:
    with any_database.connect("app") as app:
        walk_in(app)
        first = append(app, creation(*events(2), **key("a"), hold=True), creation(event(), stream="room:bbbbbbbb"))
        taken = app.execute("SELECT * FROM minutebook.lease_take_v1('room:aaaaaaaa', 'run', 'h', 60)").fetchone()
        fence: Item = {"fencePurpose": "run", "fenceHolder": "h", "fenceEpoch": 1}
        second = append(
            app, item(2, event(), **key("b"), **fence), creation(**key("a")), item(1, stream="room:bbbbbbbb")
        )
        dropped = app.execute("SELECT minutebook.lease_drop_v1('room:aaaaaaaa', 'run', 'h', 1)").fetchone()
        own = json.dumps(event({"kind": "forked_from"}))
        forked = app.execute(FORK, (own, json.dumps(FORK_KEY))).fetchone()
        app.execute("SELECT minutebook.feed_advance_v1()")
    assert forked == ("appended",)
    assert outcomes(first) == ["appended", "appended"]
    assert outcomes(second) == ["appended", "duplicate", "appended"]
    assert (taken, dropped) == ((1, "h"), (True,))
    assert one(superuser, "SELECT count(*) FROM minutebook.feed") == 7
    for name in ("events", "streams", "idempotency"):
        assert one(superuser, f"SELECT count(*) FROM minutebook.{name}") == {"events": 7}.get(name, 3)


def test_law_6_what_is_beside_conversations_ignores_the_callers_names(any_database: Any, superuser: Any) -> None:
    begin = event({"owner": {"actor": "human:ada"}}, t="conversation_started")
    with any_database.connect("app") as app:
        walk_in(app)
        said = [event({"text": "x"}, t="envelope_received"), event({"turn": 1}, t="reply_recorded")]
        append(app, creation(begin, *said, stream="conversation:a"))
        app.execute("SELECT minutebook.lease_take_v1('conversation:a', 'runner', 'h', 60)")
        stream = one(app, "SELECT s.id FROM minutebook.streams s LIMIT 1")
        row = [{"s": stream, "t": 1, "a": 1, "o": 0, "x": "x", "e": 1}]
        for call, answer in (
            (f"deltas_put_v1('{json.dumps(row)}')", 1),
            (f"deltas_drop_v1({stream}, 1)", ""),
            ("deltas_expire_v1()", 0),
            (f"turn_seen_v1({stream}, 1, 1)", ""),
            (f"turn_work_done_v1({stream}, 2)", True),
            ("token_reserve_v1('e', 'acme', 'human:ada', '', 'echo', 5, 9)", True),
            ("token_reserve_v1('f', 'acme', 'human:ada', '', 'echo', 5, 9)", False),
            ("token_settle_v1('e', 5)", True),
            ("tokens_expire_v1()", 0),
            (f"memory_write_v1({stream}, 1, 'acme', 'a', 'k', 'x', 'a', '{{}}')", "written"),
            (f"memory_write_v1({stream}, 2, 'acme', 'a', 'k', 'x', 'a', '{{}}')", "fenced"),
            (f"memory_write_v1({stream}, 1, 'acme', 'a', 'l', '', 'a', '{{}}')", "removed"),
            ("memories_expire_v1()", 0),
            ("inbox_expire_v1(10, 10)", 0),
            ("inbox_purge_v1('{a}')", 0),
            ("inbox_put_v1('acme', 'inbox', 'human:ada', 'a', 1, 'web', 1, 'x', NULL, 9)", "unknown"),
        ):
            assert one(app, f"SELECT minutebook.{call}") == answer, call
    for table, rows in {
        "conversations": 1,
        "turn_work": 0,
        "turn_seen": 1,
        "deltas": 0,
        "token_use": 1,
        "memories": 1,
    }.items():
        assert one(superuser, f"SELECT count(*) FROM minutebook.{table}") == rows, table


def test_law_6_guards_of_retention_and_eraser_ignore_the_callers_names(any_database: Any, superuser: Any) -> None:
    with any_database.connect("app") as app:
        erasing = event({"kind": "payload_erased", "erasedSeq": 1}, t="state_changed")
        append(
            app, creation(event(), event(), erasing, seal=True), creation(event(), stream="room:bbbbbbbb", seal=True)
        )
        sealed, expired = stream_id(app), stream_id(app, "room:bbbbbbbb")
    expire(superuser, "room:bbbbbbbb")
    with any_database.connect("eraser") as eraser:
        # The statement itself is the caller's, so it names its operators in full; the trigger's are its own.
        walk_in(eraser)
        where = f"WHERE stream_id OPERATOR(pg_catalog.=) {sealed}::pg_catalog.int8 AND seq OPERATOR(pg_catalog.=)"
        erase = f"UPDATE minutebook.events SET payload = NULL, salt = NULL {where} "
        assert verdict(eraser, f"{erase} 2::pg_catalog.int8") == "MB010"
        assert verdict(eraser, f"{erase} 1::pg_catalog.int8") == "passed, rows: 1"
        name = "SELECT outcome FROM minutebook.name_erasure_v1('room:aaaaaaaa', 2, '01J00000000000000000000000',"
        assert one(eraser, f"{name} 'x', '{{}}', true)") == one(eraser, f"{name} 'x', '{{}}', false)") == "named"
        assert verdict(eraser, f"{erase} 2::pg_catalog.int8") == "passed, rows: 1"
    with any_database.connect("retention") as retention:
        walk_in(retention)
        assert verdict(retention, "DELETE FROM minutebook.events WHERE false") == "passed, rows: 0"
        assert one(retention, "SELECT minutebook.purge_stream_v1(%s)", sealed) is None
        assert one(retention, "SELECT minutebook.purge_stream_v1(%s)", expired) == 1


def test_law_6_every_definer_function_has_a_fixed_search_path(superuser: Any) -> None:
    rows = superuser.execute(
        f"SELECT p.proname, coalesce(p.proconfig, '{{}}') FROM pg_proc p WHERE p.prosecdef AND {OURS}"
    ).fetchall()
    assert {name for name, _ in rows} == DEFINERS
    assert {name for name, config in rows if FIXED not in config} == set()


def test_law_6_only_the_roles_that_need_a_function_may_call_it(superuser: Any) -> None:
    superuser.execute("DROP SCHEMA trap CASCADE")
    rows = superuser.execute(
        "SELECT p.proname, pg_get_userbyid(p.proowner),"
        " p.proacl IS NULL OR EXISTS (SELECT FROM aclexplode(p.proacl) a WHERE a.grantee = 0),"
        " ARRAY(SELECT r FROM unnest(%s::text[]) r WHERE has_function_privilege(r, p.oid, 'EXECUTE'))"
        f" FROM pg_proc p WHERE {OURS}",
        (list(ROLES),),
    ).fetchall()
    assert len(rows) >= 14
    assert {owner for _, owner, _, _ in rows} == {"minutebook_owner"}
    assert [name for name, _, is_public, _ in rows if is_public] == []
    allowed = {name: {role.removeprefix("minutebook_") for role in roles} for name, _, _, roles in rows if roles}
    # The job engine's own ones run with their caller's rights, which end at its tables.
    engine = {name for name in allowed if name.startswith("procrastinate_")}
    assert {frozenset(allowed.pop(name)) for name in engine} == {frozenset({"app", "projector"})}
    assert allowed == CALLERS


def test_a_function_of_a_later_migration_is_not_public_by_default(superuser: Any) -> None:
    superuser.execute("SET ROLE minutebook_owner")
    superuser.execute("CREATE FUNCTION minutebook.later_v1() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    assert not one(superuser, "SELECT has_function_privilege('minutebook_app', 'minutebook.later_v1()', 'EXECUTE')")


def test_nobody_may_reach_the_schemas_without_a_role_of_the_house(superuser: Any) -> None:
    superuser.execute("CREATE ROLE stranger_to_the_house")
    try:
        superuser.execute("SET ROLE stranger_to_the_house")
        for statement in (
            "SELECT 1 FROM minutebook.events",
            "SELECT 1 FROM minutebook_views.room_list",
            "SELECT minutebook.feed_advance_v1()",
        ):
            assert verdict(superuser, statement) == "42501", statement
    finally:
        superuser.execute("RESET ROLE")
        superuser.execute("DROP ROLE stranger_to_the_house")
