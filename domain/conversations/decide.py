"""What people ask of a conversation: state, command and context in; unsigned events out, or one refusal.

Events come with an empty `kid` and `mac`. Who appends them takes secrets out first and signs what is left, at the place
that each event gets; an append that conflicts decides again.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from ..decisions import Decision, NewEvent
from ..errors import AlreadyEnded, Forbidden, Invalid, KeyReused, NotVisible, QueueFull, Sealed
from ..principals import Principal
from .commands import CancelTurn, CloseConversation, InterruptTurn, SendTurn, StartConversation
from .events import ConversationStarted, EnvelopeKind, EnvelopeReceived
from .evolve import about_to_run
from .identity import Identity, prefixed_digest
from .state import MAX_WAITING_PER_ASKER, MAX_WAITING_SHARED, MAX_WAITING_TURNS, Conversation
from .wording import checked_text

QUEUE_RETRY_MS = 1000
"""When who met a full queue may try again."""

NOT_MAPPED = (
    "A token that acts for somebody starts no shared conversation, unless the server's settings map it"
    " (conversations.delegates); use a token of your own."
)

MAX_STOPS = 8
"""Envelopes that interrupt a turn before a further request to stop it changes nothing."""

MAX_LIVE_CLASSES = 64
"""Data classes that the live part of a conversation may have before a sender may add no more."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Received(Struct, frozen=True):
    """What the server knows of a request. actor: the asker's own, as whom the event is written. now: its clock.

    claims: of the token, those that the settings name. fresh_id: a new message id, for a command that has none.
    waiting_turns: so many may wait in owner-only mode; below carry.MAX_CARRIED_QUEUE.
    """

    asker: Identity
    actor: Principal
    now: datetime
    claims: Mapping[str, tuple[str, ...]]
    fresh_id: str
    waiting_turns: int = MAX_WAITING_TURNS


def start(
    conversation_id: str,
    command: StartConversation,
    received: Received,
    agents: Container[str],
    unshared: Container[str] = (),
) -> Decision:
    """A new conversation of the asker's. Raises Invalid for an agent that there is not, and for a shared one with an
    agent among `unshared`; Forbidden for a shared one of somebody who acts for another: each of its turns runs as its
    asker alone."""
    if command.agent not in agents:
        raise Invalid.at("$.agent", "is no agent of this server")
    if command.mode == "shared" and command.agent in unshared:
        raise Invalid.at(
            "$.agent", "has one memory of all who ask it, and none for a shared conversation; name another agent"
        )
    if command.mode == "shared" and received.asker.on_behalf_of is not UNSET:
        raise Forbidden(NOT_MAPPED)
    started = ConversationStarted(
        conversation_id=conversation_id,
        owner=received.asker,
        agent=command.agent,
        mode=command.mode,
        barge_in=command.barge_in,
        kid="",
        mac="",
        handle=command.id,
    )
    return Decision((NewEvent(started, received.actor),), answer={"id": conversation_id})


def send_turn(conversation: Conversation, command: SendTurn, received: Received) -> Decision:
    """One more turn at the end of the queue; what becomes of it is a record with the answer's id.

    Raises NotVisible, Sealed, Invalid for the text or classes, QueueFull where too many turns wait, KeyReused for a
    message id that the conversation knows (a retry meets its stored answer before that).
    """
    allow(conversation, received)
    text = checked_text(command.text)
    message_id = received.fresh_id if command.message_id is UNSET else command.message_id
    envelope = _envelope(
        conversation,
        received,
        "user",
        message_id,
        text=text,
        edit_of=command.edit_of,
        classes=_classes(conversation, received.asker, command.classes),
    )
    if _is_known(conversation, envelope.id):
        raise KeyReused("This messageId was used before; use a new one for another message.")
    _refuse_full(conversation, received)
    return Decision((NewEvent(envelope, received.actor),), answer={"id": envelope.id})


def interrupt_turn(conversation: Conversation, command: InterruptTurn, received: Received) -> Decision:
    """Stop the caller's own running turn, or the one of theirs that is about to begin; else nothing happens.

    Raises NotVisible, Sealed.
    """
    allow(conversation, received)
    turn = _turn_to_stop(conversation, received.asker)
    if turn is None or command.turn not in (UNSET, turn):
        return Decision()
    envelope = _envelope(conversation, received, "interrupt", received.fresh_id, turn=turn, seen=command.seen)
    return Decision((NewEvent(envelope, received.actor),))


def cancel_turn(conversation: Conversation, command: CancelTurn, received: Received) -> Decision:
    """Stop the turn of one message of the caller's own. One that waits still gets its place, and ends there before its
    model is asked; nothing happens where it will end without that.

    Raises NotVisible, AlreadyEnded where the message waits no more and its turn does not run.
    """
    if not conversation.may_speak(received.asker):
        raise NotVisible
    running = conversation.running
    if running is not None and running.id == command.envelope_id and running.asker == received.asker:
        is_stopped, turn = len(running.interrupts) >= MAX_STOPS, running.turn
    else:
        waiting = next((each for each in conversation.queue if each.id == command.envelope_id), None)
        if waiting is None or waiting.asker != received.asker:
            raise AlreadyEnded("The turn has ended already.")
        is_stopped, turn = bool(waiting.stopped_by), UNSET
    if is_stopped or conversation.is_closing:
        return Decision()
    stops = command.envelope_id
    envelope = _envelope(conversation, received, "interrupt", received.fresh_id, turn=turn, stops=stops)
    return Decision((NewEvent(envelope, received.actor),))


def close_conversation(
    conversation: Conversation,
    command: CloseConversation,  # noqa: ARG001 - the shape of every decision
    received: Received,
) -> Decision:
    """Ask for the end: the running turn is interrupted, what waits is rejected. Raises NotVisible, also for a
    participant who is not the owner; Sealed."""
    if conversation.owner != received.asker:
        raise NotVisible
    allow(conversation, received)
    return Decision((NewEvent(_envelope(conversation, received, "close", received.fresh_id), received.actor),))


def envelope_id(identity: Identity, message_id: str) -> str:
    """sha256 over length-prefixed tenant, actor, onBehalfOf and message id, 64 hex digits."""
    return prefixed_digest(identity.tenant, identity.actor, identity.on_behalf_of, message_id)


def milliseconds(at: datetime) -> int:
    """Milliseconds of Unix time, rounded down; exact, whatever the time zone."""
    return (at - _EPOCH) // timedelta(milliseconds=1)


def allow(conversation: Conversation, received: Received) -> None:
    """Raises NotVisible for who has no part in the conversation, Sealed where it is closed or about to be."""
    if not conversation.may_speak(received.asker):
        raise NotVisible
    if conversation.state == "closed" or conversation.is_closing:
        raise Sealed("This conversation is closed; start a new one to go on.")


def _refuse_full(conversation: Conversation, received: Received) -> None:
    """Raises QueueFull: in a shared conversation each asker has places of their own."""
    most, waiting = received.waiting_turns, conversation.waiting_turns
    said = f"{most} turns wait already"
    if conversation.mode == "shared":
        most = min(most, MAX_WAITING_PER_ASKER)
        own = conversation.waiting_turns_of(received.asker)
        said = f"{own} of your turns wait already"
        waiting = most if waiting >= MAX_WAITING_SHARED else own
    if waiting >= most:
        raise QueueFull(f"{said}; send it again when some are done.", retryAfterMs=QUEUE_RETRY_MS)


def _envelope(
    conversation: Conversation, received: Received, kind: EnvelopeKind, message_id: str, **said: Any
) -> EnvelopeReceived:
    claims = {name: list(values) for name, values in received.claims.items()}
    return EnvelopeReceived(
        id=envelope_id(received.asker, message_id),
        kind=kind,
        # A clock that was set back would issue what is dead already.
        iat=max(milliseconds(received.now), conversation.floor + 1),
        asker=received.asker,
        kid="",
        mac="",
        message_id=message_id,
        claims=claims or UNSET,
        **said,
    )


def _is_known(conversation: Conversation, id_: str) -> bool:
    """Whether it waits or was taken up."""
    return any(each.id == id_ for each in (*conversation.queue, *conversation.consumed))


def _classes(
    conversation: Conversation, who: Identity, added: tuple[str, ...] | UnsetType
) -> tuple[str, ...] | UnsetType:
    """What a sender adds, sorted; of a shared conversation only their own turns count, so that a refusal tells nothing
    of others' classes. Raises Invalid."""
    if added is UNSET or not added:
        return UNSET
    live = set(added)
    running = () if conversation.running is None else (conversation.running,)
    for turn in (*conversation.window, *conversation.evicted, *running):
        if conversation.mode == "owner" or turn.asker == who:
            live.update(turn.classes)
    if conversation.summary is not None:
        live.update(conversation.summary.classes)
    if len(live) > MAX_LIVE_CLASSES:
        raise Invalid.at("$.classes", f"your turns here would have more than {MAX_LIVE_CLASSES} classes")
    return tuple(sorted(set(added)))


def _turn_to_stop(conversation: Conversation, who: Identity) -> int | None:
    running = conversation.running
    if running is not None:
        return running.turn if running.asker == who and len(running.interrupts) < MAX_STOPS else None
    place = about_to_run(conversation)
    if place is None or conversation.queue[place].asker != who or conversation.queue[place].stopped_by:
        return None
    return conversation.turns + 1
