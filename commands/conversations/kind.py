"""What the dispatcher must know of conversations: only what is verifiably ours is folded (conversations.md, Trust)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...domain.conversations.events import (
    CONVERSATION_EVENTS,
    ConversationEvent,
    ConversationStarted,
    EnvelopeReceived,
    Unsigned,
)
from ...domain.conversations.signing import Keyring, Mac, envelope_fields, event_fields
from ...domain.conversations.state import Conversation, Waiting
from ...domain.errors import Damaged
from ...domain.events import Event, Recorded, Registry
from ...domain.principals import Principal
from ..ports import StoredEvent
from ..streams import Kind

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
        unsigned = Unsigned(event.seq, event.type == EnvelopeReceived.type)
        try:
            decoded = self.registry.decode(event.type, event.version, event.payload)
        except Damaged:
            return unsigned
        if not isinstance(decoded, Event):
            return unsigned if unsigned.is_envelope else decoded
        payload = msgspec.json.decode(event.payload)
        domain, fields = signed_part(self.stream, event.seq, decoded, payload)
        mac = Mac(payload["kid"], payload["mac"])
        return decoded if self.keyring.verify(domain, fields, mac) else unsigned


def signed_part(stream: str, seq: int, event: Event, payload: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What a MAC is for, and what it covers: an envelope's binds its conversation, all others their place as well."""
    if isinstance(event, EnvelopeReceived):
        return "envelope", envelope_fields(stream.partition(":")[2], payload)
    return "event", event_fields(stream, seq, event.type, payload)


class ConversationKind(Kind[Conversation], frozen=True):
    """The kind of one conversation's stream: its name is part of what is signed."""

    verifier: Verifier

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
        Conversation(),
        Conversation,
        CONVERSATION_EVENTS,
        evolve,
        _passed_over,
        Verifier(keyring, stream, CONVERSATION_EVENTS),
    )


def _passed_over(state: Conversation, type_: str) -> Conversation:  # noqa: ARG001 - the shape of Kind
    """Nothing is ever unreadable: see Verifier.decode."""
    return state


SCHEMA = "conversation-1"


def evolve(state: Conversation, recorded: Recorded[Any]) -> Conversation:
    """The owner and what waits: all that commands look at before the runner's events are folded."""
    match recorded.event:
        case ConversationStarted() as started if recorded.seq == 1:
            return replace(
                state,
                id=started.conversation_id,
                owner=started.owner,
                agent=started.agent,
                mode=started.mode,
                barge_in=started.barge_in,
            )
        case EnvelopeReceived() as envelope:
            waiting = Waiting(recorded.seq, envelope.id, envelope.kind, envelope.asker)
            return replace(
                state, queue=(*state.queue, waiting), is_closing=state.is_closing or envelope.kind == "close"
            )
        case _:
            return state
