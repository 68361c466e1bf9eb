"""The only table from what PostgreSQL says to what the product says."""

from __future__ import annotations

import psycopg
from psycopg_pool import PoolTimeout, TooManyRequests

from ...domain.errors import Conflict, Damaged, Invalid, LeaseLost, MinutebookError, Sealed, Unavailable

RETRY_AFTER_MS = 1000
"""How long a client waits before it tries a refused or unanswered command again."""

TRANSIENT = frozenset({"40001", "40P01", "55P03"})
"""Serialization failure, deadlock, lock timeout: the transaction is gone and may simply run again."""

_SEALED, _GAP, _NO_STREAM = "MB002", "MB003", "MB001"


def unavailable(
    detail: str = "The database cannot be reached; try again, with the same idempotency key.",
) -> Unavailable:
    """A 503 with its Retry-After."""
    return Unavailable(detail, retryAfterMs=RETRY_AFTER_MS)


def is_lost_connection(error: BaseException) -> bool:
    """Whether the outcome of what was sent is unknown: the connection went away under it."""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        getattr(error, "sqlstate", None) is None or (error.sqlstate or "").startswith(("08", "57P"))  # pyright: ignore[reportAttributeAccessIssue]
    )


def is_data_error(error: BaseException) -> bool:
    """Whether one value of the batch is to blame, so that the batch is worth repeating in parts."""
    return isinstance(error, psycopg.DataError | psycopg.IntegrityError | psycopg.errors.RaiseException)


def translate(error: BaseException) -> MinutebookError:
    """The refusal that a caller sees. Never quotes a value of the statement."""
    if isinstance(error, MinutebookError):
        return error
    if isinstance(error, PoolTimeout | TooManyRequests):
        return unavailable("The server is busy; try again, with the same idempotency key.")
    state = getattr(error, "sqlstate", None) or ""
    match state:
        case "MB002":
            return Sealed("This stream is closed.")
        case "MB003" | "23505":
            return Conflict("The stream moved meanwhile; try again.")
        case "MB001":
            return LeaseLost("The stream or lease is gone.")
        case _ if state.startswith("22"):
            return Invalid("A value cannot be stored; remove control characters and out-of-range numbers.")
        case _ if state.startswith(("08", "53", "57", "58", "25", "40", "55")) or isinstance(
            error, psycopg.OperationalError | psycopg.InterfaceError | OSError | TimeoutError
        ):
            return unavailable()
        case _:
            return Damaged("The log refused the write; run `minutebook doctor`.")
