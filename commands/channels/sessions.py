"""Which conversation a message goes to, and whose it is."""

from __future__ import annotations

from msgspec import Struct

from ...domain.channels.messages import Inbound
from ...domain.channels.sessions import shared
from ...domain.conversations.commands import StartConversation
from ...domain.ids import long_id
from ...domain.principals import Caller, Principal
from ..conversations.handlers import Conversations
from .inbound_ports import ChannelRules, InboundHashes, SessionRows


class Session(Struct, frozen=True):
    """Where somebody speaks. scope: keyed. caller: as whom, with what they are granted there."""

    tenant: str
    scope: str
    agent: str
    caller: Caller


class Sessions:
    """One per process. A conversation is begun by a handle that is stored before it is, so that neither a crash nor two
    messages at once begin a second one."""

    def __init__(self, rows: SessionRows, hashes: InboundHashes, conversations: Conversations) -> None:
        self._rows = rows
        self._hashes = hashes
        self._conversations = conversations

    def of(self, rules: ChannelRules, said: Inbound, account: str, speaker: Caller) -> Session:
        """The session of a message. speaker: as whom the account speaks; what is the group's speaks for nobody."""
        who = shared(rules.scope, rules.agent, said.sender.channel, account, said.place)
        scope = long_id(self._hashes.scope(rules.tenant, who.parts))
        caller = speaker
        if who.of_group:
            caller = Caller(Principal.guest(scope), rules.tenant, is_member=True)
        return Session(rules.tenant, scope, rules.agent, caller)

    async def conversation(self, session: Session, message: str) -> str:
        """The conversation that goes on there, begun if there is none. message: id of the message that asks.

        Raises what Conversations.start raises.
        """
        handle, conversation_id = await self._rows.begin(session.tenant, session.scope, _handle(message))
        return conversation_id or await self._begin(session, handle)

    async def another(self, session: Session, message: str) -> str:
        """A new one goes on there from now on; the same message again changes nothing."""
        await self._rows.change(session.tenant, session.scope, _handle(message))
        return await self._begin(session, _handle(message))

    async def current(self, session: Session) -> str | None:
        """The conversation that goes on there, if any."""
        return await self._rows.current(session.tenant, session.scope)

    async def _begin(self, session: Session, handle: str) -> str:
        answer = await self._conversations.start(session.caller, StartConversation(session.agent, handle), None)
        conversation_id: str = answer.body["id"]
        await self._rows.begun(session.tenant, session.scope, handle, conversation_id)
        return conversation_id


def _handle(message: str) -> str:
    return f"channel.{message}"
