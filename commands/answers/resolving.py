"""At a turn's end: where its answer goes is decided, recorded, and planned (delivery.md, Routing).

The order: the addresses are kept beside the log, the decision is recorded, its deliveries are planned, and then the row
goes. Once recorded it is what counts: whoever comes back after a crash plans what the record says, under the same ids,
and resolves nothing anew. Planned first, a crash before the record would leave deliveries of a decision that nobody can
tell any more, beside those of another one: the active end may have changed meanwhile. Nothing is planned without a
record, and a record without its deliveries keeps its row, which the sweep finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

import structlog
from msgspec import UNSET, Struct
from msgspec.structs import replace

from ...domain.answers.events import (
    AnswerDropped,
    AnswerRequested,
    IntendedTarget,
    TargetsResolved,
)
from ...domain.answers.resolve import Around, Reachable, Resolution, resolve
from ...domain.answers.saying import pointer, sayings
from ...domain.answers.state import AnswerState
from ...domain.channels.messages import Address
from ...domain.conversations.identity import Identity
from ...domain.decisions import Decision, NewEvent
from ...domain.errors import Invalid, MinutebookError, TooLarge, Unavailable
from ...domain.events import Event
from ...domain.linking.events import LinkedEnd
from ...domain.principals import SERVER
from ..channels.ends import Ends, KnownEnd
from ..deliveries.kind import NewId, rows_of
from ..deliveries.planning import Planner, Said, Wanted
from ..deliveries.ports import Hashes
from ..linking.ports import LinkHashes
from ..ports import Append, EventStore
from ..signals import Signals
from .kind import load, stream_of
from .ports import AnswerTable, AnswerTerms, OpenAnswer
from .records import Records, Transcripts

BATCH = 16
"""Answers at once."""

DRAIN_S = 10.0
"""After so much time no more are begun: the job comes again."""

AGAIN_S = 30.0
"""What failed is tried again after so long."""

UNTAKEN_DAYS = 2
"""After so long a message that waits for no runner was never sent. What has failed for so long since its turn's end is
given up as well: a delivery would be over after a day."""

log = structlog.get_logger(__name__)


class Means(Struct, frozen=True):
    """What resolving works with. One per process. point: awaited at named places between
    the steps, where tests end the process."""

    store: EventStore
    table: AnswerTable
    transcripts: Transcripts
    ends: Ends
    planner: Planner
    hashes: Hashes
    link_hashes: LinkHashes
    terms: AnswerTerms
    signals: Signals
    now: Callable[[], datetime]
    new_id: NewId
    point: Callable[[str], Awaitable[None]] | None = None

    async def at(self, name: str) -> None:
        """A place between two steps."""
        if self.point is not None:
            await self.point(name)


class Resolver:
    """Takes what is due. Several may at once: one of them records, and all plan the same."""

    def __init__(self, means: Means) -> None:
        self._means = means

    async def drain(self) -> bool:
        """Whether all that was due is done; what failed comes again. Raises Unavailable."""
        time = asyncio.get_running_loop().time
        until = time() + DRAIN_S
        while due := await self._means.table.due(BATCH):
            await asyncio.gather(*(self._try(each) for each in due))
            if time() >= until:
                return False
        return True

    async def sweep(self) -> None:
        """What nobody was woken for; what never became a turn, and what fails for ever, goes. Raises Unavailable."""
        await self.drain()
        before = self._means.now() - timedelta(days=UNTAKEN_DAYS)
        for each in await self._means.table.untaken(before, BATCH * BATCH):
            state, at = await load(self._means.store, each.id)
            if at == 0 or state.resolved is not None or await self._append(each.id, at, AnswerDropped()):
                await self._means.table.forget([each.id])

    async def _try(self, answer: OpenAnswer) -> None:
        try:
            await self.one(answer)
        except MinutebookError as error:
            await self._wait(answer, error.code)
        except Exception as error:  # noqa: BLE001 - a defect in one answer must not stop the others
            await self._wait(answer, type(error).__name__)

    async def _wait(self, answer: OpenAnswer, why: str) -> None:
        log.warning("an answer waits", answer=answer.id, code=why)
        await self._means.table.later(answer.id, AGAIN_S)

    async def one(self, answer: OpenAnswer) -> None:
        """Resolve, record, plan; what of that is done already is not done again. Raises Unavailable."""
        state, at = await load(self._means.store, answer.id)
        requested = state.requested
        if requested is None or state.is_dropped or answer.user_seq is None:
            await self._means.table.forget([answer.id])
            return
        records = await self._records(answer, requested, answer.user_seq)
        if state.resolved is None:
            state, addresses = await self._record(answer, requested, at, records)
        else:
            addresses = await self._means.table.addresses(answer.id)
        await self._means.at("recorded")
        if state.resolved is not None and addresses is not None:
            await self._plan(requested, state.resolved, records, addresses)
            # An erasure takes the words of deliveries that are there; what was read before and planned after goes here.
            if (await self._records(answer, requested, answer.user_seq)).is_erased:
                await self._means.planner.forget([each.delivery_id for each in state.resolved.intended])
        await self._means.at("planned")
        await self._means.table.forget([answer.id])

    async def _records(self, answer: OpenAnswer, requested: AnswerRequested, user_seq: int) -> Records:
        """What was asked and answered, as it is now. Raises Unavailable."""
        records = await self._means.transcripts.records(
            answer.stream_id, requested.conversation_id, requested.envelope_id, user_seq, answer.reply_seq
        )
        if records is None:
            raise Unavailable("The records of this turn cannot be verified.")
        return records

    async def _record(
        self, answer: OpenAnswer, requested: AnswerRequested, at: int, records: Records
    ) -> tuple[AnswerState, Mapping[str, Address] | None]:
        """The record that counts, and its addresses; None where all is done. They are read behind a record that is not
        ours: whoever was quicker has kept others, and may be gone."""
        found = _Found(self._means, requested, answer.details.origin)
        resolution = await found.resolved(records)
        kept = {each.destination: found.addresses[each.destination] for each in resolution.intended}
        if kept:
            await self._means.table.address(answer.id, kept)
        await self._means.at("addressed")
        resolved = self._resolved(answer, requested, records, resolution)
        if await self._append(answer.id, at, resolved):
            self._tell(requested, resolved)
            return AnswerState(requested, resolved), kept
        state, _ = await load(self._means.store, answer.id)
        return state, await self._means.table.addresses(answer.id)

    def _resolved(
        self, answer: OpenAnswer, requested: AnswerRequested, records: Records, resolution: Resolution
    ) -> TargetsResolved:
        return TargetsResolved(
            records.user.turn,
            tuple(
                IntendedTarget(
                    self._means.planner.id_of(requested.tenant, _once(requested.answer_id, each.destination)),
                    each.channel,
                    each.destination,
                    each.form,
                    each.recipient,
                    each.is_pushed,
                    UNSET if each.account == requested.account else each.account,
                    each.label,
                )
                for each in resolution.intended
            ),
            resolution.skipped,
            UNSET if answer.user_seq is None else answer.user_seq,
            UNSET if answer.reply_seq is None else answer.reply_seq,
        )

    async def _plan(
        self,
        requested: AnswerRequested,
        resolved: TargetsResolved,
        records: Records,
        addresses: Mapping[str, Address],
    ) -> None:
        """Raises Unavailable. A destination whose address is gone, or that cannot be sent to any more, gets nothing."""
        wanted = [
            self._wanted(requested, each, records, addresses[each.destination])
            for each in resolved.intended
            if each.destination in addresses
        ]
        try:
            await self._means.planner.plan(wanted)
        except (Invalid, TooLarge):
            await self._plan_apart(requested, wanted)

    async def _plan_apart(self, requested: AnswerRequested, wanted: list[Wanted]) -> None:
        """One of them cannot be planned as it is: what is too long for it becomes a pointer."""
        said = pointer(requested.conversation_id, is_group=requested.is_group)
        for each in wanted:
            try:
                await self._means.planner.plan([each])
            except (Invalid, TooLarge):
                short = replace(each, parts=(Said(said.kind, said.text),))
                try:
                    await self._means.planner.plan([short])
                except (Invalid, TooLarge) as error:
                    log.warning("an answer cannot be sent", answer=requested.answer_id, code=error.code)

    def _wanted(self, requested: AnswerRequested, target: IntendedTarget, records: Records, address: Address) -> Wanted:
        parts = sayings(
            target.form,
            requested.conversation_id,
            records.user,
            records.reply,
            echo=requested.echo,
            is_group=requested.is_group and target.destination == requested.destination,
        )
        return Wanted(
            requested.tenant,
            target.channel,
            address,
            tuple(Said(each.kind, each.text, target.label) for each in parts),
            _once(requested.answer_id, target.destination),
            requested.correlation_id,
            requested.conversation_id,
            UNSET if records.user.turn == 0 else records.user.turn,
            requested.envelope_id,
            requested.tier,
            target.destination,
            target.recipient,
        )

    async def _append(self, answer_id: str, at: int, event: Event) -> bool:
        """Whether it is the end of the answer's stream now."""
        rows = rows_of(Decision((NewEvent(event, SERVER, origin="broker"),)), self._means.new_id).rows
        (outcome,) = await self._means.store.append([Append(stream_of(answer_id), at, rows, seal=True)])
        return outcome.kind == "appended"

    def _tell(self, requested: AnswerRequested, resolved: TargetsResolved) -> None:
        tell, correlation = self._means.signals.tell, requested.correlation_id
        for each in resolved.intended:
            tell("delivery_scheduled", each.channel, "intended", each.form, correlation_id=correlation)
        for skipped in resolved.skipped:
            tell("delivery_scheduled", skipped.channel, "skipped", skipped.reason, correlation_id=correlation)


class _Found:
    """How things stand for one answer. addresses: by destination, of all that was found."""

    def __init__(self, means: Means, requested: AnswerRequested, origin: Address | object) -> None:
        self._means = means
        self._requested = requested
        self.addresses: dict[str, Address] = {}
        if isinstance(origin, Address) and requested.destination is not UNSET:
            self.addresses[requested.destination] = origin

    async def resolved(self, records: Records) -> Resolution:
        """Where it goes. Raises Unavailable."""
        means, requested = self._means, self._requested
        asker = records.user.asker
        is_in = asker is not None and await means.transcripts.takes_part(asker, requested.conversation_id)
        around = Around(
            means.terms.of_tenant(requested.tenant),
            means.terms.policy_of(requested.tenant),
            classes=records.classes,
            is_out=not is_in or records.is_erased,
            fan_out=means.terms.fan_out,
        )
        return resolve(requested, await self._with_ends(around, asker))

    async def _with_ends(self, around: Around, asker: Identity | None) -> Around:
        """What the kind of target needs to be known."""
        requested, tenant, ends = self._requested, self._requested.tenant, self._means.ends
        match requested.kind:
            case "originating" if requested.native is not UNSET:
                known = await ends.one(tenant, LinkedEnd(requested.source, requested.native))
                return replace(around, origin=None if known is None else self._reachable(known))
            case "active" | "all_linked" | "channel" | "channels":
                found = tuple(self._reachable(each) for each in await ends.of_account(tenant, requested.account))
                around = replace(around, ends=found)
                return around if not requested.channels else self._with_channels(around, asker)
            case "identities":
                return await self._with_named(around)
            case _:
                return around

    def _with_channels(self, around: Around, asker: Identity | None) -> Around:
        requested, tenant = self._requested, self._requested.tenant
        named = [(name, around.channels[name]) for name in requested.channels if name in around.channels]
        own = {name: self._destination(Address(name)) for name, facts in named if facts.is_own}
        inboxes: dict[str, Reachable] = {}
        for name, facts in named:
            # Whoever asked with a token has an inbox, whether or not an end of theirs has ever spoken.
            if facts.is_inbox and asker is not None and not asker.actor.startswith("guest:"):
                native = self._means.link_hashes.native(tenant, name, asker.actor)
                at = self._destination(Address(name, asker.actor))
                inboxes[name] = Reachable(name, native, requested.account, at, "all")
        return replace(around, own=own, inboxes=inboxes)

    async def _with_named(self, around: Around) -> Around:
        tenant, ends, named = self._requested.tenant, self._means.ends, self._requested.identities
        known = await asyncio.gather(*(ends.one(tenant, LinkedEnd(each.channel, each.native)) for each in named))
        found = {each: self._reachable(end) for each, end in zip(named, known, strict=True) if end is not None}
        for each, end in found.items():
            if around.classes and end.account != self._requested.account:
                who = await ends.principal_of(tenant, end.account)
                is_cleared = await self._means.transcripts.is_cleared(tenant, end.account, who, around.classes)
                found[each] = replace(end, is_cleared=is_cleared)
        return replace(around, named=found)

    def _reachable(self, known: KnownEnd) -> Reachable:
        at = self._destination(known.address)
        return Reachable(known.end.channel, known.end.native, known.account, at, known.push, is_active=known.is_active)

    def _destination(self, address: Address) -> str:
        destination = self._means.hashes.destination(self._requested.tenant, address.channel, address)
        self.addresses[destination] = address
        return destination


def _once(answer_id: str, destination: str) -> str:
    """What makes a delivery this one of this answer."""
    return f"answer\n{answer_id}\n{destination}"
