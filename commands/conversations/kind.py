"""What the dispatcher must know of conversations: only what is verifiably ours is folded (conversations.md, Trust)."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from ...domain.conversations.carry import read_carry
from ...domain.conversations.events import CONVERSATION_EVENTS, ConversationEvent, ConversationRotated, Unsigned
from ...domain.conversations.evolve import INITIAL, SCHEMA, evolve
from ...domain.conversations.reading import read_event
from ...domain.conversations.signing import Keyring
from ...domain.conversations.state import Conversation
from ...domain.events import Recorded, Registry
from ...domain.principals import Principal
from ..ports import StoredEvent
from ..streams import Kind, left_as_it_is

CONVERSATION = "conversation"
TURN = "turn"


def stream_of(conversation_id: str) -> str:
    """The name of a conversation's stream."""
    return f"{CONVERSATION}:{conversation_id}"


def turn_stream_of(execution: str) -> str:
    """The name of the stream of a turn's steps."""
    return f"{TURN}:{execution}"


class Verifier(Struct, frozen=True):
    """Tells what was written with our keys into one stream. registry: of the kind of stream."""

    keyring: Keyring
    stream: str
    registry: Registry[Any]

    def decode(self, event: StoredEvent) -> Any:
        """The event, Opaque where this version has no declaration for it, Unsigned where it is not verifiably ours."""
        return read_event(self.registry, self.keyring, self.stream, event.seq, event.type, event.version, event.payload)


class ConversationKind(Kind[Conversation], frozen=True):
    """The kind of one conversation's stream: its name is part of what is signed."""

    verifier: Verifier

    checkpoint_type: ClassVar[str | None] = ConversationRotated.type

    def is_checkpoint(self, event: StoredEvent) -> bool:
        """Whether it is a rotation of ours, with a state that may be gone on from."""
        read = self.verifier.decode(event)
        return isinstance(read, ConversationRotated) and read_carry(read.carry, read.generation, event.seq) is not None

    def fold(self, state: Conversation, event: StoredEvent) -> Conversation:
        """One stored event further; what is not verifiably ours counts as such, and says nothing."""
        actor = Principal(event.actor_kind, event.actor_id)  # pyright: ignore[reportArgumentType]
        decoded: ConversationEvent | Unsigned = self.verifier.decode(event)
        return self.evolve(state, Recorded(event.seq, actor, event.run_id, event.origin_key, decoded))


def conversation_kind(keyring: Keyring, conversation_id: str) -> ConversationKind:
    """The kind of that conversation's stream."""
    stream = stream_of(conversation_id)
    return ConversationKind(
        CONVERSATION,
        SCHEMA,
        INITIAL,
        Conversation,
        CONVERSATION_EVENTS,
        evolve,
        left_as_it_is,  # nothing is ever unreadable: see Verifier.decode
        Verifier(keyring, stream, CONVERSATION_EVENTS),
    )
