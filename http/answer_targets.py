"""Where the answer to a turn goes, over HTTP (http.md, Linking and delivery)."""

from __future__ import annotations

from msgspec import UNSET

from ..commands.answers.targets import Shown
from ..commands.conversations.handlers import Looked
from ..domain.errors import NotVisible
from ..domain.principals import Caller
from .conversation_ledger import own_turn
from .conversation_services import ConversationServices


async def targets_of(talks: ConversationServices, caller: Caller, looked: Looked, turn: int) -> Shown:
    """The targets of a turn of the caller's own. Raises NotVisible where there is no such turn."""
    _, question = await own_turn(talks, looked, turn)
    if question.id is UNSET:
        raise NotVisible
    return await talks.targets.of(caller.tenant, looked.conversation.id, question.id)
