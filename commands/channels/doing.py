"""What a decided message does: a turn, a verb, or a word to its sender. The same message again does nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

from msgspec import UNSET, Struct, UnsetType

from ...domain.channels.messages import Address
from ...domain.conversations.commands import MAX_TEXT_CHARS, SendTurn
from ...domain.errors import MinutebookError, NotVisible, QueueFull, RateLimited, Sealed, TimedOut, Unavailable
from ...domain.principals import Caller
from ..answers.ports import Intake, Origin
from ..mailbox import Answer
from . import wording
from .deleting import turn_message
from .ends import Ends
from .inbound_ports import Known, Wishes
from .sessions import Session, Sessions
from .speaking import Notices, Speaking
from .verbs import Verbs

Continuation = Mapping[str, Any] | UnsetType

PASSING = (RateLimited, QueueFull, Unavailable, TimedOut)
"""Refusals after which the same message may come again: nothing of it is done."""


class Runs(Protocol):
    """Background turns by the token of their handle, for whom it was given to. Every method raises NotVisible, the same
    for what is another's and for what there is not, and Unavailable."""

    async def state(self, caller: Caller, token: str) -> Mapping[str, Any]:
        """How it stands, without any words of it: id, status, expiresAt, and where they are known turn and reason."""
        ...

    async def stop(self, caller: Caller, token: str, key: str) -> None:
        """Stop it; the same key again does nothing more. Raises AlreadyEnded."""
        ...


class DoMeans(Struct, frozen=True):
    """What is worked with. One per process. now: the server's clock."""

    intake: Intake
    ends: Ends
    sessions: Sessions
    verbs: Verbs
    notices: Notices
    runs: Runs
    now: Callable[[], datetime]


class Doing:
    """One per process."""

    def __init__(self, means: DoMeans) -> None:
        self._means = means

    async def do(self, speaking: Speaking, known: Known, wishes: Wishes) -> Continuation:
        """Have the effect. The handle of a background turn, where it is one.

        Raises PASSING, after which the same message may come again; of webhooks what a turn of the API raises, too.
        """
        match known.outcome:
            case "accepted":
                return await self._accepted(speaking, known, wishes)
            case "link_required":
                await self._say_daily(speaking, known, wording.LINK_FIRST)
            case "denied":
                await self._say_daily(speaking, known, wording.DENIED)
            case "ignored":
                if len(speaking.said.text) > MAX_TEXT_CHARS and not speaking.said.place.is_group:
                    await self._means.notices.answer(speaking, wording.TOO_LONG)
        return UNSET

    async def handle_again(self, speaking: Speaking, known: Known, wishes: Wishes) -> Continuation:
        """What a message is told that has had its effect: the handle of its background turn, or how the turn stands
        that it asked for; nothing where that cannot be asked for any more."""
        try:
            if speaking.said.continuation is not UNSET:
                return await self._means.runs.state(speaking.caller, speaking.said.continuation)
            # Never into the conversation that follows: what was done in another one would be done once more.
            is_named = speaking.said.conversation is not UNSET
            caller = speaking.caller if is_named else self._session(speaking).caller
            return _handle_in(await self._turn(speaking, caller, _conversation_of(known), known, wishes))
        except PASSING:
            raise
        except MinutebookError:
            return UNSET

    async def _accepted(self, speaking: Speaking, known: Known, wishes: Wishes) -> Continuation:
        said, end = speaking.said, speaking.end
        if not said.place.is_group:
            await self._means.ends.note(
                end.tenant, end.linked, speaking.own_key, speaking.private, said.display, is_message=said.verb is None
            )
        if said.continuation is not UNSET:
            if said.verb == "cancel":
                await self._means.runs.stop(speaking.caller, said.continuation, f"channel.{speaking.message}")
            return await self._means.runs.state(speaking.caller, said.continuation)
        if said.verb is not None:
            await self._means.verbs.act(said.verb, speaking, self._session(speaking))
            return UNSET
        try:
            return _handle_in(await self._send(speaking, known, wishes))
        except PASSING:
            raise
        except MinutebookError:
            if speaking.rules.tells_errors:
                raise
            await self._means.notices.answer(speaking, wording.REFUSED)
            return UNSET

    async def _send(self, speaking: Speaking, known: Known, wishes: Wishes) -> Answer:
        """The turn, into the conversation that was decided; where that one is over, into the one that follows it.

        Not where its sender was linked or unlinked since: then it may be a turn already, of the account that was.
        """
        conversation_id = _conversation_of(known)
        if speaking.said.conversation is not UNSET:
            return await self._turn(speaking, speaking.caller, conversation_id, known, wishes)
        session = self._session(speaking)
        try:
            return await self._turn(speaking, session.caller, conversation_id, known, wishes)
        except (NotVisible, Sealed):
            if known.account != speaking.end.account:
                raise
            conversation_id = await self._means.sessions.another(session, speaking.message)
            return await self._turn(speaking, session.caller, conversation_id, known, wishes)

    async def _turn(
        self, speaking: Speaking, caller: Caller, conversation_id: str, known: Known, wishes: Wishes
    ) -> Answer:
        said, end = speaking.said, speaking.end
        command = SendTurn(
            text=said.text,
            message_id=turn_message(speaking.message),
            background=wishes.background,
            response_target=wishes.target,
        )
        address = Address(end.channel, said.sender.native_id, said.place)
        origin = Origin(end.tenant, end.account, known.correlation_id, end.linked, address)
        return await self._means.intake.send(caller, conversation_id, command, None, origin)

    def _session(self, speaking: Speaking) -> Session:
        return self._means.sessions.of(speaking.rules, speaking.said, speaking.end.account, speaking.caller)

    async def _say_daily(self, speaking: Speaking, known: Known, text: str) -> None:
        """In a group nothing; in private at most once a day, whatever else they write."""
        if speaking.said.place.is_group:
            return
        end, day = speaking.end, self._means.now().date().isoformat()
        once = f"{known.outcome}\n{end.channel}\n{end.native}\n{day}"
        await self._means.notices.say(end.tenant, speaking.private, text, once, known.correlation_id)


def _conversation_of(known: Known) -> str:
    return "" if known.conversation_id is UNSET else known.conversation_id


def _handle_in(answer: Answer) -> Continuation:
    return answer.body.get("continuation", UNSET)
