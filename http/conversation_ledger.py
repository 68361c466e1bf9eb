"""The context ledger over HTTP: what the model saw in a turn (domain/conversations/ledger.py)."""

from __future__ import annotations

from ..commands.conversations.handlers import Looked
from ..commands.conversations.ports import Agent
from ..domain.conversations.events import ContextDecided, UserRecorded
from ..domain.conversations.ledger import Ledger, Present, ledger_of
from ..domain.conversations.prompt import tools_text
from ..domain.conversations.visibility import sight
from ..domain.errors import NotVisible
from .conversation_entries import reader_of
from .conversation_services import ConversationServices


async def read_ledger(talks: ConversationServices, looked: Looked, turn: int) -> Ledger:
    """The ledger of an accepted turn of the caller's own. Raises NotVisible where there is no such turn."""
    conversation, (decided, _) = looked.conversation, await own_turn(talks, looked, turn)
    return ledger_of(conversation.id, decided, _present(talks.agents.get(conversation.agent)), talks.keyring)


async def own_turn(talks: ConversationServices, looked: Looked, turn: int) -> tuple[ContextDecided, UserRecorded]:
    """What was decided for an accepted turn of the caller's own, and its question. Raises NotVisible likewise."""
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
    question = asked[0].event if asked else None
    if not isinstance(question, UserRecorded) or sight(conversation.mode, question, looked.who, {}) != "own":
        raise NotVisible
    return decided, question


def _present(agent: Agent | None) -> Present | None:
    if agent is None:
        return None
    return Present(agent.system, tools_text(agent.offered), agent.provider.name)
