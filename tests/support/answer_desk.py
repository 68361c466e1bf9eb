"""Turns with targets on a test's own database: the way in, a resolver, the permit, and deliveries behind them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import conversation_desk
import delivery_desk
from conversation_desk import ALICE, Policy
from conversation_scenes import RING
from minutebook.commands.answers.continuations import KeyedContinuations
from minutebook.commands.answers.intake import Means as IntakeMeans
from minutebook.commands.answers.intake import TurnIntake
from minutebook.commands.answers.permitting import AnswerPermit
from minutebook.commands.answers.permitting import Means as PermitMeans
from minutebook.commands.answers.ports import AnswerTerms, Origin
from minutebook.commands.answers.records import Transcripts
from minutebook.commands.answers.resolving import Means, Resolver
from minutebook.commands.answers.targets import Shown, Targets
from minutebook.commands.answers.unlinking import Unlinked
from minutebook.commands.channels.ends import TOKEN_CHANNEL
from minutebook.commands.deliveries.kind import folded
from minutebook.commands.deliveries.noting import Notes
from minutebook.commands.dispatcher import Fingerprints
from minutebook.commands.mailbox import Answer
from minutebook.commands.signals import SILENCE
from minutebook.domain.answers.resolve import ChannelFacts
from minutebook.domain.answers.target import ResponseTarget
from minutebook.domain.channels.link_policy import LinkPolicy
from minutebook.domain.channels.messages import Address, Place
from minutebook.domain.conversations.commands import SendTurn
from minutebook.domain.deliveries.events import DeliveryPlanned
from minutebook.domain.ids import long_id
from minutebook.domain.linking.events import LinkedEnd
from minutebook.infra.channels.webhook import WebhookChannel
from minutebook.infra.continuation_hashes import ContinuationHashes
from minutebook.infra.link_hashes import KeyedLinkHashes
from minutebook.infra.postgres.answer_table import PostgresAnswerTable, PostgresPushes, PostgresRecipients
from minutebook.infra.postgres.continuation_rows import PostgresContinuationRows
from minutebook.infra.postgres.ends import PostgresEnds
from minutebook.infra.postgres.inbound_deletions import PostgresDeletions
from minutebook.infra.postgres.sign_ins import PostgresSnapshots
from ulid_transform import ulid_now

KEY = b"k" * 32
TENANT = "acme"
CHATS = ("chat", "mail")
"""Channels where people are."""

HOOKS = ("h1", "h2", "h3")
"""Channels with a destination of their own."""


class AnswerDesk:
    """Both roles of a server in one: conversations with their runner, and what the process of jobs does of answers."""

    def __init__(self, talks: conversation_desk.Desk, sends: delivery_desk.Desk, policy: LinkPolicy, cap: int) -> None:
        self.talks, self.sends = talks, sends
        self.hashes, self.link_hashes = sends.hashes, KeyedLinkHashes(KEY)
        facts = {name: ChannelFacts(TENANT, True) for name in CHATS}
        facts |= {name: ChannelFacts(TENANT, True, is_own=True) for name in HOOKS}
        self.terms = AnswerTerms(facts, policy, pushes_per_hour=cap)
        self.ends = PostgresEnds(talks.pool)
        self.table = PostgresAnswerTable(talks.pool)
        self.recipients = PostgresRecipients(talks.pool)
        self.transcripts = Transcripts(
            talks.log,
            RING,
            talks.conversations.access,
            Policy({}),
            PostgresSnapshots(talks.pool),
            PostgresDeletions(talks.pool),
        )
        self.continuations = KeyedContinuations(
            PostgresContinuationRows(talks.pool),
            ContinuationHashes(KEY),
            talks.conversations.access,
            3600,
            lambda: secrets.randbits(130),
        )
        self.intake = TurnIntake(
            IntakeMeans(
                talks.conversations,
                talks.store,
                self.table,
                self.terms,
                self.hashes,
                self.link_hashes,
                Fingerprints(KEY),
                self.continuations,
                self._account,
                ulid_now,
            )
        )
        self.permit = AnswerPermit(
            PermitMeans(talks.store, self.transcripts, self.ends, self.hashes, self.terms, PostgresPushes(talks.pool))
        )
        self.unlinking = Unlinked(
            self.recipients, Notes(talks.store, lambda: datetime.now(UTC), ulid_now), self.continuations
        )

    def resolver(self, point: Callable[[str], Awaitable[None]] | None = None) -> Resolver:
        """One more worker."""
        return Resolver(
            Means(
                self.talks.store,
                self.table,
                self.transcripts,
                self.ends,
                self.sends.planner,
                self.hashes,
                self.link_hashes,
                self.terms,
                SILENCE,
                lambda: datetime.now(UTC),
                ulid_now,
                point,
            )
        )

    @property
    def account(self) -> str:
        """Alice's."""
        return long_id(self.link_hashes.own_key(TENANT, TOKEN_CHANNEL, str(ALICE.principal)))

    async def _account(self, tenant: str, principal: str) -> str:
        return long_id(self.link_hashes.own_key(tenant, TOKEN_CHANNEL, principal))

    def end(self, channel: str, native_id: str) -> LinkedEnd:
        """As events have it."""
        return LinkedEnd(channel, self.link_hashes.native(TENANT, channel, native_id))

    async def speak(self, channel: str, native_id: str, account: str | None = None) -> None:
        """An end of alice's, or of another account, says something in private."""
        address = Address(channel, native_id, Place(f"chat of {native_id}"))
        await self.ends.note(TENANT, self.end(channel, native_id), account or self.account, address, native_id)

    async def say(self, text: str, target: ResponseTarget, talk: str | None = None, **fields: Any) -> tuple[str, str]:
        """A turn of alice's that has ended: its conversation and its envelope's id."""
        talk = talk or await self.talks.start()
        answer = await self.send(talk, text, target, **fields)
        await self.talks.runner.sweep()
        await self.talks.done()
        return talk, answer.body["id"]

    async def send(self, talk: str, text: str, target: ResponseTarget, **fields: Any) -> Answer:
        """A turn of alice's."""
        command = SendTurn(text, response_target=target, **fields)
        return await self.intake.send_by_token(ALICE, talk, command, None)

    async def said_on(self, channel: str, native_id: str, text: str, **fields: Any) -> tuple[str, str]:
        """A turn that alice asked on a channel. fields: as of `origin`."""
        talk = await self.talks.start()
        origin = self.origin(channel, native_id, **fields)
        answer = await self.intake.send(ALICE, talk, SendTurn(text), None, origin)
        await self.talks.runner.sweep()
        await self.talks.done()
        return talk, answer.body["id"]

    def origin(self, channel: str, native_id: str, *, account: str | None = None, is_group: bool = False) -> Origin:
        """Of what alice, or another account, asks on a channel."""
        address = Address(channel, native_id, Place(f"chat of {native_id}", is_group=is_group))
        return Origin(TENANT, account or self.account, ulid_now(), self.end(channel, native_id), address)

    async def shown(self, about: tuple[str, str]) -> Shown:
        """Where it goes."""
        return await Targets(self.talks.store, self.recipients, self.hashes).of(TENANT, *about)

    async def plans(self) -> list[DeliveryPlanned]:
        """The first event of every delivery."""
        async with self.talks.pool.connection() as connection:
            cursor = await connection.execute("SELECT stream_id FROM minutebook.deliveries ORDER BY place")
            ids = [row[0] for row in await cursor.fetchall()]
        streams = await self.sends.rows.events_of(ids)
        found = [folded(streams[each]).plan for each in ids]
        return [each for each in found if each is not None]


@contextlib.asynccontextmanager
async def answer_desk(
    database: Any, url: str = "http://127.0.0.1:9", *, policy: LinkPolicy | None = None, cap: int = 60
) -> AsyncGenerator[AnswerDesk]:
    """A desk on a database; its channels lead to one receiver."""
    channels: Mapping[str, WebhookChannel] = {
        name: delivery_desk.webhook(name, f"{url}/{name}") for name in (*CHATS, *HOOKS)
    }
    async with (
        conversation_desk.desk(database.url()) as talks,
        delivery_desk.desk_of(database.url(), channels) as sends,
    ):
        made = AnswerDesk(talks, sends, policy or LinkPolicy("allow_all"), cap)
        sends.permit_by(made.permit)
        yield made
