"""What a database needs once after it was restored from a backup."""

from __future__ import annotations

import msgspec
import psycopg

from .pool import CONNECT_TIMEOUT_S, RoleRefused


class LogName(msgspec.Struct, frozen=True, rename="camel"):
    """Which log the database says it is, and what waits for the audit feed. after: None where nothing was changed."""

    before: str
    after: str | None
    queued: int


def mark_restored(url: str, *, dry_run: bool = False) -> LogName:
    """Give the log a new `log_id`, so that cursors of the log before the restore are told apart. `url` is the owner's.

    Servers read the id when they start: start them after it. Raises RoleRefused where the role may not, or the database
    was not migrated.
    """
    try:
        with psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT_S) as connection:
            connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
            connection.execute("SET LOCAL ROLE minutebook_owner")
            row = connection.execute(
                "SELECT l.log_id, (SELECT count(*) FROM minutebook.feed_queue) FROM minutebook.log l"
            ).fetchone()
            assert row is not None  # noqa: S101 - one row since the first migration
            made = None if dry_run else connection.execute("SELECT minutebook.restored_v1()").fetchone()
            return LogName(row[0], None if made is None else made[0], row[1])
    except psycopg.errors.InsufficientPrivilege as error:
        raise RoleRefused(
            "Only the owner of the log may do this: set database.ownerUrl to the role that migrates."
        ) from error
    except (
        psycopg.errors.UndefinedTable,
        psycopg.errors.UndefinedFunction,
        psycopg.errors.InvalidParameterValue,
    ) as error:
        raise RoleRefused("This database was not migrated to this version; run `minutebook migrate` first.") from error
