"""What people ask for, taken in: one signed event, acted on once it is its turn (conversations.md, Trust)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from ..decisions import Decision, NewEvent
from ..errors import Invalid, QueueFull, Sealed
from ..principals import Principal
from .commands import CloseConversation, InterruptTurn, SendTurn, StartConversation
from .events import ConversationStarted, EnvelopeKind, EnvelopeReceived
from .identity import Identity
from .state import Conversation

MAX_WAITING_TURNS = 64
"""Turns of a conversation that may wait."""

QUEUE_RETRY_MS = 1000
"""When whoever met a full queue may try again."""

UNSIGNED = ""
"""Stands for a kid and a mac until the event has its place."""


class Received(Struct, frozen=True):
    """Who asks, and when. actor: the principal of the event. claims: of the token, those that the settings name.

    fresh_id: names what came without a message id.
    """

    asker: Identity
    actor: Principal
    now: datetime
    claims: Mapping[str, tuple[str, ...]]
    fresh_id: str


def start(conversation_id: str, command: StartConversation, received: Received, agents: Collection[str]) -> Decision:
    """The first event of a conversation. agents: names in the settings. Raises Invalid."""
    if command.mode != "owner":
        raise Invalid.at("$.mode", "must be owner")
    if command.agent not in agents:
        raise Invalid.at("$.agent", "is no agent of this server")
    event = ConversationStarted(
        conversation_id,
        received.asker,
        command.agent,
        command.mode,
        command.barge_in,
        UNSIGNED,
        UNSIGNED,
        command.id,
    )
    return Decision((NewEvent(event, received.actor),), answer={"id": conversation_id})


def send_turn(state: Conversation, command: SendTurn, received: Received) -> Decision:
    """A message for a turn of its own. Raises Sealed, QueueFull, Invalid."""
    _require_open(state)
    if sum(1 for each in state.queue if each.kind == "user" and each.is_signed) >= MAX_WAITING_TURNS:
        raise QueueFull(
            f"{MAX_WAITING_TURNS} messages wait for this agent already; try again later.", retryAfterMs=QUEUE_RETRY_MS
        )
    text = command.text.replace("\0", "")
    if not text:
        raise Invalid.at("$.text", "must hold more than NUL characters")
    message_id = received.fresh_id if command.message_id is UNSET else command.message_id
    claims = {name: list(values) for name, values in received.claims.items()}
    return _envelope(
        "user",
        received,
        message_id,
        message_id=message_id,
        text=text,
        claims=claims or UNSET,
        edit_of=command.edit_of,
        classes=command.classes or UNSET,
    )


def interrupt_turn(state: Conversation, command: InterruptTurn, received: Received) -> Decision:
    """A stop for the asker's own turn, the running one or the one about to run; nothing where there is none, or where
    it is stopped already. Raises Sealed."""
    _require_open(state)
    running = state.running
    if running is not None and (running.asker != received.asker or running.interrupts):
        return Decision()
    if running is None and not any(each.kind == "user" and each.asker == received.asker for each in state.queue):
        return Decision()
    return _envelope("interrupt", received, received.fresh_id, turn=command.turn, seen=command.seen)


def close_conversation(state: Conversation, command: CloseConversation, received: Received) -> Decision:  # noqa: ARG001
    """The request to close. Raises Sealed."""
    _require_open(state)
    return _envelope("close", received, received.fresh_id)


def envelope_id(asker: Identity, message_id: str) -> str:
    """The same for the same message of the same sender, in whatever conversation: 64 hex digits."""
    digest = hashlib.sha256()
    for part in (asker.tenant, asker.actor, asker.on_behalf_of, message_id):
        digest.update(b"-" if isinstance(part, UnsetType) else b"%d:%b" % (len(part.encode()), part.encode()))
    return digest.hexdigest()


def _require_open(state: Conversation) -> None:
    if state.state == "closed" or state.is_closing:
        raise Sealed("The conversation is closed.")


def _envelope(kind: EnvelopeKind, received: Received, named: str, **fields: Any) -> Decision:
    id_ = envelope_id(received.asker, named)
    iat = int(received.now.timestamp() * 1000)
    event = EnvelopeReceived(id_, kind, iat, received.asker, UNSIGNED, UNSIGNED, **fields)
    return Decision((NewEvent(event, received.actor),), answer={"id": id_})
