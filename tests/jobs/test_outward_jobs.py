"""From an event to the outside and back: the outbox defers, any worker does it, and the room hears what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, ClassVar

import pytest
from append_helpers import append, creation, event
from job_steps import drained, engine_of, eventually, jobs_pool_of, outbox_of, rows, running
from minutebook.commands.jobs import JobRequest
from minutebook.commands.outward import Launch, Notice, NotPosted, Posted, Verdict
from minutebook.commands.ports import StoredEvent
from minutebook.commands.processes.requests import launch_request, notice_request, verdict_request
from minutebook.infra.jobs import engine as engine_module
from minutebook.infra.jobs.backoff import Backoff
from minutebook.infra.jobs.engine import Timing
from minutebook.infra.jobs.outward import (
    LaunchJob,
    NotifyJob,
    VerdictJob,
)
from minutebook.infra.jobs.rescue import rescue
from minutebook.infra.launcher import WebhookLauncher
from minutebook.infra.notifier import WebhookNotifier
from minutebook.infra.outward_http import OutwardClient
from minutebook.infra.settings_outward import LauncherSettings, NotifySettings
from minutebook.infra.verdict_poster import GitHubVerdicts
from outside import SECRET, Forge, Outside, Reply, garbage, lost_after, lost_before, now, serving, slowly, status

ROOM = "aaaaaaaa"
BACKOFF = Backoff(attempts=40, first_s=0.02, growth=1)
QUICK = Timing(heartbeat_s=0.2, silent_s=1.5, rescue_s=0.2, poll_s=0.05, interrupted_s=0.1)


class Told:
    """What the room knows: verdicts by seq, and the outcomes that were recorded for them."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, int, Posted | NotPosted]] = []
        self.not_launched: list[tuple[str, str, str]] = []
        self.failing = 0

    async def find(self, room: str, seq: int) -> Verdict | NotPosted | None:
        if any(each[:2] == (room, seq) for each in self.outcomes):
            return None
        url = "https://github.com/acme/widget/pull/7"
        return Verdict(
            room, seq, "2026-01-02T03:04:05.000006Z", url, "acme/widget", "approve", "abcdef1", "Fine.", True
        )

    async def record(self, room: str, seq: int, outcome: Posted | NotPosted) -> None:
        if self.failing:
            self.failing -= 1
            raise OSError
        self.outcomes.append((room, seq, outcome))

    async def launch(self, room: str, run_id: str) -> Launch | None:
        return None if run_id == "gone" else Launch(room, run_id, "reviewer", {"room": room}, "brief")

    async def could_not(self, room: str, run_id: str, reason: str) -> None:
        self.not_launched.append((room, run_id, reason))


class Reactions:
    """A process as rooms will have it."""

    name: ClassVar[str] = "rooms"
    kinds: ClassVar[tuple[str, ...]] = ("room",)
    types: ClassVar[tuple[str, ...]] = ("message", "state_changed")

    def react(self, stream: str, event: StoredEvent) -> Sequence[JobRequest]:
        room = stream.partition(":")[2]
        payload = json.loads(event.payload)
        if payload.get("kind") == "review_verdict":
            return [verdict_request(room, event.seq)]
        if payload.get("kind") == "run_requested":
            return [launch_request(room, payload["runId"])]
        if payload.get("kind") == "run_phase":
            notice = Notice("run_ended", room, event.seq, "2026-01-02T03:04:05.000006Z", payload["runId"])
            return [notice_request(notice)]
        return []


@pytest.fixture
def forge() -> Iterator[Forge]:
    outside = Forge()
    with serving(outside):
        yield outside


@contextlib.asynccontextmanager
async def worker(database: Any, forge: Forge, told: Told) -> AsyncGenerator[Any]:
    """An engine for verdicts as a server process has it."""
    poster = GitHubVerdicts(forge.url, "right", OutwardClient(2, allow_private=True), settle_s=0.05)
    async with engine_of(database, VerdictJob(poster, told.find, told.record), backoff=BACKOFF, timing=QUICK) as engine:
        try:
            yield engine
        finally:
            await poster.close()


def test_each_kind_of_event_reaches_its_place(database: Any, forge: Forge) -> None:
    async def body() -> None:
        told = Told()
        launcher = WebhookLauncher.of(LauncherSettings(url=hook.url, secret=SECRET, allow_loopback=True), now)
        notifier = WebhookNotifier.of(
            NotifySettings(url=hook.url, secret=SECRET, allow_loopback=True, public_url="https://r.example"), now
        )
        poster = GitHubVerdicts(forge.url, "right", OutwardClient(2, allow_private=True))
        assert launcher is not None
        assert notifier is not None
        jobs = [
            LaunchJob(launcher, told.launch, told.could_not),
            NotifyJob(notifier),
            VerdictJob(poster, told.find, told.record),
        ]
        async with engine_of(database, *jobs) as engine, outbox_of(database, Reactions(), engine) as outbox:
            await drained(outbox)
            # What the engine stores and logs are ids.
            with database.connect("auditor") as auditor:
                stored = auditor.execute("SELECT j::text FROM minutebook_jobs.procrastinate_jobs j").fetchall()
            assert "SECRET" not in str(stored)
            async with running(engine):
                await eventually(lambda: not rows(database))
        for each in (launcher, notifier, poster):
            await each.close()
        assert told.outcomes == [(ROOM, 2, Posted("https://forge.example/c/1"))]
        assert told.not_launched == [(ROOM, "refused", "http_410")]

    with database.connect("app") as app:
        append(
            app,
            creation(
                event({"text": "SECRET"}),
                event({"kind": "review_verdict", "text": "SECRET"}),
                event({"kind": "run_requested", "runId": "bbbbbbbb"}, t="state_changed"),
                event({"kind": "run_requested", "runId": "gone"}, t="state_changed"),
                event({"kind": "run_phase", "runId": "bbbbbbbb", "text": "SECRET"}, t="state_changed"),
                event({"kind": "run_requested", "runId": "refused"}, t="state_changed"),
            ),
        )
    with serving(Outside(lambda request: Reply(410 if b"refused" in request.body else 200))) as hook:
        hook.troubles = lambda request: b"bbbbbbbb" in request.body
        hook.mischief = [lost_after, status(503)]
        asyncio.run(body())
        ids = [request.headers["webhook-id"] for request in hook.requests]
        assert set(ids) == {"run-bbbbbbbb", "aaaaaaaa-5-run_ended", "run-refused"}
        assert len(ids) == 5
        assert not any(b"SECRET" in request.body for request in hook.requests)


def test_sc14_one_comment_ever_by_two_workers_with_bad_luck(database: Any, forge: Forge) -> None:
    """Both are taken for dead again and again while they post, answers are lost, and recording fails."""

    async def body() -> None:
        told = Told()
        chance = random.Random(14)  # noqa: S311
        luck = [lost_before, lost_after, garbage, status(429), status(502), *[slowly] * 5]
        forge.mischief = [chance.choice(luck) for _ in range(150)]
        told.failing = 5
        seqs = range(2, 12)
        async with (
            worker(database, forge, told) as one,
            worker(database, forge, told) as two,
            jobs_pool_of(database) as pool,
        ):
            for seq in seqs:
                for _ in range(2):
                    await one.defer(verdict_request(ROOM, seq))
            async with running(one), running(two):
                async with asyncio.timeout(60):
                    while await asyncio.to_thread(rows, database):
                        await rescue(pool, 0)
                        await asyncio.sleep(0.02)
        markers = [comment["body"].partition("\n")[0] for comment in forge.comments]
        assert sorted(markers) == sorted(f"<!-- minutebook:room={ROOM}:seq={seq} -->" for seq in seqs)
        assert {seq for _, seq, outcome in told.outcomes if isinstance(outcome, Posted)} == set(seqs)

    engine_busy, engine_module.BUSY_S = engine_module.BUSY_S, 0.1
    try:
        asyncio.run(body())
    finally:
        engine_module.BUSY_S = engine_busy


def test_a_verdict_that_cannot_be_posted_is_recorded_with_its_reason(database: Any, forge: Forge) -> None:
    async def body() -> None:
        told = Told()
        forge.mischief = [status(502)] * 999
        poster = GitHubVerdicts(forge.url, "right", OutwardClient(2, allow_private=True), settle_s=0)
        job = VerdictJob(poster, told.find, told.record)
        async with engine_of(database, job) as engine:
            await engine.defer(verdict_request(ROOM, 2))
            async with running(engine):
                await eventually(lambda: not rows(database))
            forge.mischief = [status(404)] * 3
            await engine.defer(verdict_request(ROOM, 3))
            async with running(engine):
                await eventually(lambda: not rows(database))
        await poster.close()
        assert told.outcomes == [(ROOM, 2, NotPosted("server_error")), (ROOM, 3, NotPosted("http_404"))]

    asyncio.run(body())


def test_an_outcome_that_is_recorded_posts_no_more(database: Any, forge: Forge) -> None:
    async def body() -> None:
        told = Told()
        told.outcomes.append((ROOM, 2, NotPosted("http_404")))
        async with worker(database, forge, told) as engine:
            await engine.defer(verdict_request(ROOM, 2))
            async with running(engine):
                await eventually(lambda: not rows(database))
        assert forge.requests == []

    asyncio.run(body())
