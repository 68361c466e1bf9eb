"""`minutebook doctor` finds each thing that it looks for: every guard is broken once, and named."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from append_helpers import append, creation, events, item, triggers_off
from live_server import LiveServer, post
from minutebook.domain.errors import Unavailable
from minutebook.infra.postgres import doctor as module
from minutebook.infra.postgres.doctor import Urls, examine
from verbs import Done, at, verb

NAMES = [
    "database", "migrations", "triggers", "functions", "rowSecurity", "grants", "roles", "gaps", "chain", "projections",
    "parked", "jobs", "listener", "transactions", "auditFeed",
]  # fmt: skip


def urls_of(database: Any) -> Urls:
    return Urls(database.url("auditor"), database.url("app"), database.url("app"), database.url("postgres"))


def faults(database: Any, *, quick: bool = False) -> dict[str, str]:
    return {check.name: check.detail for check in examine(urls_of(database), quick=quick) if not check.ok}


@pytest.fixture
def rooms(any_database: Any) -> Any:
    """Two rooms of three events each."""
    with any_database.connect("app") as app:
        append(app, *(creation(*events(3), stream=name) for name in ("room:aaaaaaaa", "room:bbbbbbbb")))
    return any_database


def test_a_sound_database_passes_every_check(rooms: Any) -> None:
    for quick in (False, True):
        checks = examine(urls_of(rooms), quick=quick)
        assert [check.name for check in checks] == NAMES
        assert [check for check in checks if not check.ok] == []


BROKEN: dict[str, tuple[str, str]] = {
    "migrations": (
        "UPDATE minutebook.migrations SET checksum = 'x' WHERE name = 'functions/20_append_v1.sql'",
        "functions/20_append_v1.sql is not applied",
    ),
    "migrations edited": (
        "UPDATE minutebook.migrations SET checksum = 'x' WHERE name = 'migrations/0002_log.sql'",
        "was edited after it was applied",
    ),
    "triggers": (
        "ALTER TABLE minutebook.events DISABLE TRIGGER events_guard_change",
        "events_guard_change is not ENABLE",
    ),
    "triggers origin": (
        "ALTER TABLE minutebook.events ENABLE TRIGGER events_guard_insert",
        "is not ENABLE ALWAYS",
    ),
    "triggers gone": (
        "DROP TRIGGER events_guard_truncate ON minutebook.events",
        "events_guard_truncate is missing",
    ),
    "triggers other": (
        (
            "CREATE OR REPLACE TRIGGER events_guard_change BEFORE DELETE ON minutebook.events FOR EACH ROW "
            "EXECUTE FUNCTION minutebook.guard_event_change()"
        ),
        "trigger events_guard_change is not the one of this version",
    ),
    "triggers hollow": (
        (
            "CREATE OR REPLACE TRIGGER events_guard_change BEFORE UPDATE OR DELETE ON minutebook.events FOR "
            "EACH ROW WHEN (false) EXECUTE FUNCTION minutebook.guard_event_change()"
        ),
        "trigger events_guard_change is not the one of this version",
    ),
    "triggers unknown": (
        (
            "CREATE TRIGGER mine BEFORE INSERT ON minutebook.events FOR EACH ROW EXECUTE FUNCTION "
            "minutebook.guard_event_insert()"
        ),
        "trigger mine on events is unknown",
    ),
    "functions": (
        (
            "CREATE OR REPLACE FUNCTION minutebook.guard_truncate() RETURNS trigger LANGUAGE plpgsql SET "
            "search_path = pg_catalog, pg_temp AS 'BEGIN RETURN NULL; END'"
        ),
        "function guard_truncate is not the one of this version",
    ),
    "functions public": (
        "GRANT EXECUTE ON FUNCTION minutebook.feed_switch_v1(boolean) TO PUBLIC",
        "PUBLIC may call function feed_switch_v1",
    ),
    "functions lost": (
        "REVOKE EXECUTE ON FUNCTION minutebook.purge_stream_v1(bigint) FROM minutebook_retention",
        "minutebook_retention may not call function purge_stream_v1",
    ),
    "functions path": (
        "ALTER FUNCTION minutebook.lease_take_v1(text, text, text, integer) RESET search_path",
        "lease_take_v1 runs with its owner's rights and its caller's search_path",
    ),
    "functions gone": (
        "DROP FUNCTION minutebook.lease_drop_v1(text, text, text, bigint)",
        "function lease_drop_v1 is missing",
    ),
    "functions aggregate": (
        (
            "CREATE OR REPLACE AGGREGATE minutebook.event_chain(text, bytea, integer) ("
            "SFUNC = minutebook.event_chain_next, STYPE = bytea, INITCOND = 'x')"
        ),
        "function event_chain is not the one of this version",
    ),
    "functions unknown": (
        "CREATE FUNCTION minutebook.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "mine is unknown",
    ),
    "rowSecurity": (
        "ALTER TABLE minutebook.events NO FORCE ROW LEVEL SECURITY",
        "security of events is not forced",
    ),
    "rowSecurity off": (
        "ALTER TABLE minutebook.leases DISABLE ROW LEVEL SECURITY",
        "security of leases is not on",
    ),
    "rowSecurity policy": (
        "DROP POLICY streams_expired_delete ON minutebook.streams",
        "streams_expired_delete of streams",
    ),
    "rowSecurity more": (
        "CREATE POLICY mine ON minutebook.events FOR DELETE TO minutebook_app USING (true)",
        "policy mine of events is unknown",
    ),
    "rowSecurity to": (
        "ALTER POLICY events_read ON minutebook.events TO PUBLIC",
        "policy events_read of events is missing",
    ),
    "grants": (
        "GRANT UPDATE ON minutebook.events TO minutebook_app",
        "too much: minutebook_app UPDATE on minutebook.events",
    ),
    "grants lost": (
        "REVOKE DELETE ON minutebook.streams FROM minutebook_retention",
        "missing: minutebook_retention DELETE on minutebook.streams",
    ),
    "grants column": (
        "GRANT SELECT (payload) ON minutebook.events TO minutebook_retention",
        "too much: minutebook_retention SELECT (payload) on minutebook.events",
    ),
    "grants public": (
        "GRANT SELECT ON minutebook.leases TO PUBLIC",
        "too much: PUBLIC SELECT on minutebook.leases",
    ),
    "grants views": (
        "REVOKE SELECT ON minutebook_views.transcript FROM minutebook_app",
        "missing: minutebook_app SELECT on minutebook_views.transcript",
    ),
    "roles owner": (
        "ALTER TABLE minutebook_views.parked OWNER TO minutebook_app",
        "minutebook_views.parked belongs to minutebook_app, not to minutebook_projector",
    ),
    "roles create": (
        "GRANT CREATE ON SCHEMA minutebook TO minutebook_app",
        "minutebook_app may create in schema",
    ),
    "gaps": (
        (
            "INSERT INTO minutebook.streams (name, kind, tenant, version, head_hash) VALUES "
            "('room:cccccccc', 'room', 'acme', 2, '')"
        ),
        "room:cccccccc: version 2, but 0 events up to 0",
    ),
    "gaps tail": (
        "DELETE FROM minutebook.events WHERE stream_id = 1 AND seq = 3",
        "version 3, but 2 events up to 2",
    ),
    "gaps hole": (
        "DELETE FROM minutebook.events WHERE stream_id = 1 AND seq = 2",
        "version 3, but 2 events up to 3",
    ),
    "gaps orphans": (
        "DELETE FROM minutebook.streams WHERE id = 1",
        "events of stream 1, which is not there",
    ),
    "chain": (
        "UPDATE minutebook.events SET payload = '{}' WHERE stream_id = 2 AND seq = 2",
        "room:bbbbbbbb at 2: The payload of event 2",
    ),
    "projections": (
        "UPDATE minutebook.streams SET last_ts = last_ts - interval '5 minutes' WHERE id = 1",
        "room_list is 6 events of 2 streams behind, the oldest 30",
    ),
    "parked": (
        "INSERT INTO minutebook_views.parked VALUES ('transcript', 2, 3, 'ValueError', 4, now(), now())",
        "transcript: room:bbbbbbbb at 3 (ValueError, 4 tries)",
    ),
    "jobs failed": (
        (
            "INSERT INTO minutebook_jobs.procrastinate_jobs (queue_name, task_name, status)"
            " VALUES ('post_verdict', 'post_verdict', 'failed')"
        ),
        "1 jobs ended badly",
    ),
    "jobs waiting": (
        (
            "SET search_path = minutebook_jobs;"
            " INSERT INTO procrastinate_jobs (queue_name, task_name) VALUES ('post_verdict', 'post_verdict');"
            " UPDATE procrastinate_events SET at = at - interval '5 minutes'"
        ),
        "a job has waited for 30",
    ),
    "jobs sweep": (
        "INSERT INTO minutebook_jobs.sweeps VALUES ('expiry', 30, now() - interval '5 minutes')",
        "sweep expiry was last done 30",
    ),
    "jobs process": (
        (
            "UPDATE minutebook.streams SET last_ts = last_ts - interval '5 minutes' WHERE id = 1;"
            " UPDATE minutebook_jobs.processes SET began_at = 'epoch';"
            " INSERT INTO minutebook_views.checkpoints VALUES ('process:rooms', 2, 3)"
        ),
        "process rooms has not answered an event of 30",
    ),
    "auditFeed": (
        (
            "UPDATE minutebook.log SET audit_feed = true; UPDATE minutebook.events SET ts = ts - interval "
            "'5 minutes'; INSERT INTO minutebook.feed_queue VALUES ('9223372036854775807', 1, 1, 3)"
        ),
        "wait for an older transaction",
    ),
}
"""What is broken, under the name of the check that must find it, and the words that it must find."""


@pytest.mark.parametrize("what", BROKEN)
def test_each_thing_that_is_broken_is_found(database: Any, what: str) -> None:
    statement, words = BROKEN[what]
    name = what.partition(" ")[0]
    with database.connect("app") as app:
        append(app, *(creation(*events(3), stream=name) for name in ("room:aaaaaaaa", "room:bbbbbbbb")))
    with database.connect("postgres") as superuser:
        if name in ("gaps", "chain", "projections", "auditFeed") or what == "jobs process":
            with triggers_off(superuser, "events"), triggers_off(superuser, "streams"):
                superuser.execute(statement)
        else:
            superuser.execute(statement)
    found = faults(database)
    assert words in found[name], found
    # Nothing else takes the blame, except where the same fault breaks the chain or the grants too, or another follower.
    others = {"roles owner": {"grants"}, "projections": {"jobs"}, "jobs process": {"projections"}}
    assert set(found) <= {name, "chain", *others.get(what, ())}


def test_roles_that_could_pass_the_guards_by_are_found(database: Any) -> None:
    for broken, mended, words in (
        (
            "ALTER ROLE minutebook_app BYPASSRLS",
            "ALTER ROLE minutebook_app NOBYPASSRLS",
            "minutebook_app has BYPASSRLS",
        ),
        ("ALTER ROLE minutebook_eraser SUPERUSER", "ALTER ROLE minutebook_eraser NOSUPERUSER", "eraser is a superuser"),
        ("ALTER ROLE minutebook_owner LOGIN", "ALTER ROLE minutebook_owner NOLOGIN", "minutebook_owner may log in"),
        (
            "GRANT minutebook_owner TO minutebook_auditor",
            "REVOKE minutebook_owner FROM minutebook_auditor",
            "minutebook_auditor is a member of minutebook_owner",
        ),
    ):
        with database.connect("postgres") as superuser:
            superuser.execute(broken)
            try:
                assert words in faults(database)["roles"]
            finally:
                superuser.execute(mended)
    assert faults(database) == {}


def test_a_transaction_that_holds_the_feed_back_is_named(rooms: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OLD_S", -1)
    with rooms.connect("app") as app, rooms.connect("app") as reading:
        reading.execute("BEGIN")
        reading.execute("SELECT 1")
        app.execute("BEGIN")
        append(app, item(3, *events(1), stream="room:aaaaaaaa"))
        found = faults(rooms)
        assert f"pid {app.info.backend_pid} has been open for 0 s" in found["transactions"]
        assert str(reading.info.backend_pid) not in found["transactions"]
        app.execute("COMMIT")
    assert "transactions" not in faults(rooms)


def test_a_notify_that_is_not_heard_is_a_fault(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAR_TIMEOUT_S", 0.2)
    # The listener is in another database, as behind a pooler that loses the session.
    other = database.server.url("minutebook_app", "postgres")
    urls = Urls(database.url("auditor"), database.url("app"), other, database.url("postgres"))
    found = [check.detail for check in examine(urls) if check.name == "listener" and not check.ok]
    assert found == ["a NOTIFY was not heard; through a transaction pooler, set database.listenUrl"]


def test_a_check_that_cannot_be_made_is_not_ok(database: Any) -> None:
    with database.connect("postgres") as superuser:
        superuser.execute("REVOKE SELECT ON minutebook_views.parked FROM minutebook_auditor")
    found = faults(database)
    assert "could not be looked at: permission denied" in found["parked"]
    assert "missing: minutebook_auditor SELECT on minutebook_views.parked" in found["grants"]


def test_a_database_that_was_never_migrated(postgres18: Any) -> None:
    url = postgres18.url("postgres", "postgres")
    checks = examine(Urls(url, url, url, url))
    assert [(check.name, check.ok) for check in checks] == [("migrations", False)]
    assert "minutebook migrate" in checks[0].detail


def test_a_quick_examination_looks_into_the_newest_streams_only(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK_STREAMS", 1)
    with database.connect("app") as app:
        append(app, *(creation(*events(3), stream=name) for name in ("room:aaaaaaaa", "room:bbbbbbbb")))
    with database.connect("postgres") as superuser:
        for stream, full, quick in ((1, {"chain"}, set[str]()), (2, {"chain"}, {"chain"})):
            with triggers_off(superuser, "events"):
                superuser.execute("UPDATE minutebook.events SET payload = '{}' WHERE stream_id = %s", (stream,))
            assert set(faults(database)) == full
            assert set(faults(database, quick=True)) == quick


def test_the_verb_speaks_json_and_exit_codes(on_database: Callable[..., Done], database: Any, tmp_path: Path) -> None:
    fine = on_database("doctor", "--json")
    assert (fine.code, fine.json["ok"]) == (0, True)
    assert [sorted(check) for check in fine.json["checks"]] == [["detail", "name", "ok"]] * len(NAMES)
    assert on_database("doctor", "--quick").out.count("ok ") == len(NAMES)
    with database.connect("postgres") as superuser:
        superuser.execute("ALTER TABLE minutebook.events DISABLE TRIGGER events_guard_change")
    ill = on_database("doctor", "--json")
    assert (ill.code, ill.json["ok"]) == (1, False)
    assert "BAD triggers: trigger events_guard_change is not ENABLE ALWAYS" in on_database("doctor").out
    gone = verb("doctor", "--json", env=at(database, tmp_path) | {"MINUTEBOOK_DATABASE_URL": "postgresql://127.0.0.1:1/x",
                "MINUTEBOOK_DATABASE_OWNER_URL": "postgresql://127.0.0.1:1/x"})  # fmt: skip
    assert (gone.code, gone.json["ok"], gone.json["checks"][0]["name"]) == (3, False, "database")


def test_a_running_server_is_healthy_and_listens(server: LiveServer, owner: httpx.Client, room: str) -> None:
    post(owner, room, "hello")
    owner.get(f"/v1/rooms/{room}/transcript", params={"minSeq": 2})
    here = ("doctor", "--json", "--data-dir", server.data_dir)
    done = verb(*here)
    for _ in range(10):  # of its processes some may still be starting
        if done.code == 0:
            break
        done = verb(*here)
    assert [each for each in done.json["checks"] if not each["ok"]] == []
    assert (done.code, done.json["ok"]) == (0, True)
    listener = next(check["detail"] for check in done.json["checks"] if check["name"] == "listener")
    # The HTTP server and the projectors; the jobs are still starting, or not.
    assert "2 processes listen" in listener or "3 processes listen" in listener


def test_the_examination_is_quick_enough_for_a_probe(rooms: Any) -> None:
    began = time.monotonic()
    examine(urls_of(rooms), quick=True)
    assert time.monotonic() - began < 5
    with pytest.raises(Unavailable):
        examine(Urls(*["postgresql://127.0.0.1:1/x"] * 4))


def test_channels_that_push_while_nothing_sends_are_a_warning(
    database: Any, on_database: Callable[..., Done], tmp_path: Path
) -> None:
    words = "nothing is sent: no process of jobs has run for a minute"

    def channels() -> dict[str, Any]:
        done = on_database("doctor", "--quick", "--json")
        (check,) = [each for each in done.json["checks"] if each["name"] == "channels"]
        assert check["ok"]
        return check

    (tmp_path / "minutebook.toml").write_text("[channels.box]\nkind = 'web'\n")
    assert words in channels()["detail"]
    for age, is_asleep in (("10 seconds", False), ("2 minutes", True)):
        with database.connect("postgres") as superuser:
            superuser.execute(
                "INSERT INTO minutebook_jobs.sweeps VALUES ('lanes', 15, now() - %s::interval)"
                " ON CONFLICT (name) DO UPDATE SET done_at = EXCLUDED.done_at",
                (age,),
            )
        assert (words in channels()["detail"]) is is_asleep
    (tmp_path / "minutebook.toml").write_text(
        "[authorization]\nallowlist = 'open'\n[channels.tg]\nkind = 'telegram'\ninboundSecret = 'secret-token'\n"
        "responseTarget = 'none'\n"
    )
    assert words not in channels()["detail"]
