"""The commands of a conversation by people: one point read says whether it is theirs, before everything else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ...domain.conversations.commands import (
    AddParticipant,
    CancelTurn,
    CloseConversation,
    Command,
    InterruptTurn,
    RemoveParticipant,
    SeenTurn,
    SendTurn,
    StartConversation,
)
from ...domain.conversations.decide import (
    NOT_MAPPED,
    Received,
    cancel_turn,
    close_conversation,
    interrupt_turn,
    send_turn,
    start,
)
from ...domain.conversations.identity import Identity, identity_of
from ...domain.conversations.participants import (
    OWNER_MANAGES,
    add_participant,
    participants_of,
    remove_participant,
)
from ...domain.conversations.state import MAX_WAITING_TURNS, Conversation
from ...domain.decisions import Decision
from ...domain.errors import Forbidden, Invalid, NotVisible, RateLimited, Unavailable
from ...domain.ids import long_id
from ...domain.principals import Caller, Principal
from ..beside import Admit
from ..dispatcher import Dispatcher
from ..mailbox import Answer, Decided
from ..ports import Creation, Head, Key
from .access import Access, Mapped, Seat
from .encoding import Scribe
from .kind import CONVERSATION, conversation_kind, stream_of
from .ports import Agents, ConversationLog, SeenBy, Tokens

Decide = Callable[[Conversation, Any, Received], Decision]

Before = Callable[[Seat], Awaitable[None]]


class Means(Struct, frozen=True):
    """What handlers and runner work with. One per process.

    new_id draws a ULID. entropy: 130 random bits. name_bits: as many of a keyed digest, the same for the same text.
    now: the server's clock. retention_days: by tenant, counted from the close. admit: the limit on a caller's commands.
    poke: tells the runner of this process that a conversation has work. waiting_turns: so many may wait in one. mapped:
    as whom delegates take part in shared conversations.
    """

    dispatcher: Dispatcher
    scribe: Scribe
    log: ConversationLog
    tokens: Tokens
    seen_by: SeenBy
    agents: Agents
    new_id: Callable[[], str]
    entropy: Callable[[], int]
    name_bits: Callable[[str], int]
    now: Callable[[], datetime]
    retention_days: Callable[[str], int]
    admit: Admit
    poke: Callable[[str], None]
    waiting_turns: int = MAX_WAITING_TURNS
    mapped: Mapped = lambda _: None


class Looked(Struct, frozen=True):
    """A conversation that the caller takes part in, as it is now. version, chain: of its stream. who: as whom they do;
    in a shared conversation that may be another identity than their token's own."""

    stream_id: int
    conversation: Conversation
    version: int
    chain: str
    who: Identity


class Conversations:
    """Handlers of every command. What the caller has no part in raises NotVisible, before a replay, a limit or a wait.

    The order (http.md): authorize, replay, the pace of the caller, what is full, the command itself.
    """

    def __init__(self, means: Means) -> None:
        self._means = means
        self.access = Access(means.log, means.scribe.keyring, means.mapped)

    async def start(self, caller: Caller, command: StartConversation, key: str | None) -> Answer:
        """201 `{"id", "seq", "chain"}`; the same handle again: 200 with the same conversation.

        Raises Forbidden for who may start none, or none that is shared; Invalid for an agent that there is not,
        RateLimited, KeyReused.
        """
        if not caller.is_member:
            raise Forbidden("Only people of the members' group start conversations.")
        who = self.access.acting(caller, command.mode)
        if who is None:
            raise Forbidden(NOT_MAPPED)
        means, received = self._means, self._received(caller, who)
        conversation_id = self._id_of(identity_of(caller), command)
        idempotency = self._key(caller, who, "start_conversation", "", key, command, 201, {"id": conversation_id})
        first = await means.dispatcher.replayed(idempotency)
        if first is not None:
            return first
        means.admit(caller)()
        found = None if command.id is UNSET else await self._again(caller, conversation_id)
        if found is not None:
            return found
        stream = stream_of(conversation_id)
        self._refuse_secret("$.id", command.id)
        unshared = frozenset(name for name, agent in means.agents.items() if not agent.shares)
        decided = means.scribe.encode(stream, 0, start(conversation_id, command, received, means.agents, unshared))
        creation = Creation(CONVERSATION, caller.tenant, means.retention_days(caller.tenant))
        try:
            return await means.dispatcher.create(stream, creation, decided, key=idempotency, status=201)
        except Unavailable:
            # Somebody with the same handle may have been quicker.
            found = None if command.id is UNSET else await self._again(caller, conversation_id)
            if found is None:
                raise
            return found

    async def send(
        self,
        caller: Caller,
        conversation_id: str,
        command: SendTurn,
        key: str | None,
        before: Before | None = None,
    ) -> Answer:
        """202 `{"seq", "id", "chain"}`; what comes of it is a record with that id.

        A messageId is the command's key, and the other way round. before: done when nothing but the conversation itself
        stands against the turn, and never for a replay; it raises what it likes. Raises NotVisible, Sealed, QueueFull,
        RateLimited (also where the asker's tokens of the day are used up), KeyReused, Invalid.
        """
        seat = await self.access.seat(caller, conversation_id)
        command = with_message_id(command, key)
        key = None if command.message_id is UNSET else command.message_id
        self._refuse_secret("$.messageId", command.message_id)
        for place, label in enumerate(command.classes or ()):
            self._refuse_secret(f"$.classes[{place}]", label)

        async def check() -> None:
            await self._check_tokens(seat)
            if before is not None:
                await before(seat)

        return await self._receive(
            caller, conversation_id, seat, send_turn, key, command, status=202, also_checked=check
        )

    async def interrupt(self, caller: Caller, conversation_id: str, command: InterruptTurn, key: str | None) -> Answer:
        """202 `{"seq", "chain"}`; nothing happens where no turn of the caller's runs or is about to."""
        seat = await self.access.seat(caller, conversation_id)
        return await self._receive(caller, conversation_id, seat, interrupt_turn, key, command, status=202)

    async def cancel(self, caller: Caller, conversation_id: str, command: CancelTurn, key: str | None) -> Answer:
        """202 `{"seq", "chain"}`; stops the turn of one message of the caller's own, whether it runs or waits.

        Raises NotVisible, AlreadyEnded, RateLimited.
        """
        seat = await self.access.seat(caller, conversation_id)
        return await self._receive(caller, conversation_id, seat, cancel_turn, key, command, status=202)

    async def close(self, caller: Caller, conversation_id: str, key: str | None) -> Answer:
        """200 `{"seq", "chain"}`; the running turn is interrupted, what waits is rejected, later commands get 410.

        Raises NotVisible for everybody but the owner.
        """
        seat = await self.access.seat(caller, conversation_id)
        if not seat.is_owner:
            raise NotVisible
        command = CloseConversation()
        return await self._receive(caller, conversation_id, seat, close_conversation, key, command, status=200)

    async def participants(self, caller: Caller, conversation_id: str) -> list[str]:
        """The principals that take part, the owner first. Raises NotVisible."""
        return participants_of((await self.look(caller, conversation_id)).conversation)

    async def add_participant(
        self, caller: Caller, conversation_id: str, command: AddParticipant, key: str | None
    ) -> Answer:
        """200 `{"seq", "chain"}`. Raises NotVisible, Forbidden for a participant, Invalid, Conflict, Full, Sealed."""
        return await self._manage(caller, conversation_id, add_participant, key, command)

    async def remove_participant(
        self, caller: Caller, conversation_id: str, command: RemoveParticipant, key: str | None
    ) -> Answer:
        """200 `{"seq", "chain"}`; their turn stops, and their streams end. Raises as add_participant."""
        return await self._manage(caller, conversation_id, remove_participant, key, command)

    async def seen(self, caller: Caller, conversation_id: str, turn: int, command: SeenTurn) -> None:
        """So much of the reply to the caller's own turn was received: kept while it runs, nothing once it is recorded.

        Raises NotVisible, also for a turn that there is not; RateLimited.
        """
        looked = await self.look(caller, conversation_id)
        if not 1 <= turn <= looked.conversation.turns:
            raise NotVisible
        self._means.admit(caller)()
        running = looked.conversation.running
        if running is not None and running.turn == turn and running.asker == looked.who:
            await self._means.seen_by.note(looked.stream_id, turn, command.offset)

    async def look(self, caller: Caller, conversation_id: str) -> Looked:
        """The conversation as it is now, for who takes part in it. Raises NotVisible."""
        seat = await self.access.seat(caller, conversation_id)
        found: list[tuple[Conversation, Head]] = []

        def decide(state: Conversation, head: Head) -> Decided:
            found.append((state, head))
            return Decided((), (), False, {})

        kind = conversation_kind(self._means.scribe.keyring, conversation_id)
        await self._means.dispatcher.run(kind, stream_of(conversation_id), _who_speak(seat.who), decide)
        state, head = found[-1]
        return Looked(seat.stream_id, state, head.version, head.chain, seat.who)

    async def _manage(
        self, caller: Caller, conversation_id: str, decision: Decide, key: str | None, command: Command
    ) -> Answer:
        """A change of the participants, by the owner alone."""
        seat = await self.access.seat(caller, conversation_id)
        if not seat.is_owner:
            raise Forbidden(OWNER_MANAGES)
        return await self._receive(caller, conversation_id, seat, decision, key, command, status=200)

    async def _receive(
        self,
        caller: Caller,
        conversation_id: str,
        seat: Seat,
        decision: Decide,
        key: str | None,
        command: Command,
        *,
        status: int,
        also_checked: Callable[[], Awaitable[None]] | None = None,
    ) -> Answer:
        """Replay, the caller's pace, then the decision; the runner is told. also_checked: raises as the pace does."""
        means, stream, received = self._means, stream_of(conversation_id), self._received(caller, seat.who)
        idempotency = self._key(caller, seat.who, decision.__name__, stream, key, command, status, {})
        first = await means.dispatcher.replayed(idempotency)
        if first is not None:
            return first
        means.admit(caller)()
        if also_checked is not None:
            await also_checked()

        def decide(state: Conversation, head: Head) -> Decided:
            return means.scribe.encode(stream, head.version, decision(state, command, received))

        kind = conversation_kind(means.scribe.keyring, conversation_id)
        answer = await means.dispatcher.run(kind, stream, _who_speak(seat.who), decide, key=idempotency, status=status)
        means.poke(conversation_id)
        return answer

    async def _check_tokens(self, seat: Seat) -> None:
        """Raises RateLimited where the day's tokens are used up: no turn of the asker's could reserve any."""
        agent = self._means.agents.get(seat.agent)
        if agent is None or not agent.tokens_per_day:
            return
        if await self._means.tokens.left(seat.who, agent.name, agent.tokens_per_day) <= 0:
            now = self._means.now().astimezone(UTC)
            midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
            wait_ms = int((midnight - now).total_seconds() * 1000) + 1
            raise RateLimited("Your tokens of today for this agent are used up.", retryAfterMs=wait_ms)

    async def _again(self, caller: Caller, conversation_id: str) -> Answer | None:
        """The answer to a handle that has its conversation; None where it has none."""
        try:
            looked = await self.look(caller, conversation_id)
        except NotVisible:
            return None
        fields = {"seq": looked.version, "id": conversation_id, "chain": looked.chain}
        return Answer(200, fields, False, looked.version)

    def _id_of(self, own: Identity, command: StartConversation) -> str:
        """A new id, or that of a handle, which is the token's own: whom it acts as has other ones."""
        if command.id is UNSET:
            return long_id(self._means.entropy())
        return long_id(self._means.name_bits(f"{own.tenant}\n{_written(own)}\n\n{command.id}"))

    def _received(self, caller: Caller, who: Identity) -> Received:
        return Received(
            who,
            Principal.own(who.actor),
            self._means.now(),
            caller.claims,
            self._means.new_id(),
            self._means.waiting_turns,
        )

    def _key(
        self,
        caller: Caller,
        who: Identity,
        operation: str,
        scope: str,
        key: str | None,
        command: Command,
        status: int,
        answer: dict[str, Any],
    ) -> Key | None:
        """As Dispatcher.key, for the whole identity that asks."""
        made = self._means.dispatcher.key(caller, operation, scope, key, command, status, answer)
        return made and replace(made, caller=_written(who))

    def _refuse_secret(self, path: str, value: Any) -> None:
        """Raises Invalid where a value that must be exact holds a secret: what is left of it would be another value."""
        if isinstance(value, str) and self._means.scribe.redact(value)[1]:
            raise Invalid.at(path, "holds a secret; leave the secret out")


def _who_speak(identity: Identity) -> Callable[[Conversation, Head], None]:
    """Looked at on the state that is decided on: who was taken out a moment ago appends nothing."""

    def authorize(state: Conversation, head: Head) -> None:
        if not state.may_speak(identity) or head.tenant != identity.tenant:
            raise NotVisible

    return authorize


def with_message_id(command: SendTurn, key: str | None) -> SendTurn:
    """The command with its message id, which an Idempotency-Key stands for. Raises Invalid where they differ."""
    if key is None or command.message_id == key:
        return command
    if command.message_id is not UNSET:
        raise Invalid.at("$.messageId", "must be the same as Idempotency-Key")
    return replace(command, message_id=key)


def _written(identity: Identity) -> str:
    """An identity within its tenant as one text; two of them never have the same, since no name has a line break."""
    return identity.actor if identity.on_behalf_of is UNSET else f"{identity.actor}\n{identity.on_behalf_of}"
