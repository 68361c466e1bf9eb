"""The context ledger over HTTP: what the model saw in a turn (domain/conversations/ledger.py)."""

from __future__ import annotations

from ..commands.conversations.handlers import Looked
from ..commands.conversations.ports import Agent
from ..domain.conversations.events import ContextDecided
from ..domain.conversations.ledger import Ledger, Present, ledger_of
from ..domain.conversations.prompt import tools_text
from ..domain.conversations.visibility import sight
from ..domain.errors import NotVisible
from .conversation_entries import reader_of
from .conversation_services import ConversationServices


async def read_ledger(talks: ConversationServices, looked: Looked, turn: int) -> Ledger:
    """The ledger of an accepted turn of the caller's own. Raises NotVisible where there is no such turn."""
    conversation = looked.conversation
    if not 1 <= turn <= conversation.turns:
        raise NotVisible
    found = await talks.log.context_of(looked.stream_id, turn)
    reader = reader_of(talks.keyring, conversation.id)
    decided = None if found is None else reader.decode(found)
    if not isinstance(decided, ContextDecided):
        raise NotVisible
    asked = reader.records(await talks.log.by_ords(looked.stream_id, (decided.ord,)))
    # Whatever they are cleared for: it is about the asker's own prompt.
    if not asked or sight(conversation.mode, asked[0].event, looked.who, {}) != "own":
        raise NotVisible
    return ledger_of(conversation.id, decided, _present(talks.agents.get(conversation.agent)), talks.keyring)


def _present(agent: Agent | None) -> Present | None:
    if agent is None:
        return None
    return Present(agent.system, tools_text(agent.offered), agent.provider.name)
