"""Trying to rewrite the log as the role that serves it, to show that the database refuses."""

from __future__ import annotations

from typing import LiteralString

import msgspec
import psycopg

from .pool import CONNECT_TIMEOUT_S

STATEMENTS: tuple[LiteralString, ...] = (
    "UPDATE minutebook.events SET payload = '{}' WHERE seq = 1",
    "DELETE FROM minutebook.events WHERE seq = 1",
    "TRUNCATE minutebook.events",
)


class Trial(msgspec.Struct, frozen=True):
    """A statement and how the database answered. refusal: its words, None where it let the statement pass."""

    statement: str
    refusal: str | None
    sqlstate: str | None


def try_to_rewrite(url: str) -> list[Trial]:
    """Each of STATEMENTS in a transaction of its own, which is rolled back should the database let it pass."""
    with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S) as connection:
        return [_try(connection, statement) for statement in STATEMENTS]


def _try(connection: psycopg.Connection[tuple[object, ...]], statement: LiteralString) -> Trial:
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(statement)
    except psycopg.OperationalError:
        raise
    except psycopg.Error as error:
        return Trial(statement, error.diag.message_primary, error.sqlstate)
    return Trial(statement, None, None)
