"""`minutebook migrate`: once, in order, checked against edits, and by a role that is no superuser."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from append_helpers import append, creation, one, outcomes, refused, run
from minutebook.infra.postgres import migrate as migrate_module
from minutebook.infra.postgres.embedded import EmbeddedPostgres
from minutebook.infra.postgres.migrate import MigrationError, migrate, sql_files
from scratch import SCRATCH

Url = Callable[..., str]

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["18", "15"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedPostgres]:
    """A server on which nothing was ever migrated when the module begins."""
    if request.param == "15" and not (DEBIAN_15 / "postgres").exists():
        pytest.skip("PostgreSQL 15 is not installed: apt-get install postgresql-15")
    folder = Path(tempfile.mkdtemp(prefix="mbm", dir=SCRATCH))
    server = EmbeddedPostgres.open(folder, bin_dir=DEBIAN_15 if request.param == "15" else None, fsync=False)
    try:
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def url(cluster: EmbeddedPostgres) -> Iterator[Url]:
    """An empty database; call it with a role for a URL."""
    with database(cluster) as name:

        def url_as(role: str = "postgres") -> str:
            return cluster.url(role, name)

        yield url_as


@contextlib.contextmanager
def database(cluster: EmbeddedPostgres, options: str = "ENCODING 'UTF8'") -> Generator[str]:
    name = f"m{next(_numbers)}"
    with connect(cluster.url("postgres", "postgres")) as superuser:
        run(superuser, f"CREATE DATABASE {name} TEMPLATE template0 {options}")
    try:
        yield name
    finally:
        with connect(cluster.url("postgres", "postgres")) as superuser:
            run(superuser, f"DROP DATABASE {name} WITH (FORCE)")


def connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True)


def names() -> list[str]:
    return [file.name for file in sql_files()]


def test_a_role_that_may_create_roles_migrates_an_empty_server_without_being_superuser(
    cluster: EmbeddedPostgres, url: Url
) -> None:
    """First in this file, while the server has no roles of the house."""
    with connect(url()) as superuser:
        superuser.execute("CREATE ROLE operator LOGIN CREATEROLE")
        run(superuser, f"GRANT CREATE ON DATABASE {superuser.info.dbname} TO operator")
    assert migrate(url("operator")) == names()
    assert migrate(url("operator")) == []
    with connect(url("operator")) as operator:
        operator.execute("SET ROLE minutebook_owner")
        operator.execute("UPDATE minutebook.migrations SET checksum = '' WHERE name = 'functions/20_append_v1.sql'")
    assert migrate(url("operator")) == ["functions/20_append_v1.sql"]
    with connect(url("minutebook_app")) as app:
        assert outcomes(append(app, creation())) == ["appended"]
        with refused("42501"):
            app.execute("DELETE FROM minutebook.events")
    with connect(url()) as superuser:
        owners = superuser.execute(
            "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'minutebook'::regnamespace"
        )
        assert owners.fetchall() == [("minutebook_owner",)]


def test_migrate_applies_everything_in_order_and_then_nothing(url: Url) -> None:
    assert migrate(url(), dry_run=True) == names()
    with connect(url()) as superuser:
        assert one(superuser, "SELECT to_regnamespace('minutebook') IS NULL")
    assert migrate(url()) == names()
    assert migrate(url()) == []
    assert migrate(url(), dry_run=True) == []
    with connect(url()) as superuser:
        rows = superuser.execute("SELECT name FROM minutebook.migrations ORDER BY applied_at").fetchall()
        assert [name for (name,) in rows] == names()


def test_an_edited_migration_an_unknown_one_and_a_failing_one_stop_with_what_to_do(url: Url) -> None:
    migrate(url())
    with connect(url()) as superuser:
        superuser.execute("UPDATE minutebook.migrations SET checksum = 'other' WHERE name = 'migrations/0002_log.sql'")
        with pytest.raises(MigrationError, match=r"0002_log\.sql was edited after it was applied; restore the file"):
            migrate(url())
        # As if 0002 were new: it fails on what is there, and nothing of it stays.
        superuser.execute("DELETE FROM minutebook.migrations WHERE name = 'migrations/0002_log.sql'")
        with pytest.raises(MigrationError, match=r"migrations/0002_log\.sql failed: .* already exists"):
            migrate(url())
        assert one(superuser, "SELECT count(*) FROM minutebook.migrations") == len(names()) - 1
        superuser.execute("INSERT INTO minutebook.migrations VALUES ('migrations/9999_later.sql', 'x')")
        with pytest.raises(MigrationError, match=r"newer version \(migrations/9999_later\.sql .* upgrade minutebook"):
            migrate(url())


def test_functions_are_applied_again_when_their_text_moved(url: Url) -> None:
    migrate(url())
    with connect(url()) as superuser, connect(url("minutebook_app")) as app:
        append(app, creation())
        superuser.execute(
            "CREATE OR REPLACE FUNCTION minutebook.guard_truncate() RETURNS trigger LANGUAGE plpgsql"
            " AS 'BEGIN RETURN NULL; END'"
        )
        superuser.execute("UPDATE minutebook.migrations SET checksum = 'old' WHERE name LIKE '%/14_guard_truncate.sql'")
        assert migrate(url()) == ["functions/14_guard_truncate.sql"]
        with refused("MB010"):
            superuser.execute("TRUNCATE minutebook.events")
        # All of them, on a log that is in use: data, triggers and their modes stay.
        superuser.execute("UPDATE minutebook.migrations SET checksum = 'old' WHERE name LIKE 'functions/%'")
        assert migrate(url()) == [name for name in names() if name.startswith("functions/")]
        assert migrate(url()) == []
        modes = superuser.execute(
            "SELECT DISTINCT t.tgenabled::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
            " WHERE NOT t.tgisinternal AND c.relnamespace = 'minutebook'::regnamespace"
        ).fetchall()
        assert modes == [("A",)]
        assert outcomes(append(app, creation(stream="room:bbbbbbbb"))) == ["appended"]


def test_two_migrates_at_once_apply_everything_once(url: Url) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(migrate, [url(), url()]))
    assert sorted(both) == [[], names()]


def test_a_migrate_that_waits_too_long_for_another_says_so(url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate_module, "LOCK_TIMEOUT_MS", 100)
    with connect(url()) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (migrate_module.LOCK_KEY,))
        with pytest.raises(MigrationError, match="still running; try again"):
            migrate(url())
    assert migrate(url()) == names()


def test_a_role_without_the_rights_is_told_what_to_do(url: Url) -> None:
    with connect(url()) as superuser:
        superuser.execute("DROP ROLE IF EXISTS nobody_special")
        superuser.execute("CREATE ROLE nobody_special LOGIN")
    with pytest.raises(MigrationError, match=r"refused .* role that may create roles and schemas"):
        migrate(url("nobody_special"))
    migrate(url())
    with pytest.raises(MigrationError, match=r"cannot read what was migrated .* grant minutebook_owner"):
        migrate(url("nobody_special"))
    with connect(url()) as superuser:
        superuser.execute("UPDATE minutebook.migrations SET checksum = 'old' WHERE name LIKE 'functions/%'")
    with pytest.raises(MigrationError, match="refused"):
        migrate(url("minutebook_app"))


def test_a_database_of_another_encoding_is_refused(cluster: EmbeddedPostgres) -> None:
    """Lengths in the hash chain are in UTF-8 bytes."""
    with (
        database(cluster, "ENCODING 'LATIN1' LOCALE 'C'") as narrow,
        pytest.raises(MigrationError, match="encoding UTF8, not LATIN1"),
    ):
        migrate(cluster.url("postgres", narrow))


def test_file_names_are_numbered_without_gaps_or_duplicates() -> None:
    numbers: dict[str, list[int]] = {"migrations": [], "functions": []}
    for name in (each for each in names() if not each.startswith("jobs/")):
        folder, file = name.split("/")
        pattern = r"(\d{4})_[a-z_]+\.sql" if folder == "migrations" else r"(\d{2})_[a-z0-9_]+\.sql"
        found = re.fullmatch(pattern, file)
        assert found, name
        numbers[folder].append(int(found[1]))
    assert numbers["migrations"] == list(range(1, len(numbers["migrations"]) + 1))
    assert len(set(numbers["functions"])) == len(numbers["functions"])


def test_every_log_is_another_one(cluster: EmbeddedPostgres, url: Url) -> None:
    ids: set[Any] = set()
    with database(cluster) as other:
        for database_url in (url(), cluster.url("postgres", other)):
            migrate(database_url)
            with connect(database_url) as superuser:
                ids.add(one(superuser, "SELECT log_id FROM minutebook.log"))
    assert len(ids) == 2
    assert all(re.fullmatch(r"[0-9a-f]{32}", log_id) for log_id in ids)
