"""Fixtures of the whole suite: real PostgreSQL clusters, and a fresh copy of the migrated database for each test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from minutebook.infra.postgres.embedded import EmbeddedPostgres
from minutebook.infra.postgres.migrate import migrate
from scratch import SCRATCH

TEMPLATE = "minutebook_template"
TOGETHER = ("tests/acceptance/",)
"""Folders whose tests share servers that take long to come to their state: one worker runs them all."""

_numbers = itertools.count(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`, a file is run by one worker, in the order in which files are found; a folder of TOGETHER likewise."""
    from xdist.scheduler import LoadScopeScheduling

    class Scopes(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folder = next((each for each in TOGETHER if nodeid.startswith(each)), None)
            return folder or nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return Scopes(config, log)


class Database(msgspec.Struct, frozen=True):
    """A migrated database of its own. Roles: postgres (the superuser), app, projector, retention, eraser, auditor."""

    server: EmbeddedPostgres
    name: str
    version: str

    def url(self, role: str = "app") -> str:
        """A URL for psycopg as that role."""
        return self.server.url("postgres" if role == "postgres" else f"minutebook_{role}", self.name)

    def connect(self, role: str = "app") -> psycopg.Connection:
        """An autocommit connection as that role."""
        return psycopg.connect(self.url(role), autocommit=True)


def debian_bin() -> Path | None:
    """Where Debian keeps PostgreSQL 15, if it is installed."""
    path = Path("/usr/lib/postgresql/15/bin")
    return path if (path / "postgres").exists() else None


def _start(version: str) -> Iterator[EmbeddedPostgres]:
    bin_dir = debian_bin() if version == "15" else None
    if version == "15" and bin_dir is None:
        if os.environ.get("CI"):
            pytest.fail("PostgreSQL 15 is missing: apt-get install postgresql-15")
        pytest.skip("PostgreSQL 15 is not installed: apt-get install postgresql-15")
    folder = Path(tempfile.mkdtemp(prefix="mbt", dir=SCRATCH))
    server = EmbeddedPostgres.open(folder, bin_dir=bin_dir, fsync=False)
    try:
        with psycopg.connect(server.url("postgres", "postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET max_wal_size = '128MB'")  # it lies in memory
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0 ENCODING 'UTF8'")
        migrate(server.url("postgres", TEMPLATE))
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres18() -> Iterator[EmbeddedPostgres]:
    """The embedded PostgreSQL 18, fsync off."""
    yield from _start("18")


@pytest.fixture(scope="session")
def postgres15() -> Iterator[EmbeddedPostgres]:
    """Debian's PostgreSQL 15, fsync off."""
    yield from _start("15")


def _fresh(server: EmbeddedPostgres, version: str) -> Iterator[Database]:
    name = f"t{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server.url("postgres", "postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
    try:
        yield Database(server, name, version)
    finally:
        with psycopg.connect(server.url("postgres", "postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(params=["18", "15"])
def any_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A fresh database, once on PostgreSQL 18 and once on 15: for guarantees that the database holds."""
    yield from _fresh(request.getfixturevalue(f"postgres{request.param}"), request.param)


@pytest.fixture
def database(postgres18: EmbeddedPostgres) -> Iterator[Database]:
    """A fresh database on the embedded PostgreSQL 18."""
    yield from _fresh(postgres18, "18")
