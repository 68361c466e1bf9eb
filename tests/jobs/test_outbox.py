"""From the log to the queue: each event answered once, with its checkpoint, whatever dies; and never by a rebuild."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from append_helpers import append, creation, event, events, expire, item, one, run, triggers_off
from job_steps import (
    Scripted,
    at_once,
    drained,
    engine_of,
    eventually,
    outbox_of,
    queue_of,
    request,
    rows,
    running,
)
from minutebook.commands.jobs import JobRequest
from minutebook.commands.ports import StoredEvent
from minutebook.infra.jobs.outbox import MAX_EVENTS, PREFIX, Outbox
from minutebook.infra.postgres.rebuild import rebuild
from minutebook.infra.postgres.views import PROJECTIONS


class Echo:
    """Answers every message with a job of its stream and seq; can be told to stumble at some."""

    name: ClassVar[str] = "rooms"
    kinds: ClassVar[tuple[str, ...]] = ("room",)
    types: ClassVar[tuple[str, ...]] = ("message",)

    def __init__(self, *stumbles: int) -> None:
        self.stumbles = set(stumbles)
        self.seen: list[tuple[str, int]] = []

    def react(self, stream: str, event: StoredEvent) -> Sequence[JobRequest]:
        self.seen.append((stream, event.seq))
        if event.seq in self.stumbles:
            raise ValueError("cannot be read")
        text = json.loads(event.payload)["text"]
        return [] if text == "quiet" else [request(f"{stream}:{event.seq}", seq=event.seq)]


def checkpoints(database: Any) -> dict[str, int]:
    with database.connect("auditor") as auditor:
        return dict(
            auditor.execute(
                "SELECT s.name, c.seq FROM minutebook_views.checkpoints c JOIN minutebook.streams s"
                " ON s.id = c.stream_id WHERE c.projection = 'process:rooms'"
            ).fetchall()
        )


def keys(database: Any) -> list[str]:
    return sorted(row[1] for row in rows(database))


@contextlib.asynccontextmanager
async def outbox(database: Any, process: Any = None, job: Any = None) -> Any:
    async with (
        engine_of(database, job or Scripted(at_once)) as engine,
        outbox_of(database, process or Echo(), engine) as found,
    ):
        yield found


def room(database: Any, *rows: Any, name: str = "room:aaaaaaaa") -> None:
    with database.connect("app") as app:
        assert append(app, creation(*(rows or events(3)), stream=name))[0].outcome == "appended"


def test_each_event_is_answered_once_in_one_transaction_with_its_checkpoint(any_database: Any) -> None:
    room(any_database, *events(2), event({"text": "quiet"}), event({"phase": "x"}, t="turn"))
    room(any_database, name="room:bbbbbbbb")
    room(any_database, name="other:cccccccc")

    async def body() -> None:
        async with outbox(any_database) as found:
            for _ in range(3):
                await drained(found)
        assert keys(any_database) == [
            *("room:aaaaaaaa:1", "room:aaaaaaaa:2"),
            *("room:bbbbbbbb:1", "room:bbbbbbbb:2", "room:bbbbbbbb:3"),
        ]
        assert checkpoints(any_database) == {"room:aaaaaaaa": 4, "room:bbbbbbbb": 3}
        # In another process, after a restart, and with new events only those.
        with any_database.connect("app") as app:
            append(app, item(4, *events(1)))
        async with outbox(any_database) as found:
            await drained(found)
        assert len(keys(any_database)) == 6
        assert "room:aaaaaaaa:5" in keys(any_database)

    asyncio.run(body())


def test_more_events_than_fit_one_transaction_are_all_answered(database: Any) -> None:
    many = [event({"text": "quiet"}) for _ in range(2 * MAX_EVENTS + 1)]
    room(database, *many, *events(2))

    async def body() -> None:
        process = Echo()
        async with outbox(database, process) as found:
            await drained(found)
        assert [seq for _, seq in process.seen] == list(range(1, len(many) + 3))
        assert len(keys(database)) == 2
        assert checkpoints(database) == {"room:aaaaaaaa": len(many) + 2}

    asyncio.run(body())


def test_workers_at_once_answer_each_event_once(database: Any) -> None:
    for number in range(10):
        room(database, *events(20), name=f"room:aaaaaaa{'abcdefghij'[number]}")

    async def body() -> None:
        async with contextlib.AsyncExitStack() as stack:
            workers = [await stack.enter_async_context(outbox(database)) for _ in range(4)]
            await asyncio.gather(*(drained(each) for each in workers))
            for each in workers:
                await drained(each)
            assert sum(each.deferred for each in workers) == 200
        assert len(keys(database)) == 200

    asyncio.run(body())


def test_what_is_cut_off_before_its_commit_left_neither_job_nor_checkpoint(database: Any) -> None:
    room(database)

    async def body() -> None:
        async with outbox(database) as found:
            with (
                database.connect("postgres") as looking,
                database.connect("postgres") as superuser,
                superuser.transaction(),
            ):
                # The last statement of the transaction waits for this lock, with the jobs already deferred.
                superuser.execute("LOCK TABLE minutebook_views.parked IN EXCLUSIVE MODE")
                folding = asyncio.create_task(drained(found))
                ended = (
                    "SELECT count(pg_terminate_backend(pid)) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    " AND usename = 'minutebook_projector' AND datname = current_database()"
                )
                await eventually(lambda: run(looking, ended).fetchone() == (True,))
                with pytest.raises(Exception, match="terminat"):
                    await folding
        assert (keys(database), checkpoints(database)) == ([], {"room:aaaaaaaa": 0})
        async with outbox(database) as found:
            await drained(found)
        assert len(keys(database)) == 3

    asyncio.run(body())


def test_an_event_that_cannot_be_answered_parks_its_stream_alone(database: Any) -> None:
    room(database, *events(1))
    room(database, *events(3), name="room:bbbbbbbb")

    async def body() -> None:
        async with outbox(database, Echo(3)) as found:
            await drained(found)
            assert keys(database) == ["room:aaaaaaaa:1"]
            assert found.parked == 1
        with database.connect("projector") as projector:
            parked = projector.execute(
                "SELECT p.projection, s.name, p.seq FROM minutebook_views.parked p"
                " JOIN minutebook.streams s ON s.id = p.stream_id"
            ).fetchall()
            assert parked == [("process:rooms", "room:bbbbbbbb", 1)]
            projector.execute("UPDATE minutebook_views.parked SET retry_at = clock_timestamp()")
        async with outbox(database) as found:
            await drained(found)
        assert len(keys(database)) == 4

    asyncio.run(body())


def test_what_happened_before_the_process_began_is_left_alone(database: Any) -> None:
    room(database)
    room(database, name="room:bbbbbbbb")
    with database.connect("postgres") as superuser:
        superuser.execute("UPDATE minutebook_jobs.processes SET began_at = clock_timestamp() WHERE name = 'rooms'")
    with database.connect("app") as app:
        append(app, item(3, *events(1)))

    async def body() -> None:
        async with outbox(database) as found:
            await drained(found)
        assert keys(database) == ["room:aaaaaaaa:4"]
        assert checkpoints(database) == {"room:aaaaaaaa": 4}

    asyncio.run(body())


def test_copies_in_a_fork_have_no_effect_again(database: Any) -> None:
    """A copy keeps its ts, and so is older than its stream."""
    room(database)
    with database.connect("postgres") as superuser, triggers_off(superuser, "streams"):
        superuser.execute("UPDATE minutebook.streams SET created_at = clock_timestamp()")
    with database.connect("app") as app:
        append(app, item(3, *events(1)))

    async def body() -> None:
        async with outbox(database) as found:
            await drained(found)
        assert keys(database) == ["room:aaaaaaaa:4"]

    asyncio.run(body())


def test_an_erased_payload_has_no_effect_any_more(database: Any) -> None:
    room(database)
    with database.connect("postgres") as superuser, triggers_off(superuser, "events"):
        superuser.execute("UPDATE minutebook.events SET payload = NULL, salt = NULL WHERE seq = 2")

    async def body() -> None:
        async with outbox(database) as found:
            await drained(found)
        assert keys(database) == ["room:aaaaaaaa:1", "room:aaaaaaaa:3"]
        assert checkpoints(database) == {"room:aaaaaaaa": 3}

    asyncio.run(body())


def test_a_job_whose_key_waits_already_is_not_doubled_and_does_not_park(database: Any) -> None:
    room(database)

    async def body() -> None:
        async with engine_of(database, Scripted(at_once)) as engine, outbox_of(database, Echo(), engine) as found:
            await engine.defer(request("room:aaaaaaaa:2"))
            await drained(found)
            assert found.parked == 0
        assert len(keys(database)) == len(set(keys(database))) == 3

    asyncio.run(body())


def test_law_9_a_rebuild_defers_nothing(database: Any) -> None:
    room(database)
    assert not any(name.startswith(PREFIX) for name in PROJECTIONS)
    for projection in PROJECTIONS.values():
        rebuild(database.url("projector"), projection)
    assert (keys(database), checkpoints(database)) == ([], {})


def test_a_purged_stream_takes_its_checkpoint_with_it(database: Any) -> None:
    """The checkpoints are where the purge looks (law 10)."""
    room(database)
    with database.connect("app") as app:
        append(app, item(3, event(), seal=True))

    async def body() -> None:
        async with outbox(database) as found:
            await drained(found)

    asyncio.run(body())
    with database.connect("postgres") as superuser:
        stream = expire(superuser)
    with database.connect("retention") as retention:
        assert one(retention, "SELECT minutebook.purge_stream_v1(%s)", stream) == 4
    with database.connect("auditor") as auditor:
        assert one(auditor, "SELECT count(*) FROM minutebook_views.checkpoints c WHERE c.stream_id = %s", stream) == 0


def test_a_process_that_no_migration_knows_does_not_start(database: Any) -> None:
    class Unknown(Echo):
        name: ClassVar[str] = "unknown"

    async def body() -> None:
        async with outbox(database, Unknown()) as found:
            with pytest.raises(LookupError, match=r"unknown is not in minutebook_jobs\.processes"):
                await found.check()
        async with outbox(database) as found:
            await found.check()

    asyncio.run(body())


def test_roles_may_do_their_part_and_no_more(database: Any) -> None:
    """The projector defers and cannot run, change or take away a job; the app cannot say from when on a process is."""
    with database.connect("projector") as projector:
        for statement in (
            "UPDATE minutebook_jobs.procrastinate_jobs SET status = 'doing'",
            "DELETE FROM minutebook_jobs.procrastinate_jobs",
            "UPDATE minutebook_jobs.processes SET began_at = 'epoch'",
        ):
            with pytest.raises(Exception, match="permission denied"):
                run(projector, statement)
    with queue_of(database) as app, pytest.raises(Exception, match="permission denied"):
        run(app, "UPDATE minutebook_jobs.processes SET began_at = 'epoch'")
    with database.connect("retention") as retention, pytest.raises(Exception, match="permission denied"):
        run(retention, "SELECT FROM minutebook_jobs.procrastinate_jobs")


def test_from_an_event_to_its_job_by_a_wake_up(database: Any) -> None:
    async def body() -> None:
        job = Scripted(at_once)
        async with engine_of(database, job) as engine, outbox_of(database, Echo(), engine) as found:
            assert isinstance(found, Outbox)
            found.start()
            async with running(engine):
                room(database)
                found.wake(None)
                await eventually(lambda: len(job.ended) == 3 and not rows(database))
            await found.close()
        assert sorted(each["seq"] for each in job.ended) == [1, 2, 3]

    asyncio.run(body())
