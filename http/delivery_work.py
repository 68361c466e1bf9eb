"""Deliveries in the process of jobs: an engine for the lanes, the sweeps, and what retention asks of them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct
from ulid_transform import ulid_now

from ..commands.channels.ports import Channel, InboxRows
from ..commands.deliveries import bulk_run
from ..commands.deliveries.bulk_run import BulkMeans, BulkRunner
from ..commands.deliveries.keeping import Keeping, Kept
from ..commands.deliveries.lane import LaneWorker
from ..commands.deliveries.ports import Permit, permit_all
from ..commands.deliveries.sending import Means
from ..commands.deliveries.sweeping import SWEEP_EVERY_S, sweep_lanes
from ..commands.jobs import Job, Sweep
from ..commands.ports import no_redaction
from ..commands.signals import Signals
from ..infra.channels.setup import channels_of, payload_codec
from ..infra.database import Database
from ..infra.jobs.connector import Pool
from ..infra.jobs.engine import JobEngine
from ..infra.jobs.lanes import LANE_CONCURRENCY, LaneJob, PostgresLaneQueue
from ..infra.postgres.delivery_board import PostgresBoard
from ..infra.postgres.delivery_bulk import PostgresBulk
from ..infra.postgres.delivery_gates import PostgresGates
from ..infra.postgres.delivery_payloads import PostgresPayloads
from ..infra.postgres.delivery_rows import PostgresDeliveryRows
from ..infra.postgres.shared_looks import PostgresHeads, PostgresSealed
from ..infra.settings import Settings
from .app_pools import app_pool, quiet_store
from .delivery_terms import keep_of, terms_of

POOL_SIZE = 8
SWEEP_LIMIT_S = 14.0
"""Less than the time to the next one."""


class DeliveryWork(Struct, frozen=True):
    """engine: runs the lanes; None where no channel is configured. jobs, sweeps: for the process's own engine.
    keep: for the retention job."""

    engine: JobEngine | None
    jobs: tuple[Job, ...]
    sweeps: tuple[Sweep, ...]
    keep: Callable[[], Awaitable[Kept]]


async def open_channels(
    settings: Settings, inbox: InboxRows, stack: contextlib.AsyncExitStack
) -> Mapping[str, Channel]:
    """Those that are sent to from here, open; `stack` closes them. inbox: where those of kind web put what is sent."""
    channels = channels_of(settings, inbox)
    for channel in channels.values():
        await channel.open()
        stack.push_async_callback(channel.close)
    return channels


async def delivery_work(
    settings: Settings,
    database: Database,
    channels: Mapping[str, Channel],
    jobs: Pool,
    is_stopping: Callable[[], bool],
    stack: contextlib.AsyncExitStack,
    signals: Signals,
    permit: Permit = permit_all,
) -> DeliveryWork:
    """Open what it needs, to be closed by `stack`; the channels are open, and the role of `database` is verified.

    Deliveries outlive their channels in the settings: without any, what is left of them is ended, kept and purged.
    """
    pool = await app_pool(settings, database, stack, "deliveries", POOL_SIZE, min_size=1 if channels else 0)
    store, rows, payloads = quiet_store(pool, stack), PostgresDeliveryRows(pool), PostgresPayloads(pool)
    queue, codec = PostgresLaneQueue(jobs), payload_codec(settings, no_redaction)  # nothing is encoded here
    means = Means(
        store,
        rows,
        PostgresHeads(rows),
        payloads,
        PostgresSealed(payloads),
        codec,
        channels,
        terms_of(settings),
        permit,
        random.random,
        ulid_now,
        signals,
    )
    worker = LaneWorker(means, PostgresGates(pool), queue, is_stopping)
    lanes = JobEngine(jobs, database.listen_url, [LaneJob(worker.drain)], concurrency=LANE_CONCURRENCY)
    bulk = PostgresBulk(pool)
    runner = BulkRunner(BulkMeans(bulk, store, rows, payloads, queue, means.terms, ulid_now, signals), is_stopping)

    async def sweep() -> None:
        await sweep_lanes(rows, queue, means)

    sweeps = (
        Sweep("lanes", SWEEP_EVERY_S, sweep, SWEEP_LIMIT_S),
        Sweep("bulk", bulk_run.SWEEP_EVERY_S, runner.sweep),
    )
    keeping = Keeping(PostgresBoard(pool), payloads, store, bulk, keep_of(settings))
    if channels:
        return DeliveryWork(lanes, (), sweeps, keeping.run)
    return DeliveryWork(None, (LaneJob(_leave),), sweeps, keeping.run)


async def _leave(_lane: str) -> None:
    """Without channels a wake-up is taken and nothing is sent: the sweep ends what waits for a channel that is gone."""
