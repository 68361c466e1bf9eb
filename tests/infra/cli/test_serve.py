"""What `serve` refuses before it serves, with the reason and the exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql


def serve(data_dir: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A start that must fail."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")} | variables
    command = [sys.executable, "-m", "minutebook.infra.cli.main", "serve", "--port", "0", "--data-dir", str(data_dir)]
    return subprocess.run([*command, *arguments], env=env, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        ("ALTER ROLE {} SUPERUSER", "is a superuser"),
        ("ALTER ROLE {} BYPASSRLS", "has BYPASSRLS"),
        ("GRANT minutebook_owner TO {}", "owns the log or is a member of its owner"),
        ("REVOKE minutebook_app FROM {}", "is not a member of minutebook_app"),
    ],
)
def test_b10_it_does_not_start_as_a_role_that_passes_the_guards_by(
    database: Any, tmp_path: Path, make: str, reason: str
) -> None:
    name = sql.Identifier("minutebook_of_" + database.name)
    with database.connect("postgres") as superuser:
        superuser.execute(sql.SQL("CREATE ROLE {} LOGIN IN ROLE minutebook_app").format(name))
        superuser.execute(sql.SQL(make).format(name))
        try:
            url = database.url("app").replace("minutebook_app", "minutebook_of_" + database.name)
            done = serve(tmp_path, MINUTEBOOK_DATABASE_URL=url)
        finally:
            superuser.execute(sql.SQL("DROP OWNED BY {}").format(name))
            superuser.execute(sql.SQL("DROP ROLE {}").format(name))
    assert (done.returncode, done.stdout) == (3, "")
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_it_says_what_is_wrong_with_its_settings(tmp_path: Path) -> None:
    (tmp_path / "minutebook.toml").write_text("[server]\nallowedHost = []\n")
    done = serve(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "server.allowedHost" in done.stderr


def test_it_does_not_fall_back_where_a_database_is_required(tmp_path: Path) -> None:
    done = serve(tmp_path, "--require-database-url")
    assert done.returncode == 2
    assert "database.url" in done.stderr
    assert not (tmp_path / "postgres").exists()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = serve(tmp_path, "--port", str(port))
    assert done.returncode == 3
    assert f"server.port: cannot listen on 127.0.0.1:{port}" in done.stderr
