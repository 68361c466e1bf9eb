"""Everything that deliveries need on a test's own database: planner, lanes, gates; and receivers that misbehave."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import random
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import psycopg
from job_steps import QUICK
from minutebook.commands.channels.ports import Channel
from minutebook.commands.deliveries.kind import rows_of
from minutebook.commands.deliveries.lane import LaneWorker
from minutebook.commands.deliveries.planning import ChannelTerms, Planner, Said, Wanted
from minutebook.commands.deliveries.ports import Permit, permit_all
from minutebook.commands.deliveries.sending import Means
from minutebook.commands.deliveries.sweeping import sweep_lanes
from minutebook.commands.ports import Append, Creation, no_redaction
from minutebook.domain.channels.messages import Address
from minutebook.domain.channels.pausing import INITIAL as CHANNEL
from minutebook.domain.channels.pausing import ChannelPaused, ChannelState, pause, resume
from minutebook.domain.decisions import Decision
from minutebook.domain.deliveries.retry import Policy
from minutebook.domain.principals import SERVER
from minutebook.infra.channels.setup import SHAPES
from minutebook.infra.channels.webhook import WebhookChannel
from minutebook.infra.codecs import PayloadCodec
from minutebook.infra.delivery_hashes import DeliveryHashes
from minutebook.infra.jobs.connector import Pool, jobs_pool
from minutebook.infra.jobs.engine import JobEngine
from minutebook.infra.jobs.lanes import LANE_CONCURRENCY, LaneJob, PostgresLaneQueue
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.delivery_board import PostgresBoard
from minutebook.infra.postgres.delivery_bulk import PostgresBulk
from minutebook.infra.postgres.delivery_gates import PostgresGates
from minutebook.infra.postgres.delivery_payloads import PostgresPayloads
from minutebook.infra.postgres.delivery_rows import PostgresDeliveryRows
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.postgres.shared_looks import PostgresHeads, PostgresSealed
from minutebook.infra.postgres.store import PostgresStore
from minutebook.infra.settings_channels import ChannelSettings
from msgspec.structs import replace
from outside import LOST, Outside, Reply, Request
from ulid_transform import ulid_now

PAYLOAD_KEY = b"p" * 32
SECRET = "whsec_" + base64.b64encode(b"fedcba9876543210fedcba9876543210").decode()
BRISK = Policy(first_s=0.05, growth=1, timeout_s=0.5)
"""Eight attempts within a second."""

_numbers = itertools.count(1)


class Receiver(Outside):
    """A webhook's other end: counts what it took by key, and knows a key that it has seen."""

    def __init__(self) -> None:
        super().__init__(self._take)
        self.took: Counter[str] = Counter()
        self.texts: dict[str, str] = {}

    def _take(self, request: Request) -> Reply:
        key = request.headers["webhook-id"]
        self.took[key] += 1
        self.texts[key] = request.json["data"]["text"]
        return Reply(200, b"{}")


def webhook(name: str, url: str) -> WebhookChannel:
    """A channel to a local receiver."""
    settings = ChannelSettings(kind="webhook", tenant="acme", url=url, secret=SECRET, allow_loopback=True)
    return WebhookChannel(name, settings, lambda: datetime.now(UTC))


class Desk:
    """One process's share of the work, but for the engine."""

    def __init__(
        self, pool: Any, jobs: Pool, channels: Mapping[str, Channel], terms: ChannelTerms, permit: Permit
    ) -> None:
        self.appender = Appender(pool, notify=False)
        self.store = PostgresStore(pool, self.appender)
        self.rows = PostgresDeliveryRows(pool)
        self.payloads = PostgresPayloads(pool)
        self.gates = PostgresGates(pool)
        self.board = PostgresBoard(pool)
        self.bulk = PostgresBulk(pool)
        self.queue = PostgresLaneQueue(jobs)
        self.hashes = DeliveryHashes(b"k" * 32)
        self.codec = PayloadCodec(SHAPES, [PAYLOAD_KEY], no_redaction)
        self.channels = channels
        self.jobs = jobs
        self.stopping = False
        self.means = Means(
            self.store,
            self.rows,
            PostgresHeads(self.rows),
            self.payloads,
            PostgresSealed(self.payloads),
            self.codec,
            channels,
            lambda _name: terms,
            permit,
            random.random,
            ulid_now,
        )
        self.planner = Planner(
            self.store,
            self.payloads,
            self.codec,
            self.queue,
            self.hashes,
            channels,
            lambda _name: terms,
            lambda: datetime.now(UTC),
            ulid_now,
        )
        self.worker = LaneWorker(self.means, self.gates, self.queue, lambda: self.stopping)

    def permit_by(self, permit: Permit) -> None:
        """Ask this one before each send."""
        self.means = replace(self.means, permit=permit)
        self.worker = LaneWorker(self.means, self.gates, self.queue, lambda: self.stopping)

    def engine(self, listen_url: str, **fields: Any) -> JobEngine:
        """What runs the lanes."""
        timing = fields.pop("timing", QUICK)
        return JobEngine(
            self.jobs, listen_url, [LaneJob(self.worker.drain)], timing=timing, concurrency=LANE_CONCURRENCY, **fields
        )

    async def sweep(self) -> None:
        """As the clock does."""
        await sweep_lanes(self.rows, self.queue, self.means)

    async def pause(self, channel: str, until: datetime | None = None) -> None:
        """As an operator does."""
        stream = f"channel:acme:{channel}"
        if await self.store.head(stream) is None:
            await self.store.append([Append(stream, 0, create=Creation("channel", "acme", 90))])
        await self._tell(stream, pause(CHANNEL, channel, "maintenance", until, datetime.now(UTC), SERVER))

    async def resume(self, channel: str) -> None:
        """As an operator does."""
        paused = ChannelState(ChannelPaused(channel, "maintenance"))
        await self._tell(f"channel:acme:{channel}", resume(paused, channel, "done", datetime.now(UTC), SERVER))

    async def _tell(self, stream: str, decision: Decision) -> None:
        head = await self.store.head(stream)
        assert head is not None
        await self.store.append([Append(stream, head.version, rows_of(decision, ulid_now).rows)])

    async def drain(self, *, times: int = 1) -> None:
        """Every lane with due work, here, one after another."""
        for _ in range(times):
            for lane in await self.rows.lanes_due(1000):
                await self.worker.drain(lane)


def wanted(channel: str = "hook", *, text: str = "hello", conversation: str | None = None, **fields: Any) -> Wanted:
    """A reply for the channel's own destination."""
    number = next(_numbers)
    parts = fields.pop("parts", (Said("reply", text),))
    made = Wanted("acme", channel, Address(channel), parts, f"run-{number}\n{channel}", f"corr-{number}", **fields)
    if conversation is None:
        return made
    return Wanted(
        "acme", channel, Address(channel), parts, f"run-{number}\n{channel}", f"corr-{number}", conversation, **fields
    )


@contextlib.asynccontextmanager
async def desk_of(
    url: str,
    channels: Mapping[str, Channel],
    *,
    policy: Policy = BRISK,
    lanes: int = 4,
    rate: float | None = None,
    days: int = 90,
    permit: Permit = permit_all,
) -> AsyncGenerator[Desk]:
    """A desk as the app role, with its channels open."""
    async with (
        make_pool(url, "app", max_size=8, statement_timeout_ms=10_000) as pool,
        jobs_pool(url, max_size=12, statement_timeout_ms=10_000) as jobs,
        contextlib.AsyncExitStack() as stack,
    ):
        for channel in channels.values():
            await channel.open()
            stack.push_async_callback(channel.close)
        desk = Desk(pool, jobs, channels, ChannelTerms(policy, lanes, rate, days), permit)
        desk.appender.start()
        stack.push_async_callback(desk.appender.close)
        stack.push_async_callback(desk.planner.close)
        yield desk


def states(database: Any) -> dict[str, str]:
    """The state of every delivery by its id."""
    with database.connect("auditor") as auditor:
        return dict(auditor.execute("SELECT d.id, d.state FROM minutebook.deliveries d").fetchall())


def logged(database: Any, delivery_id: str) -> list[tuple[str, dict[str, Any]]]:
    """Types and payloads of a delivery's stream."""
    with database.connect("auditor") as auditor:
        return auditor.execute(
            "SELECT e.type, e.payload FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
            " WHERE s.name = %s ORDER BY e.seq",
            (f"delivery:{delivery_id}",),
        ).fetchall()


def postpone(database: Any, column: str, span: str) -> None:
    """Move a moment of every delivery's row: what the clock would do."""
    with psycopg.connect(database.url("postgres"), autocommit=True) as connection:
        connection.execute(f"UPDATE minutebook.deliveries SET {column} = {column} + interval '{span}'")


def hang(seconds: float) -> Callable[..., Reply]:
    """No answer for so long, nor an effect."""

    def mischief(_request: Request, _honest: Callable[[], Reply]) -> Reply:
        threading.Event().wait(seconds)
        return LOST

    return mischief


async def settled(database: Any, count: int, within_s: float = 30) -> dict[str, str]:
    """The states, once so many deliveries have ended."""
    ended: dict[str, str] = {}
    async with asyncio.timeout(within_s):
        while len(ended) < count:
            await asyncio.sleep(0.02)
            found = await asyncio.to_thread(states, database)
            ended = {
                each: state for each, state in found.items() if state in ("accepted", "dead", "cancelled", "expired")
            }
    return ended
