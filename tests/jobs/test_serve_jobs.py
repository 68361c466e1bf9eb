"""`serve` has a process for jobs: in the group of one server, or alone on a machine of its own."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from append_helpers import append, creation, event, events, expire, item, one
from job_steps import jobs_alone
from live_server import LiveServer, until

SWEPT = "SELECT count(*) FROM minutebook_jobs.sweeps w WHERE w.name = 'retention'"
WORKERS = "SELECT count(*) FROM minutebook_jobs.procrastinate_workers"


def test_alone_it_purges_what_expired_and_ends_in_time(database: Any, tmp_path: Path) -> None:
    with database.connect("app") as app:
        append(app, creation(*events(3)))
        append(app, item(3, event(), seal=True))
    with database.connect("postgres") as superuser:
        expire(superuser)
        superuser.execute(
            "INSERT INTO minutebook.token_use VALUES ('acme', 'human:ada', '', 'echo', current_date - 9, 5, 0)"
        )
        process = jobs_alone(tmp_path, database.url("app"), "--role", "jobs")
        try:
            until(lambda: one(superuser, SWEPT) == 1, 30, "the first retention")
            assert one(superuser, "SELECT count(*) FROM minutebook.streams") == 0
            until(lambda: one(superuser, "SELECT count(*) FROM minutebook.token_use") == 0, 30, "days long past")
            assert one(superuser, WORKERS) == 1
        finally:
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            said, complained = process.communicate(timeout=20)
        assert (process.returncode, said) == (0, ""), complained
        assert time.monotonic() - began < 9
        assert one(superuser, WORKERS) == 0
    assert '"events": 4' in complained
    assert "Traceback" not in complained


def test_b12_a_purge_that_cannot_work_is_none_that_was_done(database: Any, tmp_path: Path) -> None:
    with database.connect("app") as app:
        append(app, creation(*events(3)))
        append(app, item(3, event(), seal=True))
    with database.connect("postgres") as superuser:
        expire(superuser)
        superuser.execute("REVOKE DELETE ON minutebook.events FROM minutebook_retention")
        process = jobs_alone(tmp_path, database.url("app"), "--role", "jobs")
        assert process.stderr is not None
        try:
            lines = iter(process.stderr.readline, "")
            failed = next(line for line in lines if '"sweep failed"' in line)
            assert one(superuser, SWEPT) == 0, "it comes again at the next tick"
            assert one(superuser, "SELECT count(*) FROM minutebook.streams") == 1
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
    assert '"sweep": "retention"' in failed
    assert '"error": "RetentionBroken"' in failed


def test_it_does_not_start_as_a_role_that_passes_the_guards_by(database: Any, tmp_path: Path) -> None:
    process = jobs_alone(tmp_path, database.url("postgres"), "--role", "jobs")
    said, complained = process.communicate(timeout=30)
    assert (process.returncode, said) == (3, "")
    assert "is a superuser" in complained


def test_a_role_that_is_none_is_refused(tmp_path: Path) -> None:
    process = jobs_alone(tmp_path, "postgresql://nowhere/x", "--role", "job")
    _, complained = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "--role must be all, http, projector or jobs." in complained


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with LiveServer(tmp_path / "data") as found:
        yield found


def test_one_server_has_it_and_starts_it_again_when_it_dies(server: LiveServer) -> None:
    def worker() -> psutil.Process | None:
        for each in psutil.Process(server.process.pid).children():
            with contextlib.suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
                if "jobs" in each.cmdline():
                    return each
        return None

    with server.sql() as look:
        until(lambda: one(look, SWEPT) == 1 and one(look, WORKERS) == 1, 30, "the first retention")
        first = worker()
        assert first is not None
        first.kill()
        until(lambda: (found := worker()) is not None and found.pid != first.pid, 15, "another worker")
        until(lambda: one(look, WORKERS) == 2, 15, "its registration beside the dead one's")
        assert server.stop() == 0
    assert "Traceback" not in server.logs()
