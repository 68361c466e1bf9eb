"""Who takes part in a shared conversation: its owner, and those whom they name (conversations.md, Shared mode)."""

from __future__ import annotations

from ..decisions import Decision, NewEvent
from ..errors import Conflict, Forbidden, Full, Invalid, NotVisible
from ..principals import Principal
from .commands import AddParticipant, RemoveParticipant
from .decide import Received, allow
from .events import ParticipantAdded, ParticipantRemoved
from .identity import Identity
from .state import MAX_PARTICIPANTS, Conversation

OWNER_MANAGES = "Only the owner of a conversation says who takes part in it."


def participants_of(conversation: Conversation) -> list[str]:
    """Principals, the owner first, then in the order of their coming."""
    owner = [] if conversation.owner is None else [conversation.owner]
    return [each.actor for each in (*owner, *conversation.participants)]


def add_participant(conversation: Conversation, command: AddParticipant, received: Received) -> Decision:
    """Somebody more may speak; nothing changes for one who may already. Raises as `_managed`, Full above the limit."""
    owner, who = _managed(conversation, command.principal, received)
    if conversation.may_speak(who):
        return Decision()
    if len(conversation.participants) + 1 >= MAX_PARTICIPANTS:
        raise Full(f"A conversation has at most {MAX_PARTICIPANTS} participants, its owner among them; remove one.")
    return Decision((NewEvent(ParticipantAdded(who, owner, "", ""), received.actor),))


def remove_participant(conversation: Conversation, command: RemoveParticipant, received: Received) -> Decision:
    """Somebody may speak no more: their running turn stops, what waits of theirs becomes no turn. Nothing changes for
    one who is no participant. Raises as `_managed`, Conflict for the owner."""
    owner, who = _managed(conversation, command.principal, received)
    if who == owner:
        raise Conflict("The owner always takes part; close the conversation to end it.")
    if who not in conversation.participants:
        return Decision()
    return Decision((NewEvent(ParticipantRemoved(who, owner, "", ""), received.actor),))


def _managed(conversation: Conversation, principal: str, received: Received) -> tuple[Identity, Identity]:
    """The owner, and the identity that a principal is in this conversation.

    Raises NotVisible, Forbidden for a participant who is not the owner, Invalid for who cannot take part, Conflict
    where the conversation is its owner's alone, Sealed.
    """
    if not conversation.may_speak(received.asker):
        raise NotVisible
    owner = conversation.owner
    if owner is None or owner != received.asker:
        raise Forbidden(OWNER_MANAGES)
    named = Principal.parse(principal, "principal")
    if named.kind != "human":
        raise Invalid.at("principal", "only people take part in a conversation")
    if conversation.mode != "shared":
        raise Conflict("This conversation is its owner's alone; start one with mode shared to have others in it.")
    allow(conversation, received)
    return owner, Identity(str(named), owner.tenant)
