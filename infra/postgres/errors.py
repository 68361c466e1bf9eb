"""The only table from what PostgreSQL says to what the product says."""

from __future__ import annotations

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from ...domain.errors import Conflict, Damaged, Invalid, LeaseLost, MinutebookError, Sealed, Unavailable

UnreachableError = psycopg.OperationalError
"""What is raised where there is no connection, for callers that may not import psycopg."""

RETRY_AFTER_MS = 1000
"""How long a client waits before it tries a refused or unanswered command again."""

TRANSIENT = frozenset({"40001", "40P01", "55P03"})
"""Serialization failure, deadlock, lock timeout: the transaction is gone and may simply run again."""

DATA_CLASSES = ("22", "23", "54", "MB")
"""SQLSTATE classes that one value of a batch can cause: data, constraint, a limit (an index row's size), guard."""

CIRCUMSTANCE_CLASSES = ("08", "53", "57", "58", "25", "40", "55")
"""SQLSTATE classes of what has nothing to do with the values: connection, resources, operator, system, state."""

NO_CONNECTION = (PoolTimeout, PoolClosed, TooManyRequests)
"""The pool had no connection to give: nothing was sent, and waiting longer is the caller's decision."""


def unavailable(
    detail: str = "The database cannot be reached; try again, with the same idempotency key.",
) -> Unavailable:
    """A 503 with its Retry-After."""
    return Unavailable(detail, retryAfterMs=RETRY_AFTER_MS)


def is_lost_connection(error: BaseException) -> bool:
    """Whether the outcome of what was sent is unknown: the connection went away under it."""
    if isinstance(error, NO_CONNECTION) or not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def is_data_error(error: BaseException) -> bool:
    """Whether one value of the batch is to blame, so that the batch is worth repeating in parts."""
    if isinstance(error, psycopg.Error):
        return isinstance(error, psycopg.DataError) or (error.sqlstate or "").startswith(DATA_CLASSES)
    # What cannot even be encoded: a lone surrogate, a number beyond 64 bits, an object that is no JSON.
    return isinstance(error, ValueError | TypeError | OverflowError)


def is_circumstance(error: BaseException) -> bool:
    """Whether the database as it is now is to blame (gone, full, read-only, busy, stopping), so that the same statement
    may well pass later."""
    state = getattr(error, "sqlstate", None) or ""
    return isinstance(
        error, (*NO_CONNECTION, psycopg.OperationalError, psycopg.InterfaceError, OSError, TimeoutError)
    ) or state.startswith(CIRCUMSTANCE_CLASSES)


def translate(error: BaseException) -> MinutebookError:
    """The refusal that a caller sees. Never quotes a value of the statement."""
    state = getattr(error, "sqlstate", None) or ""
    if isinstance(error, MinutebookError):
        refusal: MinutebookError = error
    elif isinstance(error, NO_CONNECTION):
        refusal = unavailable("The server is busy; try again, with the same idempotency key.")
    elif state == "MB002":
        refusal = Sealed("This stream is closed.")
    elif state in ("MB003", "23505"):
        refusal = Conflict("The stream moved meanwhile; try again.")
    elif state == "MB001":
        refusal = LeaseLost("The stream or lease is gone.")
    elif state == "MB004":
        refusal = Invalid("An event needs a payload, and lists without nulls or lists in them.")
    elif state.startswith(("22", "54")) or isinstance(error, psycopg.DataError | UnicodeError | OverflowError):
        refusal = Invalid("A value cannot be stored; remove control characters and out-of-range numbers.")
    elif is_circumstance(error):
        refusal = unavailable()
    else:
        refusal = Damaged("The log refused the write; run `minutebook doctor`.")
    return refusal
