"""What people on channels say instead of a message (delivery.md, Authorization). Nothing of it is recorded in a
conversation, and every answer is for the sender alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import assert_never

from msgspec import Struct

from ...domain.channels.messages import Verb
from ...domain.conversations.commands import InterruptTurn
from ...domain.errors import Full, Invalid, NotVisible, Sealed, StaleConsent, TooManyPending
from ...domain.linking.state import Challenge, Link
from ..conversations.handlers import Conversations, Looked
from ..linking.handling import Linking
from . import wording
from .ends import Ends
from .sessions import Session, Sessions
from .speaking import Notices, Speaking

LINKING_VERBS: frozenset[Verb] = frozenset({"link", "confirm", "unlink", "stop", "start"})
"""Open to those, too, who may not talk to the agent before they are linked."""

MUTING: frozenset[Verb] = frozenset({"stop", "start"})
"""Of which the last one counts."""

WORD_DIGITS = 8
"""Of the consent's digest, which who confirms sends back: it shows that they saw the other end."""

Unlinked = Callable[[str, str, Link], Awaitable[None]]
"""What goes with a link, by its tenant and account: deliveries and continuations. Raises Unavailable."""


class VerbMeans(Struct, frozen=True):
    """What verbs work with. One per process."""

    linking: Linking
    ends: Ends
    sessions: Sessions
    conversations: Conversations
    notices: Notices
    unlinked: Unlinked


class Verbs:
    """One per process. The same message again does the same again, or nothing."""

    def __init__(self, means: VerbMeans) -> None:
        self._means = means

    async def act(self, verb: Verb, speaking: Speaking, session: Session) -> None:
        """Do what was asked and answer it. Raises Unavailable, RateLimited."""
        text = await self._done(verb, speaking, session)
        await self._means.notices.answer(speaking, text)

    async def _done(self, verb: Verb, speaking: Speaking, session: Session) -> str:  # noqa: PLR0911 - one each
        match verb:
            case "link":
                is_code = speaking.said.argument.lower() not in ("", "code")
                return await (self._present(speaking) if is_code else self._begin(speaking))
            case "confirm":
                return await self._confirm(speaking)
            case "unlink":
                return await self._unlink(speaking)
            case "new":
                await self._means.sessions.another(session, speaking.message)
                return wording.NEW
            case "status":
                return await self._status(speaking, session)
            case "cancel":
                return await self._cancel(speaking, session)
            case "stop":
                await self._mute(speaking, is_muted=True)
                return wording.MUTED
            case "start":
                await self._mute(speaking, is_muted=False)
                return wording.WELCOME
            case _ as unreachable:
                assert_never(unreachable)

    async def _begin(self, speaking: Speaking) -> str:
        """By a sign-in where the tenant has somebody to sign in at, unless a code is asked for."""
        linking, end, actor = self._means.linking, speaking.end, speaking.caller.principal
        try:
            if speaking.said.argument:
                begun = await linking.begin(end, actor)
            else:
                try:
                    begun = await linking.begin(end, actor, "oidc")
                except Invalid:
                    begun = await linking.begin(end, actor)
        except (TooManyPending, Full):
            return wording.TOO_MANY
        except NotVisible:
            return wording.NOT_CONFIRMED
        ttl_s = self._means.linking.code_ttl_s
        return wording.link_url(begun.url, ttl_s) if begun.url else wording.link_code(begun.code, ttl_s)

    async def _present(self, speaking: Speaking) -> str:
        """A code that was shown in a group is void already (inbound.py); it is not taken there."""
        means, end = self._means, speaking.end
        if speaking.said.place.is_group:
            return wording.CODE_IN_GROUP
        # The same message again, after a crash: its answer is the first one's, and the other end is asked.
        challenge = await means.linking.presented_by(end, speaking.said.argument)
        if challenge is None:
            try:
                shown = await means.linking.present(end, speaking.said.argument, speaking.caller.principal)
            except NotVisible:
                return wording.CODE_WRONG
            challenge = await means.linking.challenge(end.tenant, shown.link_id)
        other = None if challenge is None else await means.ends.one(end.tenant, challenge.end)
        if challenge is not None and other is not None:
            asked = await self._asked(end.tenant, challenge)
            once = f"{challenge.link_id}\npresented"
            await means.notices.say(end.tenant, other.address, asked, once, speaking.correlation_id)
        return wording.PRESENTED

    async def _asked(self, tenant: str, challenge: Challenge) -> str:
        """What the end that began is shown of the one that presented."""
        shown = challenge.presented
        if shown is None:
            return wording.NOTHING_TO_CONFIRM
        other = await self._means.ends.one(tenant, shown.end)
        display = "" if other is None else other.display
        return wording.asks_to_link(shown.end.channel, display, shown.consent_digest[:WORD_DIGITS])

    async def _confirm(self, speaking: Speaking) -> str:
        """Without its word the other end is shown; with it the link is made, to the end that the word is of."""
        means, end = self._means, speaking.end
        waiting = [each for each in await means.linking.begun_by(end) if each.presented is not None]
        word = speaking.said.argument.strip().lower()
        if not waiting:
            return wording.NOTHING_TO_CONFIRM
        if not word:
            return "\n".join([await self._asked(end.tenant, each) for each in waiting])
        for each in waiting:
            digest = "" if each.presented is None else each.presented.consent_digest
            if digest[:WORD_DIGITS] == word:
                try:
                    await means.linking.confirm(end, each.link_id, digest, "replies", speaking.caller.principal)
                except (NotVisible, StaleConsent):
                    return wording.NOT_CONFIRMED
                return wording.LINKED
        return wording.NOT_CONFIRMED

    async def _unlink(self, speaking: Speaking) -> str:
        """This end leaves its account; where the account is its own, all others do."""
        means, end = self._means, speaking.end
        links = await means.linking.links(end)
        own = [each for each in links if each.end == end.linked]
        for link in own or links:
            try:
                await means.linking.unlink(end, link.link_id, speaking.caller.principal)
            except NotVisible:
                continue  # somebody else was quicker
            await means.unlinked(end.tenant, end.account, link)
        return wording.UNLINKED if links else wording.NOT_LINKED

    async def _status(self, speaking: Speaking, session: Session) -> str:
        end = speaking.end
        links = await self._means.linking.links(end)
        known = await self._means.ends.one(end.tenant, end.linked)
        looked = await self._looked(session)
        return wording.status(
            len(links),
            is_muted=known is not None and known.push == "off",
            is_running=looked is not None and looked.conversation.running is not None,
            queued=0 if looked is None else len(looked.conversation.queue),
        )

    async def _cancel(self, speaking: Speaking, session: Session) -> str:
        """The same message again stops nothing that began since: it is the command's key."""
        looked = await self._looked(session)
        if looked is None:
            return wording.NOTHING_RUNS
        try:
            await self._means.conversations.interrupt(
                session.caller, looked.conversation.id, InterruptTurn(), f"channel.{speaking.message}"
            )
        except (NotVisible, Sealed):
            return wording.NOTHING_RUNS
        return wording.CANCELLED

    async def _looked(self, session: Session) -> Looked | None:
        conversation_id = await self._means.sessions.current(session)
        if conversation_id is None:
            return None
        try:
            return await self._means.conversations.look(session.caller, conversation_id)
        except NotVisible:
            return None

    async def _mute(self, speaking: Speaking, *, is_muted: bool) -> None:
        """At once: what is sent looks at it right before. A linked end has it with its link."""
        means, end = self._means, speaking.end
        link = next((each for each in await means.linking.links(end) if each.end == end.linked), None)
        if link is None:
            await means.ends.mute(end.tenant, end.linked, is_muted=is_muted)
            return
        try:
            push = "off" if is_muted else "replies"
            await means.linking.change_push(end, link.link_id, push, speaking.caller.principal)
        except NotVisible:
            return  # it was unlinked a moment ago
