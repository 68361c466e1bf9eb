"""Sweeps by the clock: on the list of every server, done by one a tick, due after however long nobody ran."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
import structlog
from job_steps import engine_of, eventually, queue_of, rows, running
from minutebook.commands.jobs import JobRequest, Sweep
from minutebook.infra.jobs.sweeps import TICK_CRON, cron_of


def done(database: Any, name: str = "test") -> list[Any]:
    with database.connect("auditor") as auditor:
        return auditor.execute(
            "SELECT w.every_s, clock_timestamp() - w.done_at < interval '1 minute' FROM minutebook_jobs.sweeps w"
            " WHERE w.name = %s",
            (name,),
        ).fetchall()


@pytest.mark.parametrize(
    ("every_s", "cron"),
    [
        (1, "* * * * * */1"),
        (30, "* * * * * */30"),
        (60, "* * * * *"),
        (300, "*/5 * * * *"),
        (3600, "0 * * * *"),
        (86_400, TICK_CRON),
    ],
)
def test_a_time_becomes_a_schedule(every_s: int, cron: str) -> None:
    assert cron_of(every_s) == cron


@pytest.mark.parametrize("every_s", [0, -30, 7, 45, 90, 61, 2400])
def test_a_time_that_no_clock_shows_is_refused(every_s: int) -> None:
    with pytest.raises(ValueError, match="must divide a minute or an hour"):
        cron_of(every_s)


def test_two_servers_do_each_tick_once(database: Any) -> None:
    async def body() -> None:
        by: Counter[str] = Counter()

        def sweep(who: str) -> Sweep:
            async def count() -> None:
                by[who] += 1

            return Sweep("test", 1, count)

        async with engine_of(database, sweeps=[sweep("a")]) as a, engine_of(database, sweeps=[sweep("b")]) as b:
            loop = asyncio.get_running_loop()
            began = loop.time()
            async with running(a), running(b):
                await eventually(lambda: by.total() >= 5)
            # One for the tick before the start, and one for each second since.
            assert by.total() <= 2 + loop.time() - began
        assert done(database) == [(1, True)]

    asyncio.run(body())


def test_a_sweep_whose_worker_died_runs_again_and_the_lock_is_free(database: Any) -> None:
    async def body() -> None:
        ran = 0

        async def count() -> None:
            nonlocal ran
            ran += 1

        async with engine_of(database, sweeps=[Sweep("test", 1, count)]) as engine:
            async with running(engine):
                await eventually(lambda: ran > 0)
            with queue_of(database) as app:
                # As a worker leaves it that is killed in the middle, with the next tick waiting behind its lock.
                for status in ("doing", "todo"):
                    app.execute(
                        "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args, status)"
                        " VALUES ('sweep_test', 'sweep_test', 'sweep_test', 'sweep_test', '{\"timestamp\": 1}', %s)",
                        (status,),
                    )
            before = ran
            async with running(engine):
                await eventually(lambda: ran > before + 1, 10)

    asyncio.run(body())


def test_a_sweep_that_fails_or_takes_too_long_is_not_done_and_comes_again(database: Any) -> None:
    async def body() -> list[Any]:
        tried: Counter[str] = Counter()

        async def fail() -> None:
            tried["fail"] += 1
            raise RuntimeError("hunter2")

        async def hang() -> None:
            tried["hang"] += 1
            await asyncio.Event().wait()

        sweeps = [Sweep("fail", 1, fail), Sweep("hang", 1, hang, limit_s=0.1)]
        with structlog.testing.capture_logs() as logged:
            async with engine_of(database, sweeps=sweeps) as engine, running(engine):
                await eventually(lambda: min(tried["fail"], tried["hang"]) >= 2)
        assert done(database, "fail") == done(database, "hang") == []
        return logged

    logged = asyncio.run(body())
    assert {(line["sweep"], line["error"]) for line in logged if line["event"] == "sweep failed"} == {
        ("fail", "RuntimeError"),
        ("hang", "TimeoutError"),
    }
    assert "hunter2" not in str(logged)


def test_a_daily_sweep_runs_at_once_where_it_never_ran_and_then_when_a_day_is_over(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no server ran at the hour: that is what a schedule alone would miss."""
    monkeypatch.setattr("minutebook.infra.jobs.sweeps.TICK_CRON", "* * * * * */1")

    async def body() -> None:
        ran, ticks = 0, 0

        async def count() -> None:
            nonlocal ran
            ran += 1

        async def tick() -> None:
            nonlocal ticks
            ticks += 1

        sweeps = [Sweep("test", 86_400, count), Sweep("tick", 1, tick)]
        async with engine_of(database, sweeps=sweeps) as engine, running(engine):
            await eventually(lambda: ran == 1 and ticks > 3)
            assert ran == 1
            with queue_of(database) as app:
                app.execute(
                    "UPDATE minutebook_jobs.sweeps SET done_at = done_at - interval '86401 s' WHERE name = 'test'"
                )
            await eventually(lambda: ran == 2)
            seen = ticks
            await eventually(lambda: ticks > seen + 2)
            assert ran == 2

    asyncio.run(body())


def test_jobs_that_ended_badly_are_kept_for_an_operator_and_go_in_the_end(database: Any) -> None:
    async def body() -> None:
        async with engine_of(database) as engine, running(engine):
            with queue_of(database) as app:
                for days in (13, 15):
                    app.execute(
                        "WITH job AS (INSERT INTO procrastinate_jobs (queue_name, task_name, lock, status)"
                        "             VALUES ('old', 'old', %s, 'failed') RETURNING id)"
                        " INSERT INTO procrastinate_events (job_id, type, at)"
                        " SELECT id, 'failed', clock_timestamp() - make_interval(days => %s) FROM job",
                        (f"of {days} days", days),
                    )
            await engine.defer(JobRequest("sweep_jobs", "housekeeping", {"timestamp": 1}))
            await eventually(lambda: [row[1] for row in rows(database)] == ["of 13 days"])

    asyncio.run(body())
