"""The job engine: bounded attempts, one job a key, and nothing lost when workers die, stop or lose their database."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from job_steps import (
    QUICK,
    SOON,
    Exclusive,
    Scripted,
    at_once,
    engine_of,
    eventually,
    jobs_pool_of,
    queue_of,
    request,
    rows,
    running,
)
from minutebook.commands.jobs import Arguments, Job, Refused, TryAgain
from minutebook.infra.jobs import engine as engine_module
from minutebook.infra.jobs.backoff import Backoff
from minutebook.infra.jobs.rescue import rescue
from psycopg import sql

SECRET = "hunter2"


def failing(*errors: Exception | None) -> Callable[[Arguments], Any]:
    """A step that fails so in its first attempts, and succeeds from the first None, or the end, on."""
    left = list(errors)

    async def step(_: Arguments) -> None:
        if left and (error := left.pop(0)) is not None:
            raise error

    return step


async def work(database: Any, job: Any, *, until: Callable[[], bool], **options: Any) -> None:
    async with engine_of(database, job, **options) as engine:
        await engine.defer(request(task=job.name, room="aaaaaaaa", seq=7))
        async with running(engine):
            await eventually(until)


def test_a_job_runs_once_with_its_arguments_and_leaves_nothing(any_database: Any) -> None:
    job = Scripted(at_once)
    asyncio.run(work(any_database, job, until=lambda: bool(job.ended) and not rows(any_database)))
    assert job.attempts == [{"room": "aaaaaaaa", "seq": 7}]
    assert job.reasons == []


@pytest.mark.parametrize("error", [TryAgain("unreachable"), RuntimeError(SECRET), TimeoutError()])
def test_a_failed_attempt_is_repeated(database: Any, error: Exception) -> None:
    job = Scripted(failing(error, error))
    asyncio.run(work(database, job, until=lambda: bool(job.ended) and not rows(database)))
    assert len(job.attempts) == 3
    assert job.reasons == []


@pytest.mark.parametrize(
    ("error", "attempts", "reason"),
    [
        (TryAgain("unreachable"), 3, "unreachable"),
        (RuntimeError(SECRET), 3, "failed"),
        (Refused("http_404"), 1, "http_404"),
    ],
)
def test_attempts_are_bounded_and_their_end_is_said(
    database: Any, error: Exception, attempts: int, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    job = Scripted(failing(*[error] * 9))
    with structlog.testing.capture_logs() as logged:
        asyncio.run(work(database, job, until=lambda: bool(job.reasons) and not rows(database)))
    assert (len(job.attempts), job.reasons) == (attempts, [reason])
    given_up = next(line for line in logged if line["event"] == "job given up")
    assert (given_up["task"], given_up["reason"]) == ("scripted", reason)
    assert SECRET not in str(logged) + "".join(capfd.readouterr())


def test_giving_up_is_repeated_until_it_is_heard(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "GIVE_UP_AGAIN_S", 0)
    job = Scripted(failing(*[Refused("no")] * 9), give_up=failing(*[OSError()] * 4))
    asyncio.run(work(database, job, until=lambda: len(job.reasons) >= 5 and not rows(database)))
    assert job.reasons == ["no", "no", "no", "attempts_used", "attempts_used"]
    assert len(job.attempts) == SOON.attempts


def test_what_the_other_side_asked_for_is_waited_for_up_to_the_cap(database: Any) -> None:
    async def waits(asked_s: float) -> float:
        job = Scripted(failing(TryAgain("rate_limited", asked_s)))
        async with engine_of(database, job, backoff=Backoff(cap_s=600, first_s=0.01)) as engine:
            await engine.defer(request(key=f"after {asked_s}"))
            async with running(engine):
                await eventually(lambda: rows(database)[-1][2:] == ("todo", 1))
        with queue_of(database) as app:
            found = app.execute(
                "DELETE FROM minutebook_jobs.procrastinate_jobs j WHERE j.task_name = 'scripted'"
                " RETURNING extract(epoch FROM j.scheduled_at - clock_timestamp())::float8"
            ).fetchone()
        assert found is not None
        return found[0]

    assert 110 < asyncio.run(waits(120)) <= 121
    assert 590 < asyncio.run(waits(10**9)) <= 600
    assert 0 <= Backoff(first_s=1).wait_s(1, -5) <= 1


def test_waits_grow_with_jitter_up_to_the_cap() -> None:
    backoff = Backoff()
    waits = {attempt: [backoff.wait_s(attempt) for _ in range(400)] for attempt in (1, 3, 40)}
    assert all(0 <= wait <= 1 for wait in waits[1])
    assert all(0 <= wait <= 16 for wait in waits[3])
    assert all(0 <= wait <= 3600 for wait in waits[40])
    for found in waits.values():
        longest = max(found)
        # Spread over the whole of it: no tenth of the time holds a quarter of the waits (field fault B69).
        assert max(sum(n * longest / 10 <= wait < (n + 1) * longest / 10 for wait in found) for n in range(10)) < 100


def test_of_one_key_one_job_waits(database: Any) -> None:
    async def body() -> None:
        job = Scripted(at_once)
        async with engine_of(database, job) as engine:
            for _ in range(3):
                await engine.defer(request("same"))
            await engine.defer(request("other"))
            assert [row[1] for row in rows(database)] == ["same", "other"]
            async with running(engine):
                await eventually(lambda: not rows(database))
        assert len(job.attempts) == 2

    asyncio.run(body())


def test_a_job_that_waits_again_while_its_key_waits_frees_the_key(database: Any) -> None:
    """Otherwise it stays `doing`, and its lock is taken for ever."""

    async def body() -> None:
        began, go = asyncio.Event(), asyncio.Event()
        left = [TryAgain("not_yet")]

        async def step(_: Arguments) -> None:
            began.set()
            await go.wait()
            if left:
                raise left.pop()

        job = Scripted(step)
        async with engine_of(database, job) as engine:
            await engine.defer(request("same", number=1))
            async with running(engine):
                await asyncio.wait_for(began.wait(), 20)
                await engine.defer(request("same", number=2))
                go.set()
                await eventually(lambda: not rows(database))
        assert job.ended == [{"number": 2}]

    asyncio.run(body())


def test_two_engines_share_the_work_and_repeat_none(any_database: Any) -> None:
    async def body() -> None:
        one, other = Scripted(at_once), Scripted(at_once)
        async with engine_of(any_database, one) as first, engine_of(any_database, other) as second:
            for number in range(60):
                await first.defer(request(f"key {number}", number=number))
            async with running(first), running(second):
                await eventually(lambda: not rows(any_database))
        numbers = [each["number"] for each in one.ended + other.ended]
        assert sorted(numbers) == list(range(60))

    asyncio.run(body())


HANGING = """
import asyncio, sys
sys.path.insert(0, "tests/support")
from job_steps import QUICK, Scripted, engine_of, running

async def hang(arguments):
    print("began", flush=True)
    await asyncio.Event().wait()

class Database:
    def url(self, role):
        return sys.argv[1]

async def main():
    async with engine_of(Database(), Scripted(hang)) as engine, running(engine):
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextlib.contextmanager
def hanging_worker(database: Any) -> Any:
    """A worker in a process of its own that has begun a job and never ends it."""
    child = subprocess.Popen(
        [sys.executable, "-c", HANGING, database.url("app")], stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "began\n"
        yield child
    finally:
        child.kill()
        child.wait(10)
        child.stdout.close()  # pyright: ignore[reportOptionalMemberAccess]


def test_the_jobs_of_a_killed_worker_run_again(database: Any) -> None:
    async def body() -> None:
        job = Scripted(at_once)
        async with engine_of(database, job) as engine:
            await engine.defer(request(number=1))
            with hanging_worker(database) as child:
                async with running(engine):
                    # While the other one lives, however long its job takes, the job is its own.
                    await asyncio.sleep(2 * QUICK.silent_s)
                    assert (job.attempts, [row[2] for row in rows(database)]) == ([], ["doing"])
                    child.kill()
                    await eventually(lambda: not rows(database), 10)
            assert job.ended == [{"number": 1}]

    asyncio.run(body())


def test_a_job_that_kills_its_workers_is_given_up_without_another_attempt(database: Any) -> None:
    async def body() -> None:
        job = Scripted(at_once)
        async with engine_of(database, job) as engine:
            await engine.defer(request())
            with database.connect("app") as app:
                app.execute("UPDATE minutebook_jobs.procrastinate_jobs SET attempts = %s", (SOON.attempts,))
            async with running(engine):
                await eventually(lambda: not rows(database))
        assert (job.attempts, job.reasons) == ([], ["attempts_used"])

    asyncio.run(body())


def test_two_rescuers_at_once_rescue_a_job_once_and_drop_one_whose_key_waits(database: Any) -> None:
    async def body() -> None:
        async with engine_of(database, Scripted(at_once)) as engine, jobs_pool_of(database) as pool:
            for number in range(20):
                await engine.defer(request(f"key {number}"))
            with queue_of(database) as app:
                app.execute("UPDATE minutebook_jobs.procrastinate_jobs SET status = 'doing'")
            await engine.defer(request("key 5"))
            both = await asyncio.gather(*(rescue(pool, 1) for _ in range(4)))
            assert sum(both) == 20
            assert await rescue(pool, 1) == 0
        assert {(status, attempts) for _, key, status, attempts in rows(database) if key != "key 5"} == {("todo", 1)}
        assert [row[2:] for row in rows(database) if row[1] == "key 5"] == [("todo", 0)]

    asyncio.run(body())


def overlapping(job_class: type[Scripted], database: Any) -> int:
    """The most attempts of one key at one time, where every worker is taken for dead while it works."""

    async def body() -> int:
        now, most, ended = 0, 0, 0

        async def step(_: Arguments) -> None:
            nonlocal now, most, ended
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.5)  # the work itself
            now -= 1
            ended += 1

        job: Job = job_class(step)
        backoff = Backoff(attempts=200, first_s=0.01, growth=1)
        async with (
            engine_of(database, job, backoff=backoff) as one,
            engine_of(database, job, backoff=backoff) as two,
            jobs_pool_of(database) as pool,
        ):
            await one.defer(request(task=job.name))
            async with running(one), running(two):
                await eventually(lambda: now > 0)
                for _ in range(5):
                    await rescue(pool, 0)
                    await asyncio.sleep(0.05)  # lets the other one take it up
                await eventually(lambda: now == 0 and not rows(database))
        return most

    return asyncio.run(body())


def test_exclusive_attempts_never_overlap_even_if_the_engine_believes_their_worker_dead(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "BUSY_S", 0.1)
    assert overlapping(Exclusive, database) == 1
    assert overlapping(Scripted, database) > 1, "the engine alone keeps them apart: the lock is not needed"


def test_a_drain_lets_a_job_end_and_leaves_a_longer_one_to_the_next_worker(database: Any) -> None:
    async def body() -> None:
        began = 0
        go = asyncio.Event()

        async def step(arguments: Arguments) -> None:
            nonlocal began
            began += 1
            await (go.wait() if arguments["number"] == 1 or began > 2 else asyncio.Event().wait())

        job = Scripted(step)
        async with engine_of(database, job) as engine:
            for number in (1, 2):
                await engine.defer(request(f"key {number}", number=number))
            async with running(engine, drain_s=0.5) as stop:
                await eventually(lambda: began == 2)
                stop.set()
                go.set()
            assert job.ended == [{"number": 1}]
            assert [row[1:3] for row in rows(database)] == [("key 2", "todo")]
            async with running(engine):
                await eventually(lambda: not rows(database))
        assert job.ended == [{"number": 1}, {"number": 2}]

    asyncio.run(body())


def test_a_worker_outlives_the_end_of_all_its_sessions(database: Any) -> None:
    async def body() -> None:
        job = Scripted(at_once)
        async with engine_of(database, job) as engine, running(engine):
            for number in range(5):
                async with engine_of(database, job) as asking:
                    await asking.defer(request(f"key {number}", number=number))
                with database.connect("postgres") as superuser:
                    superuser.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE usename = 'minutebook_app' AND datname = current_database()"
                    )
                await eventually(lambda number=number: {"number": number} in job.ended)
            await eventually(lambda: not rows(database))

    asyncio.run(body())


def test_b81_a_worker_works_again_when_a_read_only_database_is_writable_again(database: Any) -> None:
    """A default of the database that was read-only when a session began stays with the session."""

    async def body() -> None:
        job = Scripted(at_once)
        with database.connect("postgres") as superuser:
            name = sql.Identifier(database.name)
            superuser.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
            async with engine_of(database, job) as engine, running(engine):
                with structlog.testing.capture_logs() as logged:
                    await eventually(lambda: any(line["event"] == "job worker interrupted" for line in logged))
                superuser.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))
                async with engine_of(database, job) as asking:
                    await asking.defer(request())
                await eventually(lambda: bool(job.ended) and not rows(database))

    asyncio.run(body())


def test_a_task_of_a_newer_version_waits_for_it(database: Any) -> None:
    async def body() -> None:
        job = Scripted(at_once)
        async with engine_of(database, job) as engine:
            await engine.defer(request("new", task="not_yet_known"))
            await engine.defer(request("old"))
            async with running(engine):
                await eventually(lambda: bool(job.ended))
        assert rows(database) == [("not_yet_known", "new", "todo", 0)]

    asyncio.run(body())
