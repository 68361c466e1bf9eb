"""`minutebook retention` (fault B12): what expired goes, all of it and nothing else, or the verb says why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from append_helpers import append, contents, creation, event, expire, item, key, one
from verbs import Done, at, verb

TENANTS = ("acme", "beta", "core")
STREAMS = 4
"""Expired ones of each tenant, and as many fresh ones."""


def name_of(tenant: str, what: str, number: int) -> str:
    return f"room:{tenant}{'xy'[what == 'fresh']}{number:03d}"


@pytest.fixture
def log(database: Any) -> Any:
    """Three tenants, each with STREAMS expired and STREAMS fresh sealed rooms of 25 events, and an open one."""
    with database.connect("app") as app:
        for tenant in TENANTS:
            names = [name_of(tenant, what, n) for what in ("old", "fresh") for n in range(STREAMS)]
            rows = [event({"text": f"number {n}"}) for n in range(24)]
            for name in names:
                fresh_ids = [event(row["p"]) for row in rows]
                append(app, creation(*fresh_ids, stream=name, tenant=tenant, **key(name, keyTenant=tenant)))
                append(app, item(24, event(), stream=name, seal=True))
            append(app, creation(event(), stream=f"room:{tenant}open", tenant=tenant))
    with database.connect("postgres") as superuser:
        for tenant in TENANTS:
            for number in range(STREAMS):
                expire(superuser, name_of(tenant, "old", number))
    return database


def counts(database: Any) -> tuple[int, int]:
    with database.connect("postgres") as superuser:
        return tuple(one(superuser, f"SELECT count(*) FROM minutebook.{table}") for table in ("streams", "events"))  # type: ignore[return-value]


def test_b12_what_expired_is_deleted_reported_and_counted_by_another_eye(
    log: Any, on_database: Callable[..., Done]
) -> None:
    before = counts(log)
    dry = on_database("retention", "--dry-run", "--json")
    assert (dry.code, counts(log)) == (0, before)
    tenants = [{"tenant": tenant, "streams": STREAMS, "events": STREAMS * 25, "keys": 0} for tenant in TENANTS]
    assert dry.json["tenants"] == tenants
    done = on_database("retention", "--json")
    assert done.code == 0, done
    assert done.json == {
        "ok": True, "isDryRun": False, "tenants": tenants, "remainingStreams": 0, "remainingKeys": 0, "failures": [],
    }  # fmt: skip
    gone = len(TENANTS) * STREAMS
    assert counts(log) == (before[0] - gone, before[1] - gone * 25)
    with log.connect("postgres") as superuser:
        assert one(superuser, "SELECT count(*) FROM minutebook.streams WHERE name ~ '^room:[a-z]+x'") == 0
    again = on_database("retention")
    assert (again.code, again.out.strip()) == (0, "nothing has expired")
    assert on_database("verify").code == 0


BROKEN = {
    "the grant": ("REVOKE DELETE ON minutebook.events FROM minutebook_retention", "lacks DELETE on minutebook.events"),
    "the right to see": ("REVOKE SELECT ON minutebook.streams FROM minutebook_retention", "permission denied"),
    "the function": (
        "REVOKE EXECUTE ON FUNCTION minutebook.purge_stream_v1(bigint) FROM minutebook_retention",
        "lacks EXECUTE on minutebook.purge_stream_v1",
    ),
    "a view": (
        "REVOKE DELETE ON minutebook_views.transcript FROM minutebook_retention",
        "lacks DELETE on minutebook_views.transcript",
    ),
    "the policy": (
        "DROP POLICY streams_expired_read ON minutebook.streams",
        "hides 12 of 12 expired streams from the retention role",
    ),
    "the policy in part": (
        "ALTER POLICY streams_expired_read ON minutebook.streams USING (sealed AND tenant = 'acme')",
        "hides",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_b12_a_purge_that_cannot_work_never_says_that_there_was_nothing(
    log: Any, on_database: Callable[..., Done], what: str
) -> None:
    statement, words = BROKEN[what]
    with log.connect("postgres") as superuser:
        superuser.execute(statement)
        before = contents(superuser)
        for dry in ((), ("--dry-run",)):
            done = on_database("retention", *dry)
            assert done.code == 1, done
            assert words in done.said
        assert contents(superuser) == before


def test_b12_a_stream_that_cannot_go_is_named_and_the_others_go(log: Any, on_database: Callable[..., Done]) -> None:
    stuck = name_of("beta", "old", 1)
    with log.connect("postgres") as superuser:
        superuser.execute(
            "CREATE FUNCTION public.stuck() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN IF OLD.name = '{stuck}' THEN RAISE EXCEPTION 'stuck'; END IF; RETURN OLD; END $$"
        )
        superuser.execute(
            "CREATE TRIGGER a_stuck BEFORE DELETE ON minutebook.streams FOR EACH ROW EXECUTE FUNCTION public.stuck()"
        )
    done = on_database("retention", "--json")
    assert done.code == 1
    assert (done.json["ok"], done.json["remainingStreams"], done.json["failures"]) == (False, 1, [f"{stuck}: stuck"])
    assert [each["streams"] for each in done.json["tenants"]] == [4, 3, 4]
    said = on_database("retention")
    assert (said.code, f"{stuck}: stuck" in said.said) == (1, True)
    assert said.out.strip() == "1 expired streams and 0 expired keys remain"


def test_a_held_room_stays_and_is_no_remainder(log: Any, on_database: Callable[..., Done]) -> None:
    with log.connect("postgres") as superuser:
        superuser.execute("UPDATE minutebook.streams SET held = true WHERE name = %s", (name_of("core", "old", 0),))
    done = on_database("retention", "--json")
    assert (done.code, done.json["remainingStreams"]) == (0, 0), done
    assert [each["streams"] for each in done.json["tenants"]] == [4, 4, 3]


def test_idempotency_keys_older_than_30_days_are_forgotten(log: Any, on_database: Callable[..., Done]) -> None:
    with log.connect("postgres") as superuser:
        fresh = [name_of("acme", "fresh", n) for n in range(3)]
        superuser.execute(
            "UPDATE minutebook.idempotency SET created_at = created_at - interval '31 days' WHERE key = ANY (%s)",
            (fresh,),
        )
        done = on_database("retention", "--json")
        assert done.code == 0
        assert [each["keys"] for each in done.json["tenants"]] == [3, 0, 0]
        assert one(superuser, "SELECT count(*) FROM minutebook.idempotency") == len(TENANTS) * STREAMS - 3


def test_spent_proofs_and_idle_sessions_older_than_30_days_are_forgotten(
    log: Any, on_database: Callable[..., Done]
) -> None:
    with log.connect("postgres") as superuser:
        for days in (29, 31):
            at = (f"m{days}", f"{days} days")
            superuser.execute(
                "INSERT INTO minutebook.inbound_signatures (tenant, channel, signature, seen_at)"
                " VALUES ('acme', 'tg', %s, now() - %s::interval)",
                at,
            )
            superuser.execute(
                "INSERT INTO minutebook.channel_sessions (tenant, scope, handle, used_at)"
                " VALUES ('acme', %s, 'h', now() - %s::interval)",
                at,
            )
    assert on_database("retention", "--dry-run", "--json").json["tenants"][0]["keys"] == 2
    done = on_database("retention", "--json")
    assert (done.code, done.json["remainingKeys"]) == (0, 0), done
    with log.connect("postgres") as superuser:
        assert one(superuser, "SELECT string_agg(signature, '') FROM minutebook.inbound_signatures") == "m29"
        assert one(superuser, "SELECT string_agg(scope, '') FROM minutebook.channel_sessions") == "m29"
    with log.connect("retention") as retention, pytest.raises(psycopg.errors.InsufficientPrivilege):
        retention.execute("DELETE FROM minutebook.channel_sessions")


def test_spent_proofs_go_when_the_settings_say_and_never_within_a_week(log: Any, tmp_path: Any) -> None:
    with log.connect("postgres") as superuser:
        for days in (6, 8, 11):
            superuser.execute(
                "INSERT INTO minutebook.inbound_signatures (tenant, channel, signature, seen_at)"
                " VALUES ('acme', 'tg', %s, now() - %s::interval)",
                (f"m{days}", f"{days} days"),
            )
    done = verb("retention", env={**at(log, tmp_path), "MINUTEBOOK_DELIVERY_INBOUND_TTL": "10d"})
    assert done.code == 0, done
    with log.connect("postgres") as superuser:
        kept = "SELECT string_agg(signature, ' ' ORDER BY signature) FROM minutebook.inbound_signatures"
        assert one(superuser, kept) == "m6 m8"
    with log.connect("retention") as retention:
        with pytest.raises(psycopg.errors.InsufficientPrivilege), retention.transaction():
            retention.execute("DELETE FROM minutebook.inbound_signatures s WHERE s.signature = 'm6'")
        assert retention.execute("DELETE FROM minutebook.inbound_signatures s WHERE s.signature = 'm8'").rowcount == 1


def test_another_role_is_refused(log: Any, tmp_path: Any) -> None:
    for role in ("app", "postgres"):
        env = at(log, tmp_path) | {"MINUTEBOOK_DATABASE_RETENTION_URL": log.url(role)}
        done = verb("retention", env=env)
        assert (done.code, "The database role" in done.said) == (3, True), done
