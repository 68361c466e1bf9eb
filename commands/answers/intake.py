"""The one way in for a turn: where its answer goes is stored before it is sent (delivery.md, Routing)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ...domain.answers.events import AnswerRequested, NamedEnd
from ...domain.answers.target import ORIGINATING, ResponseTarget, checked
from ...domain.conversations.commands import SendTurn
from ...domain.conversations.decide import envelope_id
from ...domain.decisions import Decision, NewEvent
from ...domain.errors import Forbidden, KeyReused, QueueFull, Unavailable
from ...domain.principals import SERVER, Caller
from ..channels.ends import TOKEN_CHANNEL
from ..conversations.access import Seat
from ..conversations.handlers import Conversations, with_message_id
from ..deliveries.kind import NewId, rows_of
from ..deliveries.ports import Hashes
from ..dispatcher import Fingerprints
from ..linking.ports import LinkHashes
from ..mailbox import Answer
from ..ports import Append, Creation, EventStore
from .kind import ANSWER, RETENTION_DAYS, answer_id_of, load, stream_of
from .ports import AnswerTable, AnswerTerms, Continuation, Continuations, Details, OpenAnswer, Origin

RELAY = "agents-relay"
"""Group of those who may name identities that are not their own."""

AccountOf = Callable[[str, str], Awaitable[str]]
"""The isolation key of a tenant's principal, as text, who speaks with a token. Raises Unavailable."""


class Means(Struct, frozen=True):
    """What the intake works with. One per process. new_id draws a ULID."""

    conversations: Conversations
    store: EventStore
    table: AnswerTable
    terms: AnswerTerms
    hashes: Hashes
    link_hashes: LinkHashes
    fingerprints: Fingerprints
    continuations: Continuations
    account_of: AccountOf
    new_id: NewId


class TurnIntake:
    """Intake of ports.py. What stands against a turn is found in the order of http.md: whose conversation it is, a
    replay, the caller's pace; only then is anything stored of its answer."""

    def __init__(self, means: Means) -> None:
        self._means = means

    async def send_by_token(self, caller: Caller, conversation_id: str, command: SendTurn, key: str | None) -> Answer:
        """As `send`, from the HTTP API. A turn that says nothing of its answer costs nothing beside itself.

        Who acts for somebody routes to ends of their own, never to that person's.
        """
        means = self._means
        if command.response_target is UNSET and not command.background:
            return await means.conversations.send(caller, conversation_id, command, key)
        await means.conversations.access.seat(caller, conversation_id)
        speaker = caller.principal if caller.delegate is None else caller.delegate
        account = await means.account_of(caller.tenant, str(speaker))
        origin = Origin(caller.tenant, account, means.new_id())
        return await self._send(caller, conversation_id, command, key, origin)

    async def send(
        self, caller: Caller, conversation_id: str, command: SendTurn, key: str | None, origin: Origin
    ) -> Answer:
        """See Intake. Raises Forbidden, too, for identities without the group of those who relay."""
        await self._means.conversations.access.seat(caller, conversation_id)
        return await self._send(caller, conversation_id, command, key, origin)

    async def _send(
        self, caller: Caller, conversation_id: str, command: SendTurn, key: str | None, origin: Origin
    ) -> Answer:
        means = self._means
        target, background = self._asked(caller, command, origin)
        if target is None and not background:
            return await means.conversations.send(caller, conversation_id, command, key)
        command = with_message_id(command, key)
        if command.message_id is UNSET:
            command = replace(command, message_id=means.new_id())
        begun: list[Continuation] = []

        async def begin(seat: Seat) -> None:
            envelope = envelope_id(seat.who, str(command.message_id))
            if target is not None:
                await self._open(conversation_id, seat, envelope, target, background, origin)
            if background:
                begun.append(await means.continuations.begin(caller, conversation_id, envelope, origin))

        try:
            answer = await means.conversations.send(caller, conversation_id, command, None, begin)
        except QueueFull:
            # Whoever asks again under another messageId would else run out of handles for turns that never were.
            if begun:
                await means.continuations.withdraw(caller, begun[0])
            raise
        again = None
        if background and not begun:  # it was sent before
            again = await means.continuations.again(caller, conversation_id, answer.body["id"])
        return _with(answer, begun if again is None else [again])

    def _asked(self, caller: Caller, command: SendTurn, origin: Origin) -> tuple[ResponseTarget | None, bool]:
        """Where the answer is to go, None where that is the conversation alone; and whether it is a background turn.

        Raises as checked, and Forbidden.
        """
        terms, tenant = self._means.terms, origin.tenant
        facts = None if origin.end is UNSET else terms.known(tenant, origin.end.channel)
        background = command.background or (facts is not None and facts.is_background)
        target = ORIGINATING if facts is None else facts.target
        if command.response_target is not UNSET:
            target = checked(command.response_target, lambda name: terms.known(tenant, name) is not None, terms.fan_out)
            if target.kind == "identities" and RELAY not in caller.groups:
                raise Forbidden(f"Only the group {RELAY} sends answers to identities.")
        is_here = target.kind == "none" or (target.kind == "originating" and origin.end is UNSET)
        return (None if is_here else target), background

    async def _open(
        self,
        conversation_id: str,
        seat: Seat,
        envelope: str,
        target: ResponseTarget,
        background: bool,
        origin: Origin,
    ) -> None:
        """Store the request and its row. Each waits for the disk, so both at once; whichever a crash leaves out comes
        with the message's retry, and neither has any effect without its turn.

        Raises KeyReused where the same message came before with another target, Unavailable.
        """
        means = self._means
        answer_id = answer_id_of(means.hashes, origin.tenant, conversation_id, envelope)
        requested = self._requested(answer_id, conversation_id, envelope, target, background, origin)
        row = OpenAnswer(answer_id, origin.tenant, seat.stream_id, envelope, Details(origin.address))
        decided = rows_of(Decision((NewEvent(requested, SERVER, origin="broker"),)), means.new_id)
        creation = Creation(ANSWER, origin.tenant, RETENTION_DAYS)
        fingerprint = means.fingerprints.of(replace(requested, correlation_id=""))
        kept, (outcome,) = await asyncio.gather(
            means.table.open(row, fingerprint),
            means.store.append([Append(stream_of(answer_id), 0, decided.rows, create=creation)]),
        )
        if outcome.kind != "appended":
            found, _ = await load(means.store, answer_id)
            if found.requested is None:
                raise Unavailable("The turn was not sent; try again.")
            if means.fingerprints.of(replace(found.requested, correlation_id="")) != fingerprint:
                raise KeyReused("This messageId was used before with another responseTarget; use a new one.")
        if kept != fingerprint:
            raise KeyReused("This messageId was used before with another responseTarget; use a new one.")

    def _requested(
        self,
        answer_id: str,
        conversation_id: str,
        envelope: str,
        target: ResponseTarget,
        background: bool,
        origin: Origin,
    ) -> AnswerRequested:
        means, tenant, end, address = self._means, origin.tenant, origin.end, origin.address
        source = TOKEN_CHANNEL if end is UNSET else end.channel
        facts = means.terms.known(tenant, source)
        channels = (target.channel,) if target.channel is not UNSET else target.channels or ()
        return AnswerRequested(
            answer_id,
            tenant,
            conversation_id,
            envelope,
            origin.correlation_id,
            origin.account,
            target.kind,
            source,
            UNSET if facts is None else facts.tier,
            UNSET if end is UNSET else end.native,
            UNSET if address is UNSET else means.hashes.destination(tenant, address.channel, address),
            address is not UNSET and address.place is not UNSET and address.place.is_group,
            channels,
            tuple(
                NamedEnd(each.channel, means.link_hashes.native(tenant, each.channel, each.native_id))
                for each in target.identities or ()
            ),
            target.echo_input,
            background,
        )


def _with(answer: Answer, begun: list[Continuation]) -> Answer:
    if not begun:
        return answer
    fields: dict[str, Any] = {**answer.body, "continuation": begun[0].fields()}
    return Answer(answer.status, fields, answer.is_replay, answer.seq)
