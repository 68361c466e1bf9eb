"""What takes turns in, in a serving process: where their answers go is stored with them."""

from __future__ import annotations

from ulid_transform import ulid_now

from ..commands.answers.intake import Means, TurnIntake
from ..commands.answers.ports import Continuation, Continuations
from ..commands.channels.ends import TOKEN_CHANNEL
from ..commands.conversations.handlers import Conversations
from ..commands.dispatcher import Fingerprints
from ..domain.errors import Unavailable
from ..domain.ids import long_id
from ..domain.linking.events import LinkedEnd
from ..infra.delivery_hashes import DeliveryHashes
from ..infra.link_hashes import KeyedLinkHashes
from ..infra.postgres.answer_table import PostgresAnswerTable
from ..infra.postgres.link_table import PostgresLinkTable
from ..infra.postgres.pool import Pool
from ..infra.postgres.store import PostgresStore
from ..infra.settings import Settings
from .answer_terms import answer_terms
from .bounds import now


class NoContinuations:
    """Continuations of a server that has none yet."""

    async def begin(self, *_: object, **__: object) -> Continuation:
        """See Continuations."""
        raise Unavailable("This server runs no turns in the background; send it without background.")

    async def end_all(self, *_: object, **__: object) -> int:
        """See Continuations."""
        return 0


def intake_of(
    settings: Settings,
    pool: Pool,
    store: PostgresStore,
    conversations: Conversations,
    server_key: bytes,
    continuations: Continuations | None = None,
) -> TurnIntake:
    """The way in of every turn in this process."""
    hashes, table = KeyedLinkHashes(server_key), PostgresLinkTable(pool, now)

    async def account_of(tenant: str, principal: str) -> str:
        own = long_id(hashes.own_key(tenant, TOKEN_CHANNEL, principal))
        end = LinkedEnd(TOKEN_CHANNEL, hashes.native(tenant, TOKEN_CHANNEL, principal))
        return (await table.standing(tenant, end, own)).holder or own

    return TurnIntake(
        Means(
            conversations,
            store,
            PostgresAnswerTable(pool),
            answer_terms(settings),
            DeliveryHashes(server_key),
            hashes,
            Fingerprints(server_key),
            continuations or NoContinuations(),
            account_of,
            ulid_now,
        )
    )
