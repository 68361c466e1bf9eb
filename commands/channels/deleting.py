"""What goes with a message that was deleted on its platform: its turn stops, its answer is not sent, and the wish to
erase it is kept for whoever may erase (`minutebook erase --deleted`).

Both sides write first and read afterwards. A deletion is recorded before it looks at its message; a message is decided
before it looks whether it was deleted, has its effect, and looks once more. So whatever is killed in between, a deleted
message has no turn, or its turn is among the wishes.
"""

from __future__ import annotations

import contextlib
from typing import Protocol

from msgspec import UNSET, Struct

from ...domain.conversations.commands import CancelTurn
from ...domain.conversations.decide import envelope_id
from ...domain.conversations.identity import identity_of
from ...domain.errors import AlreadyEnded, NotVisible, Sealed
from ...domain.principals import Caller, Principal
from ..conversations.handlers import Conversations
from .ends import Ends
from .inbound_ports import Deletions, InboundRows, Known

PLATFORM = ""
"""Native id of a sender whom the platform does not name: it is the platform itself that says so."""


TURN = "channel."
"""What the message ids of turns begin with that came over a channel."""


class Answers(Protocol):
    """Answers to turns."""

    async def withdraw(self, tenant: str, conversation_id: str, envelope: str) -> int:
        """How many deliveries of the answer to a message go out no more. The same again changes nothing. Raises
        Unavailable."""
        ...


class DeleteMeans(Struct, frozen=True):
    """What is worked with. One per process."""

    rows: InboundRows
    deletions: Deletions
    ends: Ends
    conversations: Conversations
    answers: Answers


class Deleting:
    """One per process. Every method raises Unavailable and RateLimited; the same again changes nothing."""

    def __init__(self, means: DeleteMeans) -> None:
        self._means = means

    async def delete(self, tenant: str, channel: str, message: str, *, by: str, platform: str) -> None:
        """A message is gone, by its own sender or by the platform's word; by, platform: keyed hashes. Nothing happens
        where it has not come yet: it finds the deletion."""
        known = (await self._means.rows.look(tenant, channel, message, None)).known
        if known is not None and by in (known.native, platform):
            await self.undo(tenant, channel, known)

    async def undo(self, tenant: str, channel: str, known: Known) -> None:
        """Of a deleted message that may have a turn."""
        means, conversation_id = self._means, known.conversation_id
        if known.outcome != "accepted" or conversation_id is UNSET:
            return
        message_id = turn_message(known.id)
        spots = await means.deletions.spots(conversation_id, message_id)
        names = [each.conversation_id for each in spots]
        await means.deletions.wish(tenant, channel, known.id, message_id, names)
        own = str(await means.ends.principal_of(tenant, known.account))
        for spot in spots:
            for actor in {spot.owner, own}:
                await self._stop(Caller(Principal.own(actor), tenant), spot.conversation_id, known.id)

    async def _stop(self, caller: Caller, conversation_id: str, message: str) -> None:
        """The turn, if it is that caller's: most are of the conversation's owner, as which its sender spoke."""
        envelope = envelope_id(identity_of(caller), turn_message(message))
        with contextlib.suppress(NotVisible, AlreadyEnded, Sealed):
            await self._means.conversations.cancel(caller, conversation_id, CancelTurn(envelope), f"deleted.{message}")
        await self._means.answers.withdraw(caller.tenant, conversation_id, envelope)


def turn_message(message: str) -> str:
    """The message id of the turn that an inbound message becomes."""
    return f"{TURN}{message}"
