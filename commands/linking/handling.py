"""The steps of a link, for whoever has proven an end: a page's token, or a channel's inbound message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ...domain.channels.link_policy import LinkPolicy, with_tier
from ...domain.decisions import Decision
from ...domain.errors import Invalid, MinutebookError, NotVisible, Unavailable
from ...domain.ids import is_conversation_id, long_id
from ...domain.linking.codes import CODE_TTL_S, code_of, read_code
from ...domain.linking.decide import Around, End, begin, confirm, present
from ...domain.linking.events import LinkedEnd, LinkFailed, LinkVoided, Push, UnlinkReason
from ...domain.linking.operate import RELINK_S, change_push, seen_in_group, unlink, withdraw
from ...domain.linking.state import Account, Challenge, Link
from ...domain.principals import Principal
from ...domain.times import stamp
from ..channels.ends import TOKEN_CHANNEL
from ..deliveries.kind import NewId
from ..mailbox import Answer
from ..ports import EventStore, Key
from ..signals import SILENCE, Signals
from .accounts import MAX_TRIES, Accounts
from .ports import LinkHashes, LinkTable
from .standing import Standings

Mechanism = Literal["code", "oidc"]

FAILING_S = 0.25
"""A code that does not work is answered no sooner, whatever was found out about it."""

ENDED, ENDS = "ended", "shown"
"""Members of a stored answer with the ends that it is about, as keyed hashes; whoever answers puts something else in
their place."""


class Begun(Struct, frozen=True):
    """A link that waits. code, or url where somebody signs in at their identity provider: to be shown to whoever began,
    and to nobody else."""

    link_id: str
    code: str
    expires_at: str
    url: str = ""
    answer: Answer = Answer(201, {}, False, 0)


class Shown(Struct, frozen=True):
    """A code was taken; the end that began it must confirm with this digest. ends: that one, and the presenting one.
    answer: as stored, with ENDS in it."""

    link_id: str
    consent_digest: str
    ends: tuple[LinkedEnd, ...] = ()
    answer: Answer = Answer(200, {}, False, 0)


class Gone(Struct, frozen=True):
    """An end was unlinked from the account. answer: as stored, with ENDED in it."""

    account: str
    end: LinkedEnd
    answer: Answer


class Linking(Standings):
    """One per process. `now` is this server's clock; `entropy` draws that many bits.

    token_tiers: by tenant the tier of those who speak with a token. url_of: where somebody signs in for a link of a
    tenant, None where the tenant has no provider for that. failing_s: as FAILING_S; code_ttl_s, relink_s: as CODE_TTL_S
    and RELINK_S.
    """

    def __init__(
        self,
        store: EventStore,
        table: LinkTable,
        hashes: LinkHashes,
        policy: LinkPolicy,
        now: Callable[[], datetime],
        new_id: NewId,
        entropy: Callable[[int], int],
        *,
        token_tiers: Mapping[str, str] | None = None,
        url_of: Callable[[str, str], str | None] = lambda _tenant, _link_id: None,
        signals: Signals = SILENCE,
        failing_s: float = FAILING_S,
        code_ttl_s: float = CODE_TTL_S,
        relink_s: float = RELINK_S,
    ) -> None:
        super().__init__(table, hashes)
        self._accounts = Accounts(store, new_id)
        self._policy = policy
        self._now = now
        self._entropy = entropy
        self._token_tiers = token_tiers or {}
        self._url_of = url_of
        self._signals = signals
        self._failing_s = failing_s
        self.code_ttl_s = code_ttl_s
        self._relink_s = relink_s

    def policy(self, tenant: str) -> LinkPolicy:
        """What may be linked with what in a tenant; those with a token have a tier of its own."""
        return with_tier(self._policy, TOKEN_CHANNEL, self._token_tiers.get(tenant))

    async def begin(self, end: End, actor: Principal, mechanism: Mechanism = "code", key: Key | None = None) -> Begun:
        """A new code, or the URL of a sign-in. Raises TooManyPending, Full, Invalid where nobody can sign in for the
        tenant, KeyReused, Unavailable."""
        link_id = long_id(self._entropy(130))
        if mechanism == "oidc" and self._url_of(end.tenant, link_id) is None:
            raise Invalid.at("$.mechanism", "no identity provider is there to sign in at; use code")
        hashed = self._hashes.code(end.tenant, self.code_of(end.tenant, link_id))
        pending = await self._table.pending(end.tenant)

        async def decide(state: Account) -> Decision:
            return begin(state, end, link_id, hashed, pending, self._now(), actor, self.code_ttl_s)

        try:
            answer = await self._accounts.change(end.tenant, end.account, decide, key)
        except MinutebookError as error:
            self._told(end, "refused", error.code)
            raise
        self._told(end, "begun")
        return self.begun(end.tenant, mechanism, answer)

    def begun(self, tenant: str, mechanism: Mechanism, answer: Answer) -> Begun:
        """What a stored answer of `begin` means to whoever began: the code is made again, since nothing stores it."""
        link_id, expires_at = answer.body["id"], answer.body["expiresAt"]
        if mechanism == "oidc":
            return Begun(link_id, "", expires_at, self._url_of(tenant, link_id) or "", answer)
        return Begun(link_id, self.code_of(tenant, link_id), expires_at, "", answer)

    def code_of(self, tenant: str, link_id: str) -> str:
        """The code of a link, whether there is such a link or not."""
        return code_of(self._hashes.code_bits(tenant, link_id))

    async def present(
        self, end: End, typed: str, actor: Principal, *, is_group: bool = False, key: Key | None = None
    ) -> Shown:
        """Show a code as it was typed. Every failure is the same NotVisible, and counts; KeyReused, Unavailable."""
        since, reason = time.monotonic(), ["unknown"]
        try:
            shown = await self._present(end, typed, actor, reason, is_group=is_group, key=key)
        except NotVisible:
            self._told(end, "refused", reason[-1])
            await asyncio.sleep(max(0.0, since + self._failing_s - time.monotonic()))
            raise
        self._told(end, "presented")
        return shown

    async def _present(
        self, end: End, typed: str, actor: Principal, reason: list[str], *, is_group: bool, key: Key | None
    ) -> Shown:
        """As present. reason: gets why it failed, for operators."""
        if not await self._table.take_try(end.tenant, end.linked):
            reason.append("blocked")
            raise NotVisible
        code = read_code(typed)
        hashed = "" if code is None else self._hashes.code(end.tenant, code)
        account = None if code is None else await self._table.waiting(end.tenant, hashed)
        if account is None:
            raise NotVisible
        own = (await self._accounts.load(end.account)).state

        async def decide(state: Account) -> Decision:
            found = next((each for each in state.challenges if each.code == hashed), None)
            if found is None:
                raise NotVisible
            around = await self._around(end.tenant, found.end, account, end.linked, end.account)
            decision = present(state, own, end, hashed, around, self._now(), actor, is_group=is_group)
            reason.extend(_reasons(decision))
            ends = [[found.end.channel, found.end.native], [end.channel, end.native]]
            return replace(decision, answer={**decision.answer, ENDS: ends})

        answer = await self._accounts.change(end.tenant, account, decide, key)
        await self._table.give_back(end.tenant, end.linked)
        return shown_of(answer)

    async def presented_by(self, end: End, typed: str) -> Challenge | None:
        """What waits for its confirmation since this very end has shown that code; nothing counts. Raises
        Unavailable."""
        code = read_code(typed)
        hashed = "" if code is None else self._hashes.code(end.tenant, code)
        account = None if code is None else await self._table.waiting(end.tenant, hashed)
        if account is None:
            return None
        now, challenges = stamp(self._now()), (await self._accounts.load(account)).state.challenges
        found = next((each for each in challenges if each.code == hashed and now < each.expires_at), None)
        return None if found is None or found.presented is None or found.presented.end != end.linked else found

    async def seen_in_group(self, tenant: str, code: str, actor: Principal) -> None:
        """A word of a group's message that may be a code, in its one form (codes_in). Raises Unavailable."""
        hashed = self._hashes.code(tenant, code)
        account = await self._table.waiting(tenant, hashed)

        async def decide(state: Account) -> Decision:
            return seen_in_group(state, hashed, actor)

        if account is not None:
            await self._accounts.change(tenant, account, decide)

    async def confirm(
        self, end: End, link_id: str, digest: str, push: Push, actor: Principal, key: Key | None = None
    ) -> Answer:
        """Consent of the end that began. Raises NotVisible, StaleConsent, KeyReused, Unavailable.

        The account that gets the end is appended to first; what a crash leaves open in the other, the same call does.
        """
        try:
            answer = await self._confirm(end, link_id, digest, push, actor, key)
        except MinutebookError as error:
            self._told(end, "refused", error.code)
            raise
        self._told(end, "linked")
        return answer

    async def _confirm(
        self, end: End, link_id: str, digest: str, push: Push, actor: Principal, key: Key | None
    ) -> Answer:
        for _ in range(MAX_TRIES):
            account, challenge = await self._challenge(end.tenant, link_id)
            if account is None or challenge is None:
                raise NotVisible
            began, shown = await self._accounts.load(account), challenge.presented
            home_key = account if shown is None else shown.home
            home = began if home_key == account else await self._accounts.load(home_key)
            other = (challenge.end, account) if shown is None else (shown.end, shown.account)
            around = await self._around(end.tenant, challenge.end, account, *other)
            done = confirm(began.state, home.state, end, link_id, digest, push, around, self._now(), actor)
            # The key goes with what is stored last: until then the same call has something left to do.
            is_last = not done.began.events
            answer = await self._accounts.append(end.tenant, home_key, home, done.home, key if is_last else None)
            if answer is not None and not is_last:
                answer = await self._accounts.append(end.tenant, account, began, done.began, key)
            if answer is not None:
                return answer
        raise Unavailable("The link was not stored; try again.")

    async def links(self, end: End) -> tuple[Link, ...]:
        """The ends of the account. Raises Unavailable."""
        return (await self._accounts.load(end.account)).state.links

    async def challenge(self, tenant: str, link_id: str) -> Challenge | None:
        """What has begun under that id and not ended. Raises Unavailable."""
        return (await self._challenge(tenant, link_id))[1]

    async def begun_by(self, end: End) -> tuple[Challenge, ...]:
        """What an end has begun and neither ended nor expired, the oldest first. Raises Unavailable."""
        now, account = stamp(self._now()), (await self._accounts.load(end.account)).state
        return tuple(each for each in account.challenges if each.end == end.linked and now < each.expires_at)

    async def change_push(self, end: End, link_id: str, push: Push, actor: Principal, key: Key | None = None) -> Answer:
        """Raises NotVisible, KeyReused, Unavailable."""

        async def decide(state: Account) -> Decision:
            return change_push(state, link_id, push, actor)

        return await self._accounts.change(end.tenant, end.account, decide, key)

    async def unlink(self, end: End, link_id: str, actor: Principal, key: Key | None = None) -> Gone:
        """By any end of the account; what else goes with the link is Unlinking's. Raises NotVisible, KeyReused,
        Unavailable."""
        return await self._unlink(end.tenant, end.account, link_id, "person", actor, key)

    async def unlink_for(self, tenant: str, link_id: str, actor: Principal, key: Key | None = None) -> Gone:
        """As unlink, by an operator of the tenant."""
        account = await self._table.holder(tenant, link_id)
        if account is None:
            raise NotVisible
        return await self._unlink(tenant, account, link_id, "operator", actor, key)

    async def withdraw(self, end: End, link_id: str, actor: Principal, key: Key | None = None) -> Answer:
        """Give up what has begun, by the end that began. Raises NotVisible, KeyReused, Unavailable."""

        async def decide(state: Account) -> Decision:
            found = state.challenge(link_id)
            if found is None or found.end != end.linked:
                raise NotVisible
            return withdraw(state, link_id, "withdrawn", actor)

        return await self._accounts.change(end.tenant, end.account, decide, key)

    async def void(self, tenant: str, link_id: str, actor: Principal, key: Key | None = None) -> Answer:
        """End what has begun, by an operator of the tenant. Raises NotVisible, KeyReused, Unavailable."""
        account, _ = await self._challenge(tenant, link_id)
        if account is None:
            raise NotVisible

        async def decide(state: Account) -> Decision:
            return withdraw(state, link_id, "operator", actor)

        return await self._accounts.change(tenant, account, decide, key)

    async def _unlink(
        self, tenant: str, account: str, link_id: str, reason: UnlinkReason, actor: Principal, key: Key | None
    ) -> Gone:
        async def decide(state: Account) -> Decision:
            decision = unlink(state, link_id, reason, self._now(), actor, self._relink_s)
            link = state.link(link_id)
            ended = [account] if link is None else [account, link.end.channel, link.end.native]
            return replace(decision, answer={**decision.answer, ENDED: ended})

        gone = gone_of(await self._accounts.change(tenant, account, decide, key))
        self._signals.tell("link_attempt", gone.end.channel, "unlinked", reason)
        return gone

    async def _challenge(self, tenant: str, link_id: str) -> tuple[str | None, Challenge | None]:
        key = await self._table.begun(tenant, link_id) if is_conversation_id(link_id) else None
        return key, None if key is None else (await self._accounts.load(key)).state.challenge(link_id)

    async def _around(self, tenant: str, one: LinkedEnd, one_key: str, other: LinkedEnd, other_key: str) -> Around:
        beginner = await self._table.standing(tenant, one, one_key)
        return Around(self.policy(tenant), beginner, await self._table.standing(tenant, other, other_key))

    def _told(self, end: End, outcome: str, reason: str = "") -> None:
        self._signals.tell("link_attempt", end.channel, outcome, reason)


def shown_of(answer: Answer) -> Shown:
    """What a stored answer of `present` says."""
    ends = tuple(LinkedEnd(*each) for each in answer.body[ENDS])
    return Shown(answer.body["id"], answer.body["consentDigest"], ends, answer)


def gone_of(answer: Answer) -> Gone:
    """What a stored answer of `unlink` says."""
    account, *end = answer.body[ENDED]
    return Gone(account, LinkedEnd(*end), answer)


def told(answer: Answer, **instead: Any) -> Answer:
    """A stored answer for its caller: without what is only for us, and with something else."""
    body = {name: value for name, value in answer.body.items() if name not in (ENDED, ENDS)}
    return replace(answer, body={**body, **instead})


def _reasons(decision: Decision) -> list[str]:
    return [new.event.reason for new in decision.events if isinstance(new.event, LinkFailed | LinkVoided)]
