"""Who may speak over a channel: the pipeline of every message, before and after linking (delivery.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import UNSET, Struct

from ...domain.channels.allowlist import Asked, Verdict, judge
from ...domain.channels.authorize import Allowed, Denied, LinkRequired, Outcome, authorize
from ...domain.channels.inbound import InboundOutcome, InboundReason
from ...domain.channels.messages import Inbound
from ...domain.conversations.commands import MAX_TEXT_CHARS
from ...domain.principals import Caller
from ..linking.handling import Linking
from .ends import Ends
from .inbound_ports import Callables, ChannelRules, Claims
from .speaking import Speaking
from .verbs import LINKING_VERBS

GROUPS = "groups"
"""The claim that has the groups, whatever an issuer calls it."""


class Judged(NamedTuple):
    """What a message comes to. details: of a denial, for the audit log alone."""

    outcome: InboundOutcome
    reason: InboundReason
    details: str = ""


class JudgeMeans(Struct, frozen=True):
    """What is looked at. One per process."""

    linking: Linking
    ends: Ends
    claims: Claims
    callables: Callables


class Judge:
    """One per process. Both methods raise Unavailable."""

    def __init__(self, means: JudgeMeans) -> None:
        self._means = means

    async def speaking(self, rules: ChannelRules, said: Inbound, message: str, correlation_id: str) -> Speaking:
        """Who speaks, as they stand now. In a shared chat nothing is granted to them: what is answered there is for
        everybody's ears."""
        means, sender = self._means, said.sender
        end = await means.linking.end_of(rules.tenant, sender.channel, sender.native_id)
        own = means.linking.own_key(rules.tenant, sender.channel, sender.native_id)
        is_linked = end.account != own or bool(await means.linking.links(end))
        claims: Mapping[str, tuple[str, ...]] = {}
        if is_linked:
            claims = await means.claims.of(rules.tenant, end.account)
        granted: Mapping[str, tuple[str, ...]] = {} if said.place.is_group else claims
        caller = Caller(
            await means.ends.principal_of(rules.tenant, end.account),
            rules.tenant,
            groups=frozenset(granted.get(GROUPS, ())),
            is_member=True,
            claims=granted,
        )
        return Speaking(rules, said, message, correlation_id, end, own, is_linked, claims, caller)

    async def judge(self, speaking: Speaking) -> Judged:
        """What the message comes to by the rules of its channel. Whoever deletes need not be allowed to speak."""
        said = speaking.said
        if said.deletes is not UNSET:
            return Judged("accepted", "allowed")
        match await self._outcome(speaking):
            case Allowed():
                return _of_words(said)
            case LinkRequired():
                may_link = said.verb in LINKING_VERBS
                return Judged("accepted", "allowed") if may_link else Judged("link_required", "no_link")
            case Denied(reason="abstained") if said.verb in LINKING_VERBS:
                # Nobody has said no. Only a link can bring the claims that would say yes, and whoever is linked with
                # claims whose time is over must still be able to mute the chat, and to part it.
                return Judged("accepted", "allowed")
            case Denied(reason, details=details):
                return Judged("denied", reason, details)

    async def _outcome(self, speaking: Speaking) -> Outcome:
        said, rules = speaking.said, speaking.rules
        before = await self._verdict(rules, Asked(said.sender, said.sender.attributes))
        after: Verdict | None = None
        if speaking.is_linked:
            known = {**speaking.claims, **said.sender.attributes}
            after = await self._verdict(rules, Asked(said.sender, known))
        return authorize(before, after, require_link=rules.require_link, is_group=said.place.is_group)

    async def _verdict(self, rules: ChannelRules, asked: Asked) -> Verdict:
        return judge(rules.allowlist, asked, await self._means.callables.ask(rules.allowlist, asked))


def _of_words(said: Inbound) -> Judged:
    """Of what may be said, whether a turn can be made of it."""
    if said.verb is not None:
        return Judged("accepted", "allowed")
    if not said.text.strip():
        return Judged("ignored", "empty")
    return Judged("ignored", "too_long") if len(said.text) > MAX_TEXT_CHARS else Judged("accepted", "allowed")
