"""Answers in the process of jobs: where each goes is resolved at its turn's end, and asked again at each send."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from msgspec import Struct
from ulid_transform import ulid_now

from ..commands.answers.permitting import AnswerPermit
from ..commands.answers.permitting import Means as PermitMeans
from ..commands.answers.records import Transcripts
from ..commands.answers.resolving import Means, Resolver
from ..commands.channels.ports import Channel
from ..commands.conversations.access import Access
from ..commands.deliveries.planning import Planner
from ..commands.deliveries.ports import Permit, permit_all
from ..commands.jobs import Job, Process, Sweep
from ..commands.linking.ports import STREAM
from ..commands.processes.answer_outbox import AnswerOutbox
from ..commands.processes.unlink_outbox import UnlinkOutbox
from ..commands.signals import Signals
from ..domain.linking.events import LinkedEnd
from ..infra.channels.setup import payload_codec
from ..infra.clearance import ClearancePolicy
from ..infra.conversation_keys import conversation_keys
from ..infra.database import Database
from ..infra.delivery_hashes import DeliveryHashes
from ..infra.jobs.answers import AnswersJob, UnlinkJob
from ..infra.jobs.connector import Pool as JobsPool
from ..infra.jobs.lanes import PostgresLaneQueue
from ..infra.link_hashes import KeyedLinkHashes
from ..infra.postgres.answer_table import PostgresAnswerTable, PostgresPushes
from ..infra.postgres.conversation_log import PostgresConversationLog
from ..infra.postgres.delivery_payloads import PostgresPayloads
from ..infra.postgres.inbound_deletions import PostgresDeletions
from ..infra.postgres.pool import Pool
from ..infra.postgres.sign_ins import PostgresSnapshots
from ..infra.postgres.store import PostgresStore
from ..infra.redaction.engine import Redactor
from ..infra.server_key import server_key
from ..infra.settings import Settings
from .answer_services import continuations_of, unlinking_of
from .answer_terms import answer_terms
from .app_pools import app_pool, quiet_store
from .bounds import now
from .delivery_terms import terms_of
from .link_ends import ends_of

POOL_SIZE = 8
SWEEP_EVERY_S = 15
SWEEP_LIMIT_S = 14.0
"""Less than the time to the next one."""

PUSHES_EVERY_S = 3600


class AnswerWork(Struct, frozen=True):
    """What the process of jobs does for answers. permit: asked by the lanes before each send."""

    permit: Permit
    processes: Sequence[Process] = ()
    jobs: Sequence[Job] = ()
    sweeps: Sequence[Sweep] = ()


NO_ANSWERS = AnswerWork(permit_all)
"""Of a server without channels, where no answer goes anywhere."""


async def answer_work(
    settings: Settings,
    database: Database,
    channels: Mapping[str, Channel],
    jobs: JobsPool,
    redactor: Redactor,
    stack: contextlib.AsyncExitStack,
    signals: Signals,
) -> AnswerWork:
    """Open what it needs, to be closed by `stack`. The role of `database` is verified already."""
    pool = await app_pool(settings, database, stack, "answers", POOL_SIZE)
    store = quiet_store(pool, stack)
    access = Access(PostgresConversationLog(pool), conversation_keys(settings), settings.conversations.mapped)
    resolver, permit, planner = _resolving(settings, pool, store, channels, jobs, redactor, access, signals)
    stack.push_async_callback(planner.close)
    unlinked = unlinking_of(pool, store, continuations_of(settings, pool, server_key(settings), access))

    async def take_along(account: str, end: LinkedEnd) -> None:
        head = await store.head(f"{STREAM}{account}")
        if head is not None:
            await unlinked.unlinked(head.tenant, account, end)

    return AnswerWork(
        permit,
        (AnswerOutbox(), UnlinkOutbox()),
        (AnswersJob(resolver.drain), UnlinkJob(take_along)),
        (
            Sweep("answers", SWEEP_EVERY_S, resolver.sweep, SWEEP_LIMIT_S),
            Sweep("pushes", PUSHES_EVERY_S, PostgresPushes(pool).expire),
        ),
    )


def _resolving(
    settings: Settings,
    pool: Pool,
    store: PostgresStore,
    channels: Mapping[str, Channel],
    jobs: JobsPool,
    redactor: Redactor,
    access: Access,
    signals: Signals,
) -> tuple[Resolver, AnswerPermit, Planner]:
    key, keyring, log = server_key(settings), conversation_keys(settings), PostgresConversationLog(pool)
    hashes, ends, terms = DeliveryHashes(key), ends_of(settings, pool), answer_terms(settings)
    planner = Planner(
        store,
        PostgresPayloads(pool),
        payload_codec(settings, redactor.value),
        PostgresLaneQueue(jobs),
        hashes,
        channels,
        terms_of(settings),
        now,
        ulid_now,
    )
    transcripts = Transcripts(
        log,
        keyring,
        access,
        ClearancePolicy(settings.clearance, settings.config_dir or settings.data_dir),
        PostgresSnapshots(pool),
        PostgresDeletions(pool),
    )
    resolver = Resolver(
        Means(
            store,
            PostgresAnswerTable(pool),
            transcripts,
            ends,
            planner,
            hashes,
            KeyedLinkHashes(key),
            terms,
            signals,
            now,
            ulid_now,
        )
    )
    permit = AnswerPermit(PermitMeans(store, transcripts, ends, hashes, terms, PostgresPushes(pool)))
    return resolver, permit, planner
