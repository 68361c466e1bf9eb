"""What breaks and mends a running server's database: stops, restarts, ended sessions; and its look from the outside."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
from append_helpers import run
from live_server import LiveServer, open_room, until
from minutebook.domain.ids import short_id
from minutebook.infra.postgres.embedded import EmbeddedPostgres
from minutebook.infra.postgres.embedded_cluster import postmaster, stop_postmaster
from minutebook.infra.postgres.migrate import migrate
from verbs import verb
from wire import Wire, wire_to

SHADOWS = "SELECT count(*) FROM pg_class WHERE relname LIKE '%%_shadow' AND relkind = 'r'"
LISTENERS = "application_name = 'minutebook listener'"
ALL_LISTENERS = 3
"""Of the server, its projector and the outbox of its jobs."""


def stop_postgres(data_dir: Path) -> None:
    """A fast shutdown, which rolls open transactions back."""
    running = postmaster(data_dir.resolve() / "postgres")
    assert running is not None
    assert stop_postmaster(running, signal.SIGINT, timeout_s=30)


@contextlib.contextmanager
def postgres_of(data_dir: Path) -> Generator[EmbeddedPostgres]:
    """The embedded server of a data directory: started where it is down, joined where it runs."""
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    server = EmbeddedPostgres.open(data_dir)
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def behind_a_wire(
    data_dir: Path, *, listener_only: bool = False, config: str = ""
) -> Generator[tuple[LiveServer, Wire]]:
    """A server whose way to PostgreSQL (or only its LISTEN session) leads through a wire."""
    with postgres_of(data_dir) as database, wire_to(database) as wire:
        migrate(database.url())
        env = {"MINUTEBOOK_DATABASE_URL": wire.url()}
        if listener_only:
            env = {
                "MINUTEBOOK_DATABASE_URL": database.url("minutebook_app"),
                "MINUTEBOOK_DATABASE_LISTEN_URL": wire.url(),
            }
        with LiveServer(data_dir, env=env, config=config) as server:
            yield server, wire


def end_sessions(connection: psycopg.Connection, condition: str) -> int:
    """pg_terminate_backend for every session of ours that meets it; how many there were."""
    rows = run(
        connection,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        f" WHERE pid <> pg_backend_pid() AND usename LIKE 'minutebook%' AND {condition}",
    ).fetchall()
    return len(rows)


def kill_session(data_dir: Path, name: str) -> bool:
    """SIGKILL to the process of a session with that application name, whereupon PostgreSQL drops all the others and
    recovers as after a crash; False where there is none."""
    with postgres_of(data_dir) as database, psycopg.connect(database.url(), autocommit=True) as connection:
        row = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = %s LIMIT 1", (name,)
        ).fetchone()
    if row is None:
        return False
    os.kill(row[0], signal.SIGKILL)
    return True


def one(connection: psycopg.Connection, statement: str, *parameters: Any) -> Any:
    """The only value of the only row."""
    row = connection.execute(statement, parameters or None).fetchone()  # pyright: ignore[reportArgumentType]
    assert row is not None
    return row[0]


def status(server: LiveServer, path: str) -> int:
    """The status code of a GET without a token."""
    return httpx.get(f"{server.url}{path}", timeout=10).status_code


def folded(client: httpx.Client, room: str, seq: int) -> None:
    """Return once the transcript has the event; a projector that is still starting may take its time."""
    params = {"minSeq": seq, "limit": 1}
    until(lambda: client.get(f"/v1/rooms/{room}/transcript", params=params).status_code == 200, 30, "the view")


def all_up(server: LiveServer) -> None:
    """Return once every process of the group listens; one that is still starting would start the database as well."""
    with server.sql() as look:
        listening = f"SELECT count(*) FROM pg_stat_activity WHERE {LISTENERS}"
        until(lambda: one(look, listening) == ALL_LISTENERS, 30, "the listeners of server, projector and outbox")


def projector_of(server: LiveServer) -> psutil.Process:
    """The child that folds the views."""
    return next(
        child for child in psutil.Process(server.process.pid).children() if "projector" in child.cmdline()
    )  # fmt: skip


def checked(server: LiveServer) -> None:
    """Each view equals a fresh build from the log, for every stream, with the projector at the same position."""

    def is_folded() -> bool:
        reports = verb("rebuild", "--check", "--json", "--data-dir", server.data_dir).json["projections"]
        assert all(not each["differences"] and not each["parked"] for each in reports), reports
        return all(each["compared"] == each["streams"] for each in reports)

    until(is_folded, 20, "views that have folded all")
    with server.sql() as look:
        assert one(look, SHADOWS) == 0
        assert one(look, "SELECT count(*) FROM minutebook_views.checkpoints WHERE projection LIKE '%%_shadow'") == 0


class Run:
    """A run's bridge in a room of its own: pushes numbered items in batches."""

    def __init__(self, server: LiveServer, number: int, room: str | None = None) -> None:
        self.room = room or open_room(server.member("alice"))
        self.client = server.client(f"agent:{short_id(number)}", room=self.room)
        hello = self.client.post("/v1/bridge/hello")
        assert hello.status_code == 200, hello.text
        self.lease: str = hello.json()["lease"]
        self.sent = 0

    def batch(self, count: int, filler: int = 0) -> dict[str, Any]:
        """The next items, each with `filler` bytes beside its number."""
        numbers = range(self.sent + 1, self.sent + count + 1)
        payload = {"kind": "harness_event", "filler": "x" * filler}
        items = [{"stream": "events", "seq": n, "type": "state_changed", "payload": payload} for n in numbers]
        return {"items": items, "lease": self.lease}

    def push(self, count: int, filler: int = 0) -> httpx.Response:
        """Push the next items."""
        answer = self.client.post("/v1/bridge/events", json=self.batch(count, filler))
        if answer.status_code == 200:
            self.sent += count
        return answer


def kill_group(process: psutil.Process) -> None:
    """SIGKILL to a process and all below it, as the machine's end would."""
    for each in (*process.children(recursive=True), process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)
