"""Numbered, checksummed migrations and re-applied functions, under one advisory lock."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import LiteralString, cast

import msgspec
import psycopg
from psycopg.rows import tuple_row

from .. import sql

LOCK_KEY = 7_215_001
"""Advisory lock that serializes every `minutebook migrate` of a database."""

LOCK_TIMEOUT_MS = 60_000
"""Longest wait for another migrate, in milliseconds."""


class MigrationError(Exception):
    """The database cannot be brought to this version; the message says why and what to do."""


class SqlFile(msgspec.Struct, frozen=True):
    """One SQL file of the product: `name` is `migrations/0001_roles.sql` or `functions/20_append_v1.sql`."""

    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def sql_files() -> list[SqlFile]:
    """Every migration, then every function, in the order in which they are applied."""
    root = resources.files(sql)
    found: list[SqlFile] = []
    for folder in ("migrations", "functions"):
        entries = sorted(root.joinpath(folder).iterdir(), key=lambda entry: entry.name)
        found += [
            SqlFile(f"{folder}/{entry.name}", entry.read_text("utf-8"))
            for entry in entries
            if entry.name.endswith(".sql")
        ]
    return found


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
        if not name.startswith("migrations/"):
            continue
        if name not in by_name:
            raise MigrationError(
                f"The database was migrated by a newer version ({name} is unknown here); upgrade minutebook."
            )
        if by_name[name].checksum != checksum:
            raise MigrationError(
                f"{name} was edited after it was applied; restore the file and put the change in a new migration."
            )
    return [file for file in files if have.get(file.name) != file.checksum]


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
            if file.name.startswith("functions/"):
                connection.execute("SET LOCAL ROLE minutebook_owner")
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
