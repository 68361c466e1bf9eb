"""Links of those who speak with a token of their own: what the routes of links do (http.md, Linking and delivery)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from ...domain.channels.link_policy import permits
from ...domain.channels.messages import Address, Can
from ...domain.errors import ClientNotAllowed, Forbidden, Invalid, NotVisible
from ...domain.ids import is_conversation_id
from ...domain.linking.decide import End
from ...domain.linking.events import LinkedEnd, Push
from ...domain.principals import Caller
from ..answers.ports import Unlinking
from ..beside import Admit
from ..channels.ends import TOKEN_CHANNEL, Ends
from ..dispatcher import Dispatcher
from ..mailbox import Answer
from ..ports import Key
from .handling import ENDED, Linking, Mechanism, gone_of, shown_of, told

DEADLINE_S = 10.0

LINKS = "links"
"""Scope of the idempotency keys of what begins or presents a link."""


class BeginLink(Struct, frozen=True, forbid_unknown_fields=True):
    """channel: where the other end is to be."""

    channel: str
    mechanism: Mechanism


class PresentCode(Struct, frozen=True, forbid_unknown_fields=True):
    """code: as it was typed."""

    code: str


class ConfirmLink(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """consent_digest: of the ends that were looked at. push: what may be sent to the linked end."""

    consent_digest: str
    push: Push


class ChangePush(Struct, frozen=True, forbid_unknown_fields=True):
    """push: what may be sent to the linked end from now on."""

    push: Push


class DropLink(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing beside the id."""


class LinkEnd(Struct, frozen=True):
    """An end as people are shown it. display: as its platform names it; empty where nothing is known."""

    channel: str
    display: str


class LinkView(Struct, frozen=True, rename="camel"):
    """A linked end. push: what may be sent to it."""

    id: str
    channel: str
    display: str
    push: Push
    linked_at: str


class PendingView(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A link that the caller has begun. state presented: somebody has shown the code, and `ends` and `consentDigest`
    are what to look at and to confirm."""

    id: str
    state: str
    expires_at: str
    ends: list[LinkEnd] | UnsetType = UNSET
    consent_digest: str | UnsetType = UNSET


class ChannelView(Struct, frozen=True, rename="camel"):
    """A channel that answers may be sent to. linked: whether the caller has an end there."""

    name: str
    kind: str
    can: Can
    linked: bool


class ChannelInfo(Struct, frozen=True):
    """A configured channel, as far as linking needs it."""

    tenant: str
    kind: str
    can: Can


class CallerLinks:
    """One per process. Every command raises Forbidden for who is no person, ClientNotAllowed for a command-line client,
    RateLimited, KeyReused, TimedOut and Unavailable. channels: the configured ones, by their names."""

    def __init__(
        self,
        linking: Linking,
        ends: Ends,
        unlinking: Unlinking,
        dispatcher: Dispatcher,
        channels: Mapping[str, ChannelInfo],
        admit: Admit,
    ) -> None:
        self._linking = linking
        self._ends = ends
        self._unlinking = unlinking
        self._dispatcher = dispatcher
        self._channels = channels
        self._admit = admit

    async def begin(self, caller: Caller, command: BeginLink, key: str | None) -> Answer:
        """201 `{"id", "code" or "url", "expiresAt"}`. Raises Invalid, TooManyPending, Full."""
        _check(caller)
        channel = self._channels.get(command.channel)

        async def work(idempotency: Key | None) -> Answer:
            if channel is None or channel.tenant != caller.tenant or not channel.can.receive:
                raise Invalid.at("$.channel", "is no channel that you can link")
            end = await self._noted(caller)
            begun = await self._linking.begin(end, caller.principal, command.mechanism, idempotency)
            return replace(begun.answer, status=201)

        answer = await self._run(caller, "begin_link", LINKS, command, key, 201, work)
        begun = self._linking.begun(caller.tenant, command.mechanism, answer)
        shown = {"code": begun.code} if begun.code else {"url": begun.url}
        return replace(answer, body={**answer.body, **shown})

    async def present(self, caller: Caller, command: PresentCode, key: str | None) -> Answer:
        """200 `{"id", "state", "ends", "consentDigest"}`. Raises NotVisible, the same for every failure."""
        _check(caller)

        async def work(idempotency: Key | None) -> Answer:
            end = await self._noted(caller)
            return (await self._linking.present(end, command.code, caller.principal, key=idempotency)).answer

        answer = await self._run(caller, "present_link", LINKS, command, key, 200, work)
        return told(answer, ends=[await self._end(caller.tenant, each) for each in shown_of(answer).ends])

    async def confirm(self, caller: Caller, link_id: str, command: ConfirmLink, key: str | None) -> Answer:
        """200 `{"seq", "linkId"}`. Raises NotVisible, StaleConsent."""
        _check(caller, link_id)

        async def work(idempotency: Key | None) -> Answer:
            end = await self._noted(caller)
            return await self._linking.confirm(
                end, link_id, command.consent_digest, command.push, caller.principal, idempotency
            )

        return await self._run(caller, "confirm_link", f"link:{link_id}", command, key, 200, work)

    async def change_push(self, caller: Caller, link_id: str, command: ChangePush, key: str | None) -> Answer:
        """200 `{"seq"}`. Raises NotVisible."""
        _check(caller, link_id)

        async def work(idempotency: Key | None) -> Answer:
            end = await self._of(caller)
            return await self._linking.change_push(end, link_id, command.push, caller.principal, idempotency)

        return await self._run(caller, "change_push", f"link:{link_id}", command, key, 200, work)

    async def drop(self, caller: Caller, link_id: str, key: str | None) -> Answer:
        """Unlink an end, 200 `{"seq", "cancelled": {"deliveries", "continuations"}}`, or give up a link that the caller
        has begun, 200 `{"seq"}`. Raises NotVisible."""
        _check(caller, link_id)

        async def work(idempotency: Key | None) -> Answer:
            end = await self._of(caller)
            if any(each.link_id == link_id for each in await self._linking.begun_by(end)):
                return await self._linking.withdraw(end, link_id, caller.principal, idempotency)
            return (await self._linking.unlink(end, link_id, caller.principal, idempotency)).answer

        answer = await self._run(caller, "drop_link", f"link:{link_id}", DropLink(), key, 200, work)
        return await self.ended(caller.tenant, answer)

    async def ended(self, tenant: str, answer: Answer) -> Answer:
        """What goes with a link that was unlinked; the same again where an earlier call did not come so far."""
        if ENDED not in answer.body:
            return answer
        gone = gone_of(answer)
        deliveries, continuations = await self._unlinking.unlinked(tenant, gone.account, gone.end)
        return told(answer, cancelled={"deliveries": deliveries, "continuations": continuations})

    async def links(self, caller: Caller) -> tuple[list[LinkView], list[PendingView]]:
        """The linked ends of the caller's account, and the links that the caller has begun, the oldest first."""
        end = await self._of(caller)
        links = [
            LinkView(link.link_id, link.end.channel, display, link.push, link.linked_at)
            for link in await self._linking.links(end)
            for display in [(await self._end(caller.tenant, link.end)).display]
        ]
        return links, [view async for view in self._pending(caller, end)]

    async def channels(self, caller: Caller) -> list[ChannelView]:
        """Those of the caller's tenant that an answer may be sent to, by name."""
        end = await self._of(caller)
        linked = {each.end.channel for each in await self._linking.links(end)}
        policy = self._linking.policy(caller.tenant)
        return [
            ChannelView(name, each.kind, each.can, name in linked)
            for name, each in sorted(self._channels.items())
            if each.tenant == caller.tenant and each.can.push and permits(policy, TOKEN_CHANNEL, name)
        ]

    async def _pending(self, caller: Caller, end: End) -> AsyncIterator[PendingView]:
        for each in await self._linking.begun_by(end):
            if each.presented is None:
                yield PendingView(each.link_id, "pending", each.expires_at)
                continue
            ends = [await self._end(caller.tenant, one) for one in (each.end, each.presented.end)]
            yield PendingView(each.link_id, "presented", each.expires_at, ends, each.presented.consent_digest)

    async def _run(
        self,
        caller: Caller,
        operation: str,
        scope: str,
        command: Any,
        key: str | None,
        status: int,
        work: Callable[[Key | None], Awaitable[Answer]],
    ) -> Answer:
        idempotency = self._dispatcher.key(caller, operation, scope, key, command, status)
        stored = await self._dispatcher.replayed(idempotency)
        if stored is not None:
            return stored
        self._admit(caller)()

        async def run() -> Answer:
            return await work(idempotency)

        return await self._dispatcher.beside(run, DEADLINE_S)

    async def _of(self, caller: Caller) -> End:
        return await self._linking.end_of(caller.tenant, TOKEN_CHANNEL, str(caller.principal), is_person=True)

    async def _noted(self, caller: Caller) -> End:
        """The caller's end, which is known from now on as theirs."""
        return await noted(self._linking, self._ends, caller)

    async def _end(self, tenant: str, end: LinkedEnd) -> LinkEnd:
        known = await self._ends.one(tenant, end)
        return LinkEnd(end.channel, "" if known is None else known.display)


async def noted(linking: Linking, ends: Ends, caller: Caller) -> End:
    """The end of somebody with a token, which is known from now on as theirs: linking is no message, and makes it the
    active one of nothing. Raises Unavailable."""
    name = str(caller.principal)
    end = await linking.end_of(caller.tenant, TOKEN_CHANNEL, name, is_person=True)
    own_key = linking.own_key(caller.tenant, TOKEN_CHANNEL, name)
    await ends.note(caller.tenant, end.linked, own_key, Address(TOKEN_CHANNEL, name), name, is_message=False)
    return end


def _check(caller: Caller, link_id: str | None = None) -> None:
    if caller.principal.kind != "human":
        raise Forbidden("Only people link channels.")
    if caller.is_cli_client:
        raise ClientNotAllowed("A command-line client links nothing; use a page.")
    if link_id is not None and not is_conversation_id(link_id):
        raise NotVisible
