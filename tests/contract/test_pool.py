"""B10: the server does not run as a role for which the guards of the log would not hold, and says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, LiteralString, cast

import psycopg
import pytest
from append_helpers import LOGIN_ROLES, run
from minutebook.infra.postgres.pool import RoleName, RoleRefused, check_role, make_pool, redacted, url_for, verify_role
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import PoolTimeout


def check(url: str, role: RoleName, *, session_role: str | None = None) -> None:
    """check_role on a session of its own; `session_role` for roles that cannot log in."""

    async def go() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            if session_role is not None:
                statement = f"SET SESSION AUTHORIZATION {session_role}"
                await connection.execute(cast("LiteralString", statement))
            await check_role(connection, role)

    asyncio.run(go())


@pytest.fixture
def make_role(any_database: Any) -> Iterator[Callable[[str], str]]:
    """Make a role of some attributes, with grants behind a `;`; gone after the test, since roles are the server's."""
    made: list[str] = []
    with any_database.connect("postgres") as superuser:

        def make(definition: str) -> str:
            attributes, *grants = definition.split(";")
            name = f"tested_{len(made)}"
            run(superuser, f"CREATE ROLE {name} {attributes}")
            made.append(name)
            for role in grants:
                run(superuser, f"GRANT {role} TO {name}")
            return name

        try:
            yield make
        finally:
            for name in made:
                run(superuser, f"DROP ROLE {name}")


def test_every_role_of_the_house_is_itself_and_no_other(any_database: Any) -> None:
    roles: tuple[RoleName, ...] = ("app", "projector", "retention", "eraser", "auditor")
    for role in roles:
        check(any_database.url(role), role)
        for other in roles:
            if other != role:
                with pytest.raises(RoleRefused, match=f"is not a member of minutebook_{other}"):
                    check(any_database.url(role), other)


REFUSED = {
    "SUPERUSER LOGIN": "is a superuser",
    "BYPASSRLS LOGIN;minutebook_app": "has BYPASSRLS",
    "CREATEROLE LOGIN;minutebook_app": "may create roles",
    "LOGIN;minutebook_app;minutebook_owner": "owns the log or is a member of its owner",
    "LOGIN;minutebook_app;minutebook_retention": "is a member of minutebook_retention as well",
    "LOGIN;minutebook_app;minutebook_eraser;minutebook_projector": "of minutebook_eraser, minutebook_projector as well",
    "LOGIN": "is not a member of minutebook_app",
}


def test_b10_a_role_with_more_rights_is_refused_with_its_reason(any_database: Any, make_role: Any) -> None:
    for definition, reason in REFUSED.items():
        name = make_role(definition)
        with pytest.raises(RoleRefused) as caught:
            check(any_database.url("postgres"), "app", session_role=name)
        message = str(caught.value)
        assert reason in message, definition
        assert name in message
        assert "Connect as minutebook_app" in message


def test_b10_the_owner_is_refused_directly_and_through_another_role(any_database: Any, make_role: Any) -> None:
    with pytest.raises(RoleRefused, match="owns the log"):
        check(any_database.url("postgres"), "app", session_role="minutebook_owner")
    between = make_role("NOLOGIN;minutebook_owner")
    indirect = make_role(f"LOGIN;minutebook_app;{between}")
    with pytest.raises(RoleRefused, match="owns the log"):
        check(any_database.url("postgres"), "app", session_role=indirect)


def test_a_login_role_that_was_granted_the_one_role_is_taken(any_database: Any, make_role: Any) -> None:
    check(any_database.url("postgres"), "app", session_role=make_role("LOGIN;minutebook_app"))


def test_b10_a_database_that_was_not_migrated_is_named_as_such(any_database: Any) -> None:
    """Its server has the roles, which another database brought."""
    for role in ("postgres", *(f"minutebook_{name}" for name in LOGIN_ROLES)):
        with pytest.raises(RoleRefused, match="not migrated; run `minutebook migrate` first"):
            check(any_database.server.url(role, "postgres"), "app")


def with_pool(work: Callable[[Any], Coroutine[Any, Any, None]], url: str, role: RoleName, **options: Any) -> None:
    async def go() -> None:
        pool = make_pool(url, role, max_size=2, statement_timeout_ms=1234, **options)
        await pool.open()
        try:
            await work(pool)
        finally:
            await pool.close()

    asyncio.run(go())


def test_a_connection_of_the_pool_is_set_up_for_its_role(any_database: Any, make_role: Any) -> None:
    login = make_role("LOGIN NOINHERIT;minutebook_app")
    settings = {
        "role": "minutebook_app",
        "statement_timeout": "1234ms",
        "idle_in_transaction_session_timeout": "30s",
        "search_path": "pg_catalog, pg_temp",
        "TimeZone": "UTC",
        "default_transaction_isolation": "read committed",
        "application_name": "minutebook app",
    }

    async def look(pool: Any) -> None:
        async with pool.connection() as connection:
            for name, expected in settings.items():
                row = await (await connection.execute("SELECT current_setting(%s)", (name,))).fetchone()
                assert row == (expected,), name
            assert connection.autocommit
            assert await (await connection.execute("SELECT current_user::text, session_user::text")).fetchone() == (
                "minutebook_app",
                login,
            )

    with any_database.connect("postgres") as superuser:
        run(superuser, f"ALTER DATABASE {superuser.info.dbname} SET default_transaction_isolation = 'serializable'")
    with_pool(look, any_database.server.url(login, any_database.name), "app")


def test_only_a_pool_that_says_so_does_not_wait_for_the_disk(any_database: Any) -> None:
    async def look(pool: Any, expected: str) -> None:
        async with pool.connection() as connection:
            assert await (await connection.execute("SHOW synchronous_commit")).fetchone() == (expected,)

    with any_database.connect("postgres") as superuser:
        run(superuser, f"ALTER DATABASE {superuser.info.dbname} SET synchronous_commit = 'remote_apply'")
    url = any_database.url("app")
    with_pool(partial(look, expected="remote_apply"), url, "app")
    with_pool(partial(look, expected="off"), url, "app", waits_for_disk=False)


def test_b10_a_pool_hands_out_no_connection_of_a_refused_role(any_database: Any) -> None:
    async def look(pool: Any) -> None:
        with pytest.raises(PoolTimeout):
            async with pool.connection(timeout=0.3):
                pass

    with_pool(look, any_database.url("postgres"), "app")
    with_pool(look, any_database.url("retention"), "app")


def test_b10_a_server_hears_the_reason_at_once(any_database: Any) -> None:
    asyncio.run(verify_role(any_database.url("app"), "app"))
    with pytest.raises(RoleRefused, match="postgres is a superuser"):
        asyncio.run(verify_role(any_database.url("postgres"), "app"))
    with pytest.raises(psycopg.OperationalError):
        asyncio.run(verify_role("postgresql://minutebook_app@127.0.0.1:1/x", "app"))


URLS = {
    "postgresql://db.example:5432/rooms": "postgresql://minutebook_app@db.example:5432/rooms",
    "postgresql://root:secret@db.example/rooms?sslmode=require": "postgresql://minutebook_app@db.example/rooms?sslmode=require",
    "postgresql://postgres@/rooms?host=%2Frun%2Fa+b&port=5": "postgresql://minutebook_app@/rooms?host=%2Frun%2Fa+b&port=5",
    "postgresql:///rooms?user=root&password=secret&host=h": "postgresql://minutebook_app@/rooms?host=h",
    "postgresql://a:s%40cret@h1:1,h2:2/rooms": "postgresql://minutebook_app@h1:1,h2:2/rooms",
}


@pytest.mark.parametrize(("url", "expected"), URLS.items())
def test_url_for_replaces_the_user_and_keeps_no_password(url: str, expected: str) -> None:
    assert url_for(url, "app") == expected
    assert conninfo_to_dict(expected)["user"] == "minutebook_app"


REDACTED = {
    "postgresql://root:hunter2@db.example:5432/rooms": "postgresql://root@db.example:5432/rooms",
    "postgresql://root@db.example/rooms?sslmode=require&password=hunter2": "postgresql://root@db.example/rooms?sslmode=require",
    "postgres://root:hunter2%40@h/rooms?sslpassword=hunter2&host=%2Frun%2Fx": "postgres://root@h/rooms?host=%2Frun%2Fx",
    "postgresql://h/rooms": "postgresql://h/rooms",
    "host=h user=root password=hunter2 dbname=rooms": "host=h user=root dbname=rooms",
    "host=h password='hunter2 x": "(not a PostgreSQL URL)",
    "http://root:hunter2@h/": "(not a PostgreSQL URL)",
}


@pytest.mark.parametrize(("url", "expected"), REDACTED.items())
def test_redacted_shows_no_password(url: str, expected: str) -> None:
    shown = redacted(url)
    assert "hunter2" not in shown
    assert sorted(shown.split()) == sorted(expected.split())
