"""What the operators' routes of a serving process work with. Nothing is sent from here: a replay wakes its lane."""

from __future__ import annotations

import contextlib

from ulid_transform import ulid_now

from ..commands.beside import Admit
from ..commands.deliveries.operators import Operators
from ..commands.deliveries.watching import ChannelWatch
from ..commands.dispatcher import Dispatcher
from ..commands.signals import Signals
from ..infra.database import Database
from ..infra.jobs.connector import jobs_pool
from ..infra.jobs.lanes import PostgresLaneQueue
from ..infra.postgres.delivery_board import PostgresBoard
from ..infra.postgres.delivery_payloads import PostgresPayloads
from ..infra.postgres.pool import Pool
from ..infra.postgres.store import PostgresStore
from ..infra.settings import Settings
from .bounds import now
from .delivery_terms import terms_of

WAKERS = 1
"""Connections at most that wake lanes; none is held while nobody replays."""


async def operators_of(
    settings: Settings,
    database: Database,
    pool: Pool,
    store: PostgresStore,
    dispatcher: Dispatcher,
    admit: Admit,
    signals: Signals,
    stack: contextlib.AsyncExitStack,
) -> Operators:
    """The operators of this process, whether channels are configured or not: deliveries outlive their channel's
    settings. What it opens is closed by `stack`."""
    jobs = jobs_pool(
        database.url("app"),
        min_size=0,
        max_size=WAKERS,
        statement_timeout_ms=settings.database.statement_timeout_ms,
    )
    await jobs.open()
    stack.push_async_callback(jobs.close)
    return Operators(
        PostgresBoard(pool),
        store,
        dispatcher,
        PostgresPayloads(pool),
        PostgresLaneQueue(jobs),
        terms_of(settings),
        now,
        ulid_now,
        admit,
        signals,
    )


def channel_watch_of(settings: Settings, pool: Pool) -> ChannelWatch:
    """What shows operators the configured channels of their tenant."""
    return ChannelWatch(PostgresBoard(pool), {name: each.tenant for name, each in settings.channels.items()})
