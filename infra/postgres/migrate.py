"""Numbered, checksummed migrations, the job engine's own ones, and re-applied functions, under one advisory lock."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources, util
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import LiteralString, cast

import msgspec
import psycopg
from psycopg.rows import tuple_row

from .. import sql

LOCK_KEY = 7_215_001
"""Advisory lock that serializes every `minutebook migrate` of a database."""

LOCK_TIMEOUT_MS = 60_000
"""Longest wait for another migrate, in milliseconds."""

ENGINE = "jobs/"
"""Prefix of the job engine's migrations, which come with its package. They have no schema in them and no checksum that
binds: the engine may better the words of an old one."""

ENGINE_SCHEMA = "minutebook_jobs"


class MigrationError(Exception):
    """The database cannot be brought to this version; the message says why and what to do."""


class SqlFile(msgspec.Struct, frozen=True):
    """One SQL file. `name`: `migrations/0001_roles.sql`, `functions/20_append_v1.sql`, or ENGINE and a file's name."""

    name: str
    text: str

    @property
    def preamble(self) -> str:
        """Statements that come before the text in its transaction."""
        if self.name.startswith(ENGINE):
            return f"SET LOCAL ROLE minutebook_owner; SET LOCAL search_path = {ENGINE_SCHEMA}, pg_catalog, pg_temp;"
        return "SET LOCAL ROLE minutebook_owner;" if self.name.startswith("functions/") else ""

    def is_missing(self, have: Mapping[str, str]) -> bool:
        """Whether a database with these names and checksums still needs it."""
        if self.name.startswith(ENGINE):
            return self.name not in have
        return have.get(self.name) != self.checksum

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def sql_files() -> list[SqlFile]:
    """Every migration, then the job engine's, then every function, in the order in which they are applied."""
    root = resources.files(sql)
    return [
        *_folder(root / "migrations", "migrations/"),
        *_engine_files(),
        *_folder(root / "functions", "functions/"),
    ]


def _folder(folder: Traversable, prefix: str) -> list[SqlFile]:
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    return [
        SqlFile(f"{prefix}{entry.name}", entry.read_text("utf-8")) for entry in entries if entry.name.endswith(".sql")
    ]


@cache
def _engine_files() -> tuple[SqlFile, ...]:
    """From the installed package, which is not imported for it: that would take long, and serving processes come here.
    An upgrade of the engine within its major version brings its migrations along."""
    found = util.find_spec("procrastinate")
    if found is None or found.origin is None:
        raise MigrationError("procrastinate is not installed; install minutebook with its dependencies.")
    return tuple(_folder(Path(found.origin).parent / "sql" / "migrations", ENGINE))


def applied(connection: psycopg.Connection[tuple[str, str]]) -> dict[str, str]:
    """Name to checksum of what the database holds; empty where it was never migrated."""
    if connection.execute("SELECT to_regclass('minutebook.migrations')::text").fetchone() == (None,):
        return {}
    return dict(connection.execute("SELECT name, checksum FROM minutebook.migrations"))


def pending(connection: psycopg.Connection[tuple[str, str]]) -> list[SqlFile]:
    """What `migrate` would apply. Raises MigrationError where an applied migration was edited or is unknown here."""
    have = applied(connection)
    files = sql_files()
    by_name = {file.name: file for file in files}
    for name, checksum in have.items():
        if name.startswith("functions/"):
            continue
        if name not in by_name:
            raise MigrationError(
                f"The database was migrated by a newer version ({name} is unknown here); upgrade minutebook."
            )
        if name.startswith("migrations/") and by_name[name].checksum != checksum:
            raise MigrationError(
                f"{name} was edited after it was applied; restore the file and put the change in a new migration."
            )
    return [file for file in files if file.is_missing(have)]


def migrate(url: str, *, dry_run: bool = False) -> list[str]:
    """Bring the database at `url` to this version; answers the names of the files applied (or pending, on a dry run).

    The role of `url` must be a superuser, or have CREATEROLE and CREATE on the database. Each migration is one
    transaction; functions are applied again whenever their text moved. Raises MigrationError with what to do, and
    psycopg.OperationalError where there is no connection.
    """
    with psycopg.connect(url, autocommit=True, row_factory=tuple_row) as connection:
        typed = cast("psycopg.Connection[tuple[str, str]]", connection)
        connection.execute("SET search_path = pg_catalog, pg_temp")
        connection.execute("SELECT set_config('lock_timeout', %s, false)", (str(LOCK_TIMEOUT_MS),))
        try:
            connection.execute("SELECT pg_advisory_lock(%s)", (LOCK_KEY,))
            files = pending(typed)
        except psycopg.errors.LockNotAvailable as error:
            raise MigrationError(
                "Another migrate of this database is still running; try again when it is done."
            ) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise MigrationError(
                f"This role cannot read what was migrated ({error.diag.message_primary}); run migrate with the role"
                " that migrated first, or grant minutebook_owner and minutebook_projector to this one."
            ) from error
        if not dry_run:
            for file in files:
                _apply(typed, file)
        return [file.name for file in files]


def _apply(connection: psycopg.Connection[tuple[str, str]], file: SqlFile) -> None:
    try:
        with connection.transaction():
            if file.preamble:
                connection.execute(cast("LiteralString", file.preamble))
            connection.execute(cast("LiteralString", file.text))
            connection.execute("RESET ROLE")
            connection.execute("SET LOCAL ROLE minutebook_owner")
            connection.execute(
                "INSERT INTO minutebook.migrations (name, checksum) VALUES (%s, %s)"
                " ON CONFLICT (name) DO UPDATE SET checksum = EXCLUDED.checksum, applied_at = clock_timestamp()",
                (file.name, file.checksum),
            )
    except psycopg.errors.InsufficientPrivilege as error:
        raise MigrationError(
            f"{file.name} was refused ({error.diag.message_primary}); run migrate with a role that may create roles"
            " and schemas, for example through database.ownerUrl."
        ) from error
    except psycopg.Error as error:
        raise MigrationError(f"{file.name} failed: {error.diag.message_primary or error}") from error
