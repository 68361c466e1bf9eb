"""What takes turns in, in a serving process: where their answers go is stored with them, and handles of those in the
background."""

from __future__ import annotations

import contextlib
import secrets
from typing import NamedTuple

from ulid_transform import ulid_now

from ..commands.answers.continuations import KeyedContinuations
from ..commands.answers.intake import Means, TurnIntake
from ..commands.answers.ports import Continuations, Unlinking
from ..commands.answers.targets import Targets
from ..commands.answers.unlinking import Unlinked
from ..commands.channels.ends import TOKEN_CHANNEL
from ..commands.conversations.access import Access
from ..commands.conversations.handlers import Conversations
from ..commands.deliveries.noting import Notes
from ..commands.dispatcher import Fingerprints
from ..commands.linking.standing import Standings
from ..infra.continuation_hashes import ContinuationHashes
from ..infra.database import Database
from ..infra.delivery_hashes import DeliveryHashes
from ..infra.link_hashes import KeyedLinkHashes
from ..infra.postgres.answer_table import PostgresAnswerTable, PostgresRecipients
from ..infra.postgres.continuation_rows import PostgresContinuationRows
from ..infra.postgres.link_table import PostgresLinkTable
from ..infra.postgres.pool import Pool
from ..infra.postgres.store import PostgresStore
from ..infra.settings import Settings
from .answer_terms import answer_terms
from .app_pools import app_pool, quiet_store
from .bounds import now

POOL_SIZE = 2
"""Connections that store where answers go: one appends, one writes rows."""


class Requests(NamedTuple):
    """Where it is stored where the answer of a turn is to go, just before the turn itself is."""

    pool: Pool
    store: PostgresStore


async def requests_of(settings: Settings, database: Database, stack: contextlib.AsyncExitStack) -> Requests:
    """Of this process, closed by `stack`. No write of them waits for the disk: a request has no effect without its
    turn, which is written behind it and does wait."""
    minimum = 1 if settings.channels else 0
    pool = await app_pool(settings, database, stack, "answers", POOL_SIZE, minimum, waits_for_disk=False)
    return Requests(pool, quiet_store(pool, stack, writers=1))


def continuations_of(settings: Settings, pool: Pool, server_key: bytes, access: Access) -> KeyedContinuations:
    """The handles of background turns in this process."""
    rows, tokens = PostgresContinuationRows(pool), ContinuationHashes(server_key)
    ttl_s = settings.delivery.continuation_ttl_s
    return KeyedContinuations(rows, tokens, access, ttl_s, lambda: secrets.randbits(130))


def targets_of(pool: Pool, store: PostgresStore, server_key: bytes) -> Targets:
    """What shows where answers go."""
    return Targets(store, PostgresRecipients(pool), DeliveryHashes(server_key))


def unlinking_of(pool: Pool, store: PostgresStore, continuations: Continuations) -> Unlinking:
    """What an end that is unlinked takes along."""
    return Unlinked(PostgresRecipients(pool), Notes(store, now, ulid_now), continuations)


def intake_of(
    settings: Settings,
    pool: Pool,
    requests: Requests,
    conversations: Conversations,
    server_key: bytes,
    continuations: Continuations,
) -> TurnIntake:
    """The way in of every turn in this process."""
    hashes = KeyedLinkHashes(server_key)
    standings = Standings(PostgresLinkTable(pool, now), hashes)

    async def account_of(tenant: str, principal: str) -> str:
        return (await standings.end_of(tenant, TOKEN_CHANNEL, principal, is_person=True)).account

    return TurnIntake(
        Means(
            conversations,
            requests.store,
            PostgresAnswerTable(requests.pool),
            answer_terms(settings),
            DeliveryHashes(server_key),
            hashes,
            Fingerprints(server_key),
            continuations,
            account_of,
            ulid_now,
        )
    )
