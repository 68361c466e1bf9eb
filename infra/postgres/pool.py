"""Connections: one pool a role, each connection checked to be nothing more than that role."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Literal, LiteralString, cast, get_args
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool

RoleName = Literal["app", "projector", "retention", "auditor", "eraser", "owner"]

POOL_TIMEOUT_S = 3.0
"""Longest wait for a free connection before the caller gets a 503."""

CONNECT_TIMEOUT_S = 5

_DEAD_PEER = {"tcp_user_timeout": 10_000, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
"""A database that vanishes without a word is found out in about 10 s (libpq; the first in ms, the others in s)."""

_SECRETS = ("password", "sslpassword", "passfile")

_GUARD = """
SELECT r.rolsuper, r.rolbypassrls, r.rolcreaterole,
    pg_has_role(r.oid, 'minutebook_owner', 'MEMBER'),
    EXISTS (SELECT FROM pg_class c WHERE c.relowner = r.oid AND c.relnamespace = 'minutebook'::regnamespace),
    pg_has_role(r.oid, %(role)s::name, 'MEMBER'), r.rolname,
    ARRAY(SELECT h.rolname::text FROM pg_roles h
          WHERE h.rolname = ANY (%(others)s::name[]) AND pg_has_role(r.oid, h.oid, 'MEMBER') ORDER BY 1)
FROM pg_roles r WHERE r.rolname = session_user
"""


class RoleRefused(Exception):
    """The server must not run as this database role; the message names the reason and what to do."""


Pool = AsyncConnectionPool[psycopg.AsyncConnection[Any]]
"""Connections of one role."""


def url_for(url: str, role: RoleName) -> str:
    """The URL with the user replaced by the house's role, without any password; for clusters that let those roles in
    without one."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{quote('minutebook_' + role)}@{host}"
    return urlunsplit(parts._replace(netloc=netloc, query=_without(parts.query, ("user", *_SECRETS))))


def redacted(url: str) -> str:
    """The URL (or libpq's `key=value` text) without its passwords, for messages."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        try:
            settings = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            return "(not a PostgreSQL URL)"
        return make_conninfo("", **{key: value for key, value in settings.items() if key not in _SECRETS})
    user, _, host = parts.netloc.rpartition("@")
    name = unquote(user.split(":", 1)[0])
    return urlunsplit(
        parts._replace(
            netloc=f"{name}@{host}" if user else host,
            query=_without(parts.query, _SECRETS),
        )
    )


def _without(query: str, names: Collection[str]) -> str:
    """A query without some parameters, the others as they were written: libpq knows no `+` for a space."""
    return "&".join(pair for pair in query.split("&") if unquote(pair.partition("=")[0]) not in names)


async def check_role(connection: psycopg.AsyncConnection[Any], role: RoleName) -> None:
    """Raise RoleRefused where the session is superuser, BYPASSRLS, owner of the log, not of `role`, or of another role
    of the house as well (fault B10; rules.md, law 5)."""
    found = await (
        await connection.execute(
            "SELECT to_regrole(%s) IS NULL, to_regnamespace('minutebook') IS NULL", (f"minutebook_{role}",)
        )
    ).fetchone()
    if found != (False, False):
        raise RoleRefused("This database was not migrated; run `minutebook migrate` first.")
    others = [f"minutebook_{other}" for other in get_args(RoleName) if other not in (role, "owner")]
    row = await (await connection.execute(_GUARD, {"role": f"minutebook_{role}", "others": others})).fetchone()
    assert row is not None  # noqa: S101 - a session always has a role
    is_super, bypasses, creates, owns, has_tables, is_member, name, also = row
    faults = [
        text
        for fault, text in (
            (is_super, "is a superuser"),
            (bypasses, "has BYPASSRLS"),
            (creates, "may create roles"),
            (owns or has_tables, "owns the log or is a member of its owner"),
            (not is_member, f"is not a member of minutebook_{role}"),
            (also and not is_super, f"is a member of {', '.join(also)} as well"),
        )
        if fault
    ]
    if faults:
        raise RoleRefused(
            f"The database role {name} {' and '.join(faults)}, so the guards of the log would not hold."
            f" Connect as minutebook_{role}, or as a login role that was granted it alone."
        )


async def verify_role(url: str, role: RoleName) -> None:
    """check_role on one connection of its own: for the start of a server, since a pool whose connections are refused
    says no more than that it timed out.

    Raises RoleRefused, or psycopg.OperationalError where there is no connection.
    """
    async with await psycopg.AsyncConnection.connect(
        url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
    ) as connection:
        await check_role(connection, role)


async def renew_if_read_only(pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]], error: BaseException) -> None:
    """Give all sessions of a pool up where one of them takes no writes: a default of the database that was read-only
    when a session began stays with it after the database is writable again (fault B81)."""
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        await pool.drain()


def make_pool(
    url: str,
    role: RoleName,
    *,
    max_size: int,
    statement_timeout_ms: int,
    min_size: int = 1,
    checked: bool = True,
    search_path: str = "pg_catalog, pg_temp",
    name: str | None = None,
    waits_for_disk: bool = True,
) -> AsyncConnectionPool[psycopg.AsyncConnection[Any]]:
    """A pool of autocommit connections as `role`, not yet open. `checked` verifies the role of every connection; call
    verify_role before opening it, to hear the reason. waits_for_disk: False for what counts only together with a later
    commit that does wait, since that one lies behind it in the same write-ahead log."""

    async def configure(connection: psycopg.AsyncConnection[Any]) -> None:
        if checked:
            await check_role(connection, role)
        for statement in (
            f"SET ROLE minutebook_{role}",
            f"SET statement_timeout = {statement_timeout_ms}",
            "SET idle_in_transaction_session_timeout = 30000",
            f"SET search_path = {search_path}",
            "SET timezone = 'UTC'",
            "SET datestyle = 'ISO'",  # psycopg reads times in no other
            "SET default_transaction_isolation = 'read committed'",
            *(() if waits_for_disk else ("SET synchronous_commit = off",)),
        ):
            await connection.execute(cast("LiteralString", statement))

    return AsyncConnectionPool(
        url,
        min_size=min_size,
        max_size=max_size,
        timeout=POOL_TIMEOUT_S,
        open=False,
        kwargs={
            "autocommit": True,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": f"minutebook {name or role}",
            **_DEAD_PEER,
        },
        configure=cast("Callable[[psycopg.AsyncConnection[Any]], Awaitable[None]]", configure),
        reconnect_timeout=5,
        name=f"minutebook-{role}",
    )
