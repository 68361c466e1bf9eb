"""An upgrade of a database where runs were before the server kept a table of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from append_helpers import append, event, item
from minutebook.commands.processes.run_sweep import RunSweep
from minutebook.domain.rooms.context import Timeouts
from minutebook.domain.rooms.events import RunEnded, RunRequested
from minutebook.infra.postgres import migrate as migrate_module
from minutebook.infra.postgres.migrate import migrate, sql_files
from swept import begin, hands_of, log, opened, run_of, started

FIRST_WITH_RUNS = "migrations/0006"
FIRST_FUNCTION_WITH_RUNS = "functions/27"

_numbers = itertools.count(1)


def of_before(name: str) -> bool:
    """Whether a file was there before the table of runs."""
    first = FIRST_FUNCTION_WITH_RUNS if name.startswith("functions/") else FIRST_WITH_RUNS
    return name.startswith("jobs/") or name < first


@pytest.fixture
def old(database: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A database as a server of that time left it."""
    name = f"{database.name}_old{next(_numbers)}"
    with psycopg.connect(database.server.url("postgres", "postgres"), autocommit=True) as superuser:
        superuser.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")  # pyright: ignore[reportArgumentType]
        found = msgspec.structs.replace(database, name=name)
        with monkeypatch.context() as then:
            then.setattr(migrate_module, "sql_files", lambda: [file for file in sql_files() if of_before(file.name)])
            migrate(found.url("postgres"))
        yield found
        superuser.execute(f"DROP DATABASE {name} WITH (FORCE)")  # pyright: ignore[reportArgumentType]


def test_runs_of_before_are_known_swept_and_not_doubled_by_a_copy(old: Any) -> None:
    waiting = begin(old, opened(), RunRequested(run_of(1), "tester", (), 1, "human:olga"), number=1)
    running = begin(old, *started(2), number=2)
    begin(old, *started(3), RunEnded(run_of(3), "finished"), number=3)
    begin(old, *started(2), number=4)  # as a fork copies them
    claim = {"kind": "run_phase", "runId": "claimedx", "role": "tester", "phase": "running"}
    claimed, pushed = begin(old, opened(), number=5), event(claim, t="state_changed", o="harness")
    with old.connect("app") as app:
        assert append(app, item(1, pushed, stream=f"room:{claimed}"))[0].outcome == "appended"
    with old.connect("auditor") as look:
        assert look.execute("SELECT to_regclass('minutebook.runs')").fetchone() == (None,)

    applied = migrate(old.url("postgres"))
    assert applied == [file.name for file in sql_files() if not of_before(file.name)]
    with old.connect("auditor") as look:
        rows = look.execute(
            "SELECT r.run_id, s.name, r.state FROM minutebook.runs r JOIN minutebook.streams s ON s.id = r.stream_id"
            " ORDER BY r.run_id"
        ).fetchall()
    known = {run_of(1): (waiting, "requested"), run_of(2): (running, "running"), run_of(3): (None, "ended")}
    assert {run: state for run, _, state in rows} == {run: state for run, (_, state) in known.items()}
    assert {run: name for run, name, _ in rows if known[run][0]} == {
        run_of(1): f"room:{waiting}",
        run_of(2): f"room:{running}",
    }
    asyncio.run(sweep_after(old))
    assert (log(old, waiting)[-1]["reason"], log(old, running)[-2]["reason"]) == ("never_joined", "lost")


async def sweep_after(old: Any) -> None:
    """Nothing yet, since a run of before is as old as the upgrade; and then all of them."""
    for wait_s in (0.0, Timeouts().never_joined_s + 1):
        async with hands_of(old, datetime.now(UTC) + timedelta(seconds=wait_s)) as hands:
            before = await hands.due.runs(hands.now(), Timeouts(), 0)
            assert len(before) == (2 if wait_s else 0)
            await RunSweep(hands.due, hands.acts, hands.now).run()
