"""The steps of a link, for whoever has proven an end: a page's token, or a channel's inbound message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import reduce

from msgspec import Struct

from ...domain.channels.link_policy import LinkPolicy
from ...domain.decisions import Decision
from ...domain.errors import Conflict, NotVisible, Unavailable
from ...domain.ids import is_conversation_id, long_id
from ...domain.linking.codes import code_of, read_code
from ...domain.linking.decide import Around, End, begin, confirm, present
from ...domain.linking.events import ACCOUNT_EVENTS, LinkedEnd, Push
from ...domain.linking.operate import change_push, seen_in_group, unlink
from ...domain.linking.state import INITIAL, SCHEMA, Account, Challenge, Link, evolve
from ...domain.principals import Principal
from ...domain.times import stamp
from ..deliveries.kind import NewId, rows_of
from ..ports import Append, Creation, EventStore
from ..streams import Kind
from .ports import STREAM, LinkHashes, LinkTable

ACCOUNT = "account"

RETENTION_DAYS = 90
"""Of an account's stream, from its seal on."""

MAX_TRIES = 8
"""Times that a step is decided again because somebody appended first."""

MAX_EVENTS = 10_000
"""Read of one account."""


def _passed_over(state: Account, type_: str) -> Account:  # noqa: ARG001 - the shape of Kind
    return state


ACCOUNT_KIND: Kind[Account] = Kind(ACCOUNT, SCHEMA, INITIAL, Account, ACCOUNT_EVENTS, evolve, _passed_over)


class Begun(Struct, frozen=True):
    """A link that waits. code: to be shown to whoever began, once; nothing else has it."""

    link_id: str
    code: str
    expires_at: str


class Shown(Struct, frozen=True):
    """A code was taken; the end that began it must confirm with this digest."""

    link_id: str
    consent_digest: str


class Linking:
    """One per process. `now` is this server's clock; `entropy` draws that many bits."""

    def __init__(
        self,
        store: EventStore,
        table: LinkTable,
        hashes: LinkHashes,
        policy: LinkPolicy,
        now: Callable[[], datetime],
        new_id: NewId,
        entropy: Callable[[int], int],
    ) -> None:
        self._store = store
        self._table = table
        self._hashes = hashes
        self._policy = policy
        self._now = now
        self._new_id = new_id
        self._entropy = entropy

    async def end_of(self, tenant: str, channel: str, native_id: str, *, is_person: bool = False) -> End:
        """A proven end with the key that it has now. is_person: by a token, whose key it keeps. Raises Unavailable."""
        native = self._hashes.native(tenant, channel, native_id)
        own = self.own_key(tenant, channel, native_id)
        standing = await self._table.standing(tenant, LinkedEnd(channel, native), own)
        return End(tenant, channel, native, standing.holder or own, is_person)

    def own_key(self, tenant: str, channel: str, native_id: str) -> str:
        """The isolation key that the end has while it is linked to nobody; Ends.note asks for it."""
        return long_id(self._hashes.own_key(tenant, channel, native_id))

    async def begin(self, end: End, actor: Principal) -> Begun:
        """A new code. Raises TooManyPending, Full, Unavailable."""
        link_id, code = long_id(self._entropy(130)), code_of(self._entropy(40))
        pending = await self._table.pending(end.tenant)
        hashed = self._hashes.code(end.tenant, code)
        decision = await self._change(
            end.tenant, end.account, lambda state: begin(state, end, link_id, hashed, pending, self._now(), actor)
        )
        return Begun(link_id, code, decision.answer["expiresAt"])

    async def present(self, end: End, typed: str, actor: Principal, *, is_group: bool = False) -> Shown:
        """Show a code as it was typed. Every failure is the same NotVisible, and counts; Unavailable."""
        if not await self._table.take_try(end.tenant, end.linked):
            raise NotVisible
        code = read_code(typed)
        hashed = "" if code is None else self._hashes.code(end.tenant, code)
        key = None if code is None else await self._table.waiting(end.tenant, hashed)
        if key is None:
            raise NotVisible
        own, _ = await self._load(end.account)

        async def decide(state: Account) -> Decision:
            found = next((each for each in state.challenges if each.code == hashed), None)
            if found is None:
                raise NotVisible
            around = await self._around(end.tenant, found.end, key, end.linked, end.account)
            return present(state, own, end, hashed, around, self._now(), actor, is_group=is_group)

        decision = await self._change_later(end.tenant, key, decide)
        await self._table.give_back(end.tenant, end.linked)
        return Shown(decision.answer["id"], decision.answer["consentDigest"])

    async def seen_in_group(self, tenant: str, code: str, actor: Principal) -> None:
        """A word of a group's message that may be a code, in its one form (codes_in). Raises Unavailable."""
        hashed = self._hashes.code(tenant, code)
        key = await self._table.waiting(tenant, hashed)
        if key is not None:
            await self._change(tenant, key, lambda state: seen_in_group(state, hashed, actor))

    async def confirm(self, end: End, link_id: str, digest: str, push: Push, actor: Principal) -> None:
        """Consent of the end that began. Raises NotVisible, StaleConsent, Unavailable.

        The account that gets the end is appended to first; what a crash leaves open in the other, the same call does.
        """
        for _ in range(MAX_TRIES):
            key = await self._table.begun(end.tenant, link_id) if is_conversation_id(link_id) else None
            if key is None:
                raise NotVisible
            began, at = await self._load(key)
            challenge = began.challenge(link_id)
            if challenge is None:
                raise NotVisible
            shown = challenge.presented
            home, home_at = (began, at) if shown is None or shown.home == key else await self._load(shown.home)
            other = (challenge.end, key) if shown is None else (shown.end, shown.account)
            around = await self._around(end.tenant, challenge.end, key, *other)
            done = confirm(began, home, end, link_id, digest, push, around, self._now(), actor)
            home_key = key if shown is None else shown.home
            if await self._append(end.tenant, home_key, home_at, done.home) and await self._append(
                end.tenant, key, at, done.began
            ):
                return
        raise Unavailable("The link was not stored; try again.")

    async def links(self, end: End) -> tuple[Link, ...]:
        """The ends of the account. Raises Unavailable."""
        return (await self._load(end.account))[0].links

    async def challenge(self, tenant: str, link_id: str) -> Challenge | None:
        """What has begun under that id and not ended. Raises Unavailable."""
        key = await self._table.begun(tenant, link_id) if is_conversation_id(link_id) else None
        return None if key is None else (await self._load(key))[0].challenge(link_id)

    async def begun_by(self, end: End) -> tuple[Challenge, ...]:
        """What an end has begun and neither ended nor expired, the oldest first. Raises Unavailable."""
        now, (account, _) = stamp(self._now()), await self._load(end.account)
        return tuple(each for each in account.challenges if each.end == end.linked and now < each.expires_at)

    async def change_push(self, end: End, link_id: str, push: Push, actor: Principal) -> None:
        """Raises NotVisible, Unavailable."""
        await self._change(end.tenant, end.account, lambda state: change_push(state, link_id, push, actor))

    async def unlink(self, end: End, link_id: str, actor: Principal) -> None:
        """By any end of the account. Raises NotVisible, Unavailable."""
        await self._change(end.tenant, end.account, lambda state: unlink(state, link_id, "person", self._now(), actor))

    async def _around(self, tenant: str, one: LinkedEnd, one_key: str, other: LinkedEnd, other_key: str) -> Around:
        beginner = await self._table.standing(tenant, one, one_key)
        return Around(self._policy, beginner, await self._table.standing(tenant, other, other_key))

    async def _change(self, tenant: str, key: str, decide: Callable[[Account], Decision]) -> Decision:
        async def later(state: Account) -> Decision:
            return decide(state)

        return await self._change_later(tenant, key, later)

    async def _change_later(self, tenant: str, key: str, decide: Callable[[Account], Awaitable[Decision]]) -> Decision:
        for _ in range(MAX_TRIES):
            state, at = await self._load(key)
            decision = await decide(state)
            if await self._append(tenant, key, at, decision):
                return decision
        raise Unavailable("Others change the same account; try again.")

    async def _load(self, key: str) -> tuple[Account, int]:
        head = await self._store.head(f"{STREAM}{key}")
        if head is None:
            return INITIAL, 0
        events = await self._store.read_for_fold(head.id, 0, MAX_EVENTS)
        return reduce(ACCOUNT_KIND.fold, events, INITIAL), events[-1].seq

    async def _append(self, tenant: str, key: str, at: int, decision: Decision) -> bool:
        """Whether the decision is stored; raises its refusal behind it."""
        if decision.events:
            rows = rows_of(decision, self._new_id).rows
            creation = None if at else Creation(ACCOUNT, tenant, RETENTION_DAYS)
            try:
                (outcome,) = await self._store.append([Append(f"{STREAM}{key}", at, rows, create=creation)])
            except Conflict:
                return False
            if outcome.kind != "appended":
                return False
        if decision.refusal is not None:
            raise decision.refusal
        return True
