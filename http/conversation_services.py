"""What the routes of conversations work with, beside what all routes do."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from ..commands.answers.continuations import KeyedContinuations
from ..commands.answers.intake import TurnIntake
from ..commands.answers.targets import Targets
from ..commands.conversations.clearances import Clearances
from ..commands.conversations.handlers import Conversations
from ..commands.conversations.inspecting import Inspections, InspectMeans
from ..commands.conversations.past import Past
from ..commands.conversations.ports import Agents, Clearance, ConversationLog
from ..commands.conversations.runner import Runner
from ..commands.dispatcher import Dispatcher
from ..domain.conversations.signing import Keyring
from ..domain.principals import Caller
from ..infra.postgres.conversation_past import PostgresPast
from ..infra.postgres.pool import Pool
from ..infra.postgres.store import PostgresStore
from ..infra.redaction.engine import Redactor
from ..infra.settings import Settings
from .answer_services import Requests, continuations_of, intake_of, targets_of
from .conversation_places import Places
from .conversation_work import conversation_work
from .delta_hub import DeltaHub
from .metrics import Metrics
from .post_pace import PostPace


class ConversationServices(msgspec.Struct, frozen=True):
    """One per process. verify: the caller of a token, as the gate found it; raises Unauthenticated."""

    handlers: Conversations
    intake: TurnIntake
    targets: Targets
    clearances: Clearances
    inspections: Inspections
    past: Past
    log: ConversationLog
    keyring: Keyring
    agents: Agents
    hub: DeltaHub
    places: Places
    verify: Callable[[str], Awaitable[Caller]]
    continuations: KeyedContinuations


@contextlib.asynccontextmanager
async def conversing(
    settings: Settings,
    pool: Pool,
    store: PostgresStore,
    dispatcher: Dispatcher,
    redactor: Redactor,
    server_key: bytes,
    metrics: Metrics,
    verify: Callable[[str], Awaitable[Caller]],
    clearance: Clearance,
    requests: Requests,
) -> AsyncGenerator[tuple[ConversationServices, Runner]]:
    """What works at conversations in this process, and what its routes need of it. Raises SettingsError."""
    conversations = settings.conversations
    admit = PostPace(conversations.posts_per_minute).admit
    async with conversation_work(
        settings, pool, store, dispatcher, redactor, server_key, admit, metrics, clearance
    ) as work:
        hub = DeltaHub(work.log, work.table, store.versions, work.deltas.subscribe)
        hub.start()
        keyring, places = work.scribe.keyring, Places(conversations)
        past = PostgresPast(pool)
        means = InspectMeans(dispatcher, work.scribe, admit, conversations.retention_of, clearance.version)
        continuations = continuations_of(settings, pool, server_key, work.conversations.access)
        services = ConversationServices(
            work.conversations,
            intake_of(settings, pool, requests, work.conversations, server_key, continuations),
            targets_of(pool, store, server_key),
            Clearances(dispatcher, work.scribe, past, clearance),
            Inspections(means, work.conversations),
            past,
            work.log,
            keyring,
            work.agents,
            hub,
            places,
            verify,
            continuations,
        )
        try:
            yield services, work.runner
        finally:
            await hub.close()
