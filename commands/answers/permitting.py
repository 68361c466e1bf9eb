"""Asked right before an answer is sent: whether it may still go there, as things are now (delivery.md, Routing)."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import UNSET, Struct

from ...domain.answers.events import AnswerRequested, IntendedTarget, TargetsResolved
from ...domain.answers.resolve import consents, may_carry
from ...domain.channels.link_policy import permits
from ...domain.deliveries.events import DeliveryPlanned
from ...domain.linking.events import LinkedEnd
from ..channels.ends import Ends
from ..conversations.kind import stream_of as conversation_stream
from ..deliveries.ports import Hashes
from ..ports import EventStore
from .kind import answer_id_of, load
from .ports import AnswerTerms, Pushes
from .records import Transcripts

MAX_REMEMBERED = 2000
"""Answers whose record is remembered, since it never changes: a fan-out asks for the same one often."""

PUSH_CAP = "push_cap"
"""Reason of what is over the cap of its recipient."""


class Means(Struct, frozen=True):
    """What the permit works with. One per process."""

    store: EventStore
    transcripts: Transcripts
    ends: Ends
    hashes: Hashes
    terms: AnswerTerms
    pushes: Pushes


class _Known(Struct, frozen=True):
    """An answer whose targets are on record. stream_id: of its conversation."""

    requested: AnswerRequested
    resolved: TargetsResolved
    stream_id: int


class AnswerPermit:
    """Permit of commands/deliveries/ports.py. What is no answer to a turn is none of its business, and may go.

    Reasons: no_push, link_policy, redaction, not_authorized, audience, unlink, muted, push_cap.
    """

    def __init__(self, means: Means) -> None:
        self._means = means
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def __call__(self, plan: DeliveryPlanned) -> str | None:
        """See Permit. Raises Unavailable."""
        if plan.run_id is UNSET or plan.conversation_id is UNSET:
            return None
        known = await self._answer(plan.tenant, plan.conversation_id, plan.run_id)
        if known is None:
            return None
        target = next((each for each in known.resolved.intended if each.delivery_id == plan.delivery_id), None)
        if target is None:
            return "not_authorized"
        return (
            self._by_settings(known, target)
            or await self._by_records(known, target)
            or await self._by_recipient(known, target)
            or await self._by_cap(plan, target)
        )

    async def _answer(self, tenant: str, conversation_id: str, envelope_id: str) -> _Known | None:
        answer_id = answer_id_of(self._means.hashes, tenant, conversation_id, envelope_id)
        known = self._known.get(answer_id)
        if known is not None:
            self._known.move_to_end(answer_id)
            return known
        state, _ = await load(self._means.store, answer_id)
        head = await self._means.store.head(conversation_stream(conversation_id))
        if state.requested is None or state.resolved is None:
            return None
        known = _Known(state.requested, state.resolved, 0 if head is None else head.id)
        self._known[answer_id] = known
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return known

    def _by_settings(self, known: _Known, target: IntendedTarget) -> str | None:
        terms = self._means.terms
        facts = terms.known(known.requested.tenant, target.channel)
        if facts is None or not facts.can_push:
            return "no_push"
        policy = terms.policy_of(known.requested.tenant)
        return None if permits(policy, known.requested.source, target.channel) else "link_policy"

    async def _by_records(self, known: _Known, target: IntendedTarget) -> str | None:
        """What the log says now: words that were erased since, an asker who was taken out, classes."""
        requested, resolved, transcripts = known.requested, known.resolved, self._means.transcripts
        records = None
        if resolved.user_seq is not UNSET:
            records = await transcripts.records(
                known.stream_id,
                requested.conversation_id,
                requested.envelope_id,
                resolved.user_seq,
                None if resolved.reply_seq is UNSET else resolved.reply_seq,
            )
        if records is None or records.is_erased or records.user.asker is None:
            return "redaction"
        if not await transcripts.takes_part(records.user.asker, requested.conversation_id):
            return "not_authorized"
        facts = self._means.terms.known(requested.tenant, target.channel)
        is_told = target.form == "pointer" or (facts is not None and may_carry(facts, records.classes))
        if is_told and target.account is not UNSET and records.classes:
            who = await self._means.ends.principal_of(requested.tenant, target.account)
            is_told = await transcripts.is_cleared(requested.tenant, target.account, who, records.classes)
        return None if is_told else "audience"

    async def _by_recipient(self, known: _Known, target: IntendedTarget) -> str | None:
        """Whether it is still the same person's end, and wants it."""
        requested = known.requested
        facts = self._means.terms.known(requested.tenant, target.channel)
        if target.recipient is UNSET or facts is None or facts.is_inbox:
            return None
        end = await self._means.ends.one(requested.tenant, LinkedEnd(target.channel, target.recipient))
        if end is None:
            # Who has spoken in a group alone is answered there, and is nobody elsewhere.
            return "unlink" if target.is_pushed or not requested.is_group else None
        if end.account != (requested.account if target.account is UNSET else target.account):
            return "unlink"
        return None if consents(end.push, is_own=target.account is UNSET) else "muted"

    async def _by_cap(self, plan: DeliveryPlanned, target: IntendedTarget) -> str | None:
        if target.recipient is UNSET or not target.is_pushed:
            return None
        most = self._means.terms.pushes_per_hour
        may_go = await self._means.pushes.take(plan.delivery_id, plan.tenant, target.recipient, most)
        return None if may_go else PUSH_CAP
