"""What comes in over channels: proven first, decided once, done once, and only then acknowledged (law 29)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ...domain.answers.target import ResponseTarget
from ...domain.channels.authorize import is_addressed
from ...domain.channels.inbound import InboundDecided, InboundOutcome, decided
from ...domain.channels.messages import Inbound
from ...domain.errors import Invalid, NotVisible, Unavailable
from ...domain.ids import is_conversation_id, long_id
from ...domain.linking.codes import codes_in
from ...domain.principals import SERVER
from ..conversations.handlers import Conversations
from ..deliveries.kind import NewId, rows_of
from ..deliveries.noting import Notes
from ..linking.handling import Linking
from ..ports import Append, Creation, EventStore
from ..signals import Signals
from .deleting import PLATFORM, Deleting
from .doing import Doing
from .inbound_ports import (
    STREAM,
    ChannelRules,
    Finished,
    InboundHashes,
    InboundRows,
    Known,
    Pace,
    Seen,
    Wishes,
)
from .judging import Judge, Judged
from .ports import Channel, Echoed, NotAuthentic, Proof, RawRequest, Receipt
from .sessions import Sessions
from .speaking import Speaking
from .verbs import MUTING

INBOUND = "inbound"

RETENTION_DAYS = 30
"""Of a message's stream, and so of its id: for as long it is known again."""

RECEIPTS_AT_ONCE = 50
"""Receipts of one call that are noted at the same time."""

Kind = Literal["inbound", "receipts"]


class Taken(Struct, frozen=True):
    """What became of a request. id, outcome: of a message. echo: to be answered as it is, and nothing else happens.
    applied: receipts that said something new."""

    id: str = ""
    outcome: InboundOutcome = "ignored"
    is_duplicate: bool = False
    continuation: Mapping[str, Any] | UnsetType = UNSET
    echo: Mapping[str, Any] | UnsetType = UNSET
    applied: int = 0


class InboundMeans(Struct, frozen=True):
    """What is worked with. One per process. channels: by name; rules: of those that receive. decoy: a channel that
    nothing is authentic for, which is asked where there is none, so that both cost the same. point: awaited at named
    places between the steps, where tests end the process. days: as RETENTION_DAYS."""

    channels: Mapping[str, Channel]
    rules: Mapping[str, ChannelRules]
    decoy: Channel
    store: EventStore
    rows: InboundRows
    hashes: InboundHashes
    linking: Linking
    judge: Judge
    sessions: Sessions
    conversations: Conversations
    doing: Doing
    deleting: Deleting
    notes: Notes
    pace: Pace
    signals: Signals
    now: Callable[[], datetime]
    new_id: NewId
    point: Callable[[str], Awaitable[None]] | None = None
    days: int = RETENTION_DAYS

    async def passed(self, name: str) -> None:
        """A named place between two steps."""
        if self.point is not None:
            await self.point(name)


class Receiving:
    """One per process. Every method raises NotAuthentic, Invalid, RateLimited and Unavailable."""

    def __init__(self, means: InboundMeans) -> None:
        self._means = means

    async def receive(self, name: str, kind: Kind, request: RawRequest) -> Taken:
        """Take one request. kind: what may be in it; mail is handed over at one place, reports and messages alike."""
        channel, proof = self._proven(name, request)
        said, signature = channel.parse(request), self._signature(channel, proof)
        self._means.pace.of_channel(name)
        if said is None or isinstance(said, Echoed):
            if signature is not None:
                await self._finish(channel, None, signature)
            return Taken() if said is None else Taken(echo=said.answer)
        if isinstance(said, Inbound):
            if kind == "receipts":
                raise Invalid.at("$", "is a message; send it to /inbound")
            return await self._message(channel, said, signature)
        if kind == "inbound" and channel.kind == "webhook":
            raise Invalid.at("$.receipts", "send receipts to /receipts")
        return await self._receipts(channel, said, signature)

    def kind_of(self, name: str) -> str:
        """The kind of a channel; empty where there is none."""
        channel = self._means.channels.get(name)
        return "" if channel is None else channel.kind

    def _proven(self, name: str, request: RawRequest) -> tuple[Channel, Proof]:
        means = self._means
        channel = means.channels.get(name) if name in means.rules else None
        if channel is None:
            means.decoy.verify(request, means.now())
            raise NotAuthentic
        return channel, channel.verify(request, means.now())

    def _signature(self, channel: Channel, proof: Proof) -> str | None:
        if proof.signature is UNSET:
            return None
        return self._means.hashes.signature(channel.tenant, channel.name, proof.signature)

    async def _receipts(self, channel: Channel, receipts: Sequence[Receipt], signature: str | None) -> Taken:
        """Forward only, so that what is taken twice is applied once: the signature is spent behind it."""
        means = self._means
        if signature is not None and (await means.rows.look(channel.tenant, channel.name, "", signature)).is_spent:
            raise NotAuthentic
        applied = 0
        for start in range(0, len(receipts), RECEIPTS_AT_ONCE):
            applied += await means.notes.receipts(channel.name, receipts[start : start + RECEIPTS_AT_ONCE])
        await self._finish(channel, None, signature)
        return Taken(applied=applied)

    async def _message(self, channel: Channel, said: Inbound, signature: str | None) -> Taken:
        means, rules = self._means, self._means.rules[channel.name]
        message = long_id(means.hashes.message(rules.tenant, channel.name, said.message_id))
        wishes, deleters = wishes_of(said), self._deleters(rules, said) if said.deletes is UNSET else ()
        seen = await means.rows.look(rules.tenant, channel.name, message, signature, deleters)
        known = seen.known
        if seen.is_spent:
            raise NotAuthentic
        if known is not None and known.is_done:
            await self._finish(channel, message, signature)
            return await self._again(rules, said, known, wishes)
        if is_addressed(said, rules.accept):
            native = means.hashes.native(rules.tenant, channel.name, said.sender.native_id)
            means.pace.of_sender(rules.tenant, channel.name, native)
        if said.place.is_group:
            for code in codes_in(said.text):
                await means.linking.seen_in_group(rules.tenant, code, SERVER)
        if known is not None and said.verb in MUTING and await means.rows.is_overtaken(message, MUTING):
            return await self._overtaken(channel, known, signature)
        correlation_id = means.new_id() if known is None else known.correlation_id
        speaking = await means.judge.speaking(rules, said, message, correlation_id)
        if known is None:
            known = await self._decided(speaking, seen, deleters)
        await means.passed("recorded")
        continuation = await self._acted(speaking, known, wishes)
        await means.passed("acted")
        done = await self._finish(channel, message, signature, deleters)
        if done.is_deleted:
            await means.deleting.undo(rules.tenant, channel.name, known)
        await means.passed("spent")
        return Taken(known.correlation_id, _told(known), not done.is_first, continuation)

    def _deleters(self, rules: ChannelRules, said: Inbound) -> tuple[str, str]:
        """Whose deletion of a message counts: its sender's, and the platform's own word. Keyed hashes."""
        native, channel = self._means.hashes.native, said.sender.channel
        return native(rules.tenant, channel, said.sender.native_id), native(rules.tenant, channel, PLATFORM)

    async def _acted(self, speaking: Speaking, known: Known, wishes: Wishes) -> Mapping[str, Any] | UnsetType:
        """The effect of a decided message; none where it was deleted by the time that it was looked at again."""
        means, rules, said = self._means, speaking.rules, speaking.said
        if said.deletes is not UNSET:
            by, platform = self._deleters(rules, said)
            message = self._deleted(rules, said)
            await means.deleting.delete(rules.tenant, said.sender.channel, str(message), by=by, platform=platform)
            return UNSET
        return UNSET if known.is_deleted else await means.doing.do(speaking, known, wishes)

    async def _overtaken(self, channel: Channel, known: Known, signature: str | None) -> Taken:
        """A word that a crash has left undone, perhaps, does not take back what its sender has said since."""
        done = await self._finish(channel, known.id, signature)
        return Taken(known.correlation_id, _told(known), not done.is_first)

    async def _again(self, rules: ChannelRules, said: Inbound, known: Known, wishes: Wishes) -> Taken:
        """What is told of a message that has had its effect; the handle of its background run is the same one."""
        continuation: Mapping[str, Any] | UnsetType = UNSET
        if known.is_deleted:
            await self._means.deleting.undo(rules.tenant, said.sender.channel, known)
            return Taken(known.correlation_id, known.outcome, True)
        is_turn = known.conversation_id is not UNSET and (wishes.background or rules.background)
        if known.outcome == "accepted" and (is_turn or said.continuation is not UNSET):
            speaking = await self._means.judge.speaking(rules, said, known.id, known.correlation_id)
            continuation = await self._means.doing.handle_again(speaking, known, wishes)
        return Taken(known.correlation_id, known.outcome, True, continuation)

    async def _finish(
        self, channel: Channel, message: str | None, signature: str | None, deleters: Sequence[str] = ()
    ) -> Finished:
        """is_first: nobody else was quicker with the same message. Raises NotAuthentic where somebody was with the same
        signature."""
        done = await self._means.rows.finish(channel.tenant, channel.name, message, signature, deleters)
        if not done.is_unspent:
            raise NotAuthentic
        return done

    async def _decided(self, speaking: Speaking, seen: Seen, deleters: Sequence[str]) -> Known:
        """Decide, once and for all who bring the same message at the same time."""
        means, rules, said = self._means, speaking.rules, speaking.said
        judged = await self._judged(speaking, seen)
        conversation: str | UnsetType = UNSET
        if judged.outcome == "accepted" and said.verb is None and said.deletes is UNSET:
            found = await self._conversation(speaking)
            conversation, judged = (UNSET, Judged("denied", "no_conversation")) if found is None else (found, judged)
        await means.passed("judged")
        event = InboundDecided(
            speaking.message,
            rules.tenant,
            said.sender.channel,
            speaking.end.native,
            speaking.end.account,
            judged.outcome,
            judged.reason,
            speaking.correlation_id,
            said.place.is_group,
            said.verb or UNSET,
            conversation,
            judged.details or UNSET,
            self._deleted(rules, said),
        )
        rows = rows_of(decided(event), means.new_id).rows
        creation = Creation(INBOUND, rules.tenant, means.days)
        item = Append(f"{STREAM}{speaking.message}", 0, rows, create=creation, seal=True)
        (outcome,) = await means.store.append([item])
        if outcome.kind == "appended":
            said_of, correlation_id = (said.sender.channel, judged.outcome, judged.reason), speaking.correlation_id
            means.signals.tell("authz_decision", *said_of, correlation_id=correlation_id)
        known = (await means.rows.look(rules.tenant, said.sender.channel, speaking.message, None, deleters)).known
        if known is None:
            raise Unavailable("The message was not stored; send it again.")
        return known

    async def _judged(self, speaking: Speaking, seen: Seen) -> Judged:
        said, rules = speaking.said, speaking.rules
        if not is_addressed(said, rules.accept):
            return Judged("ignored", "not_addressed")
        if seen.is_deleted:
            return Judged("ignored", "deleted")
        return await self._means.judge.judge(speaking)

    def _deleted(self, rules: ChannelRules, said: Inbound) -> str | UnsetType:
        """Id of the message that a deletion is of."""
        if said.deletes is UNSET:
            return UNSET
        return long_id(self._means.hashes.message(rules.tenant, said.sender.channel, said.deletes))

    async def _conversation(self, speaking: Speaking) -> str | None:
        """Where the turn goes; None for one that a webhook names and its sender does not see, or that is closed."""
        means, said = self._means, speaking.said
        if said.conversation is UNSET:
            session = means.sessions.of(speaking.rules, said, speaking.end.account, speaking.caller)
            return await means.sessions.conversation(session, speaking.message)
        if not is_conversation_id(said.conversation):
            return None
        try:
            looked = await means.conversations.look(speaking.caller, said.conversation)
        except NotVisible:
            return None
        return None if looked.conversation.state == "closed" else said.conversation


def _told(known: Known) -> InboundOutcome:
    """What became of a message that was not done yet: one that is deleted comes to nothing."""
    return "ignored" if known.is_deleted else known.outcome


def wishes_of(said: Inbound) -> Wishes:
    """What a message asks for beside its words. Raises Invalid with the path."""
    if said.continuation is not UNSET and said.verb not in ("status", "cancel"):
        raise Invalid.at("$.continuation", "goes with the command status or cancel")
    if said.response_target is UNSET:
        return Wishes(said.background)
    try:
        target = msgspec.convert(dict(said.response_target), ResponseTarget)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$")
        raise Invalid.at(f"$.responseTarget{place.rstrip('`')}", words) from None
    return Wishes(said.background, target)
