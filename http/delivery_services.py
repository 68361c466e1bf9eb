"""What the operators' routes of a serving process work with. Nothing is sent from here: a replay wakes its lane."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncGenerator, Mapping

from msgspec import Struct
from ulid_transform import ulid_now

from ..commands.beside import Admit
from ..commands.channels.ports import Channel
from ..commands.deliveries.bulk import BulkPlans
from ..commands.deliveries.operators import Operators
from ..commands.deliveries.pausing import Pausing
from ..commands.deliveries.ports import permit_all
from ..commands.deliveries.reconcile import Reconciling
from ..commands.deliveries.sending import Means
from ..commands.deliveries.watching import ChannelWatch
from ..commands.dispatcher import Dispatcher
from ..commands.ports import no_redaction
from ..commands.signals import Signals
from ..infra.channels.setup import payload_codec
from ..infra.database import Database
from ..infra.postgres.delivery_board import PostgresBoard
from ..infra.postgres.delivery_bulk import PostgresBulk
from ..infra.postgres.delivery_payloads import PostgresPayloads
from ..infra.postgres.delivery_rows import PostgresDeliveryRows
from ..infra.postgres.pool import Pool
from ..infra.postgres.shared_looks import PostgresHeads, PostgresSealed
from ..infra.postgres.store import PostgresStore
from ..infra.settings import Settings
from .app_pools import wake_ups
from .bounds import now
from .delivery_terms import terms_of
from .delivery_work import open_channels
from .inbox_services import inbox_rows


class Operating(Struct, frozen=True):
    """What operators see and do beside single deliveries."""

    watch: ChannelWatch
    pausing: Pausing
    bulk: BulkPlans
    reconciling: Reconciling


async def operating_of(
    settings: Settings,
    database: Database,
    pool: Pool,
    store: PostgresStore,
    dispatcher: Dispatcher,
    admit: Admit,
    signals: Signals,
    stack: contextlib.AsyncExitStack,
) -> tuple[Operators, Operating]:
    """The operators of this process, whether channels are configured or not: deliveries outlive their channel's
    settings. What it opens is closed by `stack`."""
    board, rows, payloads = PostgresBoard(pool), PostgresDeliveryRows(pool), PostgresPayloads(pool)
    queue, terms = await wake_ups(settings, database, stack, "wake-ups by operators"), terms_of(settings)
    watch = ChannelWatch(board, {name: each.tenant for name, each in settings.channels.items()})
    means = Means(
        store,
        rows,
        PostgresHeads(rows),
        payloads,
        PostgresSealed(payloads),
        payload_codec(settings, no_redaction),  # nothing is encoded here
        {},
        terms,
        permit_all,  # nothing is sent from here
        random.random,
        ulid_now,
    )

    @contextlib.asynccontextmanager
    async def opened() -> AsyncGenerator[Mapping[str, Channel]]:
        async with contextlib.AsyncExitStack() as meanwhile:
            yield await open_channels(settings, inbox_rows(settings, pool), meanwhile)

    operators = Operators(board, store, dispatcher, payloads, queue, terms, now, ulid_now, admit, signals)
    return operators, Operating(
        watch,
        Pausing(watch, store, dispatcher, rows, queue, now, ulid_now, admit),
        BulkPlans(PostgresBulk(pool), rows, store, dispatcher, now, ulid_now, admit),
        Reconciling(board, rows, payloads, means, opened, admit),
    )
