"""A real `minutebook serve` on a data directory, for the benches that go over HTTP."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import msgspec
import psutil
import psycopg
from load import request
from minutebook.domain.principals import Principal, PrincipalKind
from minutebook.infra.dev_issuer import DevelopmentIssuer
from minutebook.infra.postgres.embedded import EmbeddedPostgres

PATIENT = {
    "MINUTEBOOK_LIMITS_ACTIONS_PER_SECOND": "1000000",
    "MINUTEBOOK_LIMITS_ACTION_BURST": "1000000",
    "MINUTEBOOK_LIMITS_STREAMS_PER_PRINCIPAL": "100000",
    "MINUTEBOOK_LIMITS_PEOPLE_PER_ROOM": "100000",
}
"""The load comes from one principal."""

UP_S = 30.0
LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'minutebook listener'"


class Server(msgspec.Struct, frozen=True):
    """Where it listens, its process, its issuer, and a token of a person who may do everything needed."""

    port: int
    pid: int
    issuer: DevelopmentIssuer
    token: str

    def token_of(self, kind: PrincipalKind, name: str, room: str | None = None) -> str:
        """A token of somebody else; `room` is that of a run."""
        return self.issuer.issue(Principal(kind, name), now=time.time(), room=room)

    def post(self, path: str, body: bytes) -> bytes:
        """The bytes of a POST."""
        return request("POST", path, self.token, body)

    def get(self, path: str) -> bytes:
        """The bytes of a GET."""
        return request("GET", path, self.token, b"")


def _await_group(data_dir: Path, pid: int) -> None:
    """Return once every process of the group listens: one that still starts takes a processor from what is measured."""
    wanted = 1 + sum("serve" in each.cmdline() for each in psutil.Process(pid).children())
    deadline = time.monotonic() + UP_S
    database = EmbeddedPostgres.open(data_dir)
    try:
        with psycopg.connect(database.url(), autocommit=True) as look:
            while look.execute(LISTENERS).fetchone() != (wanted,):
                assert time.monotonic() < deadline, f"{wanted} processes did not listen within {UP_S} s"
                time.sleep(0.05)
    finally:
        database.close()


@contextlib.contextmanager
def serving(data_dir: Path, settings: str = "") -> Generator[Server]:
    """One worker; `settings` is TOML for minutebook.toml."""
    data_dir.mkdir(parents=True, exist_ok=True)
    (data_dir / "minutebook.toml").write_text(settings)
    child = subprocess.Popen(
        [sys.executable, "-m", "minutebook.infra.cli.main", "serve", "--port", "0", "--data-dir", str(data_dir)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **PATIENT},
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line.startswith("listening on "), line
        issuer = DevelopmentIssuer.open(data_dir)
        _await_group(data_dir, child.pid)
        token = issuer.issue(Principal("human", "bench"), groups=["agents-member"], now=time.time())
        yield Server(int(line.rsplit(":", 1)[1]), child.pid, issuer, token)
    finally:
        child.terminate()
        child.wait(20)


def resident_kib(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0
