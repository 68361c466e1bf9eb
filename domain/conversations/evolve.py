"""How each event moves a conversation. What is not verifiably ours is read as Unsigned and says nothing but that it is.

Time is not among what a fold may depend on: whether an envelope was stale is judged by who takes it up (judge.py).
"""

from __future__ import annotations

from typing import Any, assert_never

from msgspec import UNSET
from msgspec.structs import replace

from ..events import Opaque, Recorded, Unstorable
from .carry import read_carry
from .events import (
    ClearanceRecorded,
    ContextDecided,
    ConversationClosed,
    ConversationRotated,
    ConversationStarted,
    EnvelopeReceived,
    EnvelopesDropped,
    ParticipantAdded,
    ParticipantRemoved,
    ReplyRecorded,
    StoredConversationEvent,
    SummaryRecorded,
    Unsigned,
    UserRecorded,
)
from .identity import Identity, identity_key
from .state import (
    MAX_RECORDED_INVALID,
    Conversation,
    Running,
    SummaryRef,
    Waiting,
    WindowTurn,
    clearance_digest,
)
from .window import consumed, decided, entered

SCHEMA = "conversation.1"
"""Names the shape of Conversation. It is kept in no snapshot: a rotation is one."""

INITIAL = Conversation()
"""Before the first event: a conversation that does not exist."""

CAPPED = frozenset({"unauthenticated", "malformed", "replayed", "stale"})
"""Rejections that count against MAX_RECORDED_INVALID: anybody who writes to the database could cause them."""


def evolve(  # noqa: C901, PLR0911, PLR0912 - one case an event
    conversation: Conversation, recorded: Recorded[StoredConversationEvent | Unsigned | Unstorable]
) -> Conversation:
    """The next state, from events that were verified (reading.py). Total: it validates nothing and never raises."""
    event = recorded.event
    moved = _counted(conversation)
    match event:
        case ConversationStarted():
            return _started(moved, recorded)
        case EnvelopeReceived():
            return _received(moved, recorded.seq, event)
        case UserRecorded():
            return _recorded(moved, recorded.seq, event)
        case ContextDecided():
            running = moved.running
            if running is not None and running.turn == event.turn:
                moved = replace(moved, running=replace(running, context_seq=recorded.seq))
            return decided(moved, event.evicted, event.counted)
        case SummaryRecorded():
            return _summarized(moved, recorded.seq, event)
        case ReplyRecorded():
            return _replied(moved, recorded.seq, event)
        case EnvelopesDropped():
            left = max(0, moved.dropped_uncounted - event.count)
            return replace(moved, dropped=moved.dropped + event.count, dropped_uncounted=left)
        case ConversationRotated():
            carried = read_carry(event.carry, event.generation, recorded.seq)
            return moved if carried is None else carried
        case ParticipantAdded():
            return _joined(moved, recorded)
        case ParticipantRemoved():
            return _removed(moved, recorded)
        case ClearanceRecorded():
            known = clearance_digest(event.labels, event.policy)
            return replace(moved, clearances={**moved.clearances, identity_key(event.viewer): known})
        case ConversationClosed():
            return replace(moved, state="closed", queue=(), is_closing=False)
        case Unsigned():
            return (
                _queued(moved, Waiting(recorded.seq, is_signed=False, is_suspect=True)) if event.is_envelope else moved
            )
        case Opaque() | Unstorable():
            return moved
        case _:
            assert_never(event)


def _counted(conversation: Conversation) -> Conversation:
    return replace(conversation, events=conversation.events + 1)


def _started(conversation: Conversation, recorded: Recorded[Any]) -> Conversation:
    """The first event, and never another. An owner who is not who wrote it owns nothing, and neither does anybody."""
    event: ConversationStarted = recorded.event
    if recorded.seq != 1:
        return conversation
    return replace(
        conversation,
        id=event.conversation_id,
        owner=event.owner if event.owner.actor == str(recorded.actor) else None,
        agent=event.agent,
        mode=event.mode,
        barge_in=event.barge_in,
    )


def _is_managed(conversation: Conversation, recorded: Recorded[Any]) -> bool:
    """Whether the owner wrote a change of the participants."""
    event: ParticipantAdded | ParticipantRemoved = recorded.event
    owner = conversation.owner
    return conversation.mode == "shared" and event.by == owner and event.by.actor == str(recorded.actor)


def _joined(conversation: Conversation, recorded: Recorded[Any]) -> Conversation:
    who: Identity = recorded.event.participant
    if not _is_managed(conversation, recorded) or conversation.may_speak(who):
        return conversation
    return replace(conversation, participants=(*conversation.participants, who))


def _removed(conversation: Conversation, recorded: Recorded[Any]) -> Conversation:
    """What waits of theirs stays in the queue, marked, and their running turn is interrupted by the removal itself."""
    who: Identity = recorded.event.participant
    if not _is_managed(conversation, recorded) or who not in conversation.participants:
        return conversation
    moved = replace(
        conversation,
        participants=tuple(each for each in conversation.participants if each != who),
        queue=tuple(replace(each, is_removed=True) if each.asker == who else each for each in conversation.queue),
        clearances={key: known for key, known in conversation.clearances.items() if key != identity_key(who)},
    )
    running = moved.running
    if running is not None and running.asker == who:
        moved = replace(moved, running=_with_interrupt(running, recorded.seq))
    return moved


def _received(conversation: Conversation, seq: int, event: EnvelopeReceived) -> Conversation:
    if conversation.state == "closed":
        return conversation
    if _is_suspect(conversation, event):
        return _queued(conversation, Waiting(seq, event.id, event.kind, event.iat, event.asker, is_suspect=True))
    if event.kind == "interrupt":
        return _interrupted(consumed(conversation, event.id, event.iat), seq, event)
    waiting = Waiting(seq, event.id, event.kind, event.iat, event.asker)
    moved = _queued(conversation, waiting)
    running = moved.running
    if running is not None and interrupts(moved, waiting, running.asker):
        moved = replace(moved, running=_with_interrupt(running, seq))
    return replace(moved, is_closing=True) if event.kind == "close" else moved


def _is_suspect(conversation: Conversation, event: EnvelopeReceived) -> bool:
    return (
        not conversation.may_speak(event.asker)
        or (event.kind == "close" and event.asker != conversation.owner)
        or event.iat <= conversation.floor
        or any(each.id == event.id for each in conversation.queue)
        or any(each.id == event.id for each in conversation.consumed)
    )


def _queued(conversation: Conversation, waiting: Waiting) -> Conversation:
    """Behind all others; of suspect ones only so many as may have a record."""
    if conversation.state == "closed":
        return conversation
    if waiting.is_suspect:
        pending = sum(1 for each in conversation.queue if each.is_suspect)
        if conversation.invalid + pending >= MAX_RECORDED_INVALID:
            return replace(conversation, dropped_uncounted=conversation.dropped_uncounted + 1)
    return replace(conversation, queue=(*conversation.queue, waiting))


def interrupts(conversation: Conversation, waiting: Waiting, asker: Any) -> bool:
    """Whether an envelope that waits ends the running turn of `asker`, if it passes every check: a close does, and
    where the conversation says so a message of the same asker's own."""
    if waiting.is_suspect:
        return False
    return waiting.kind == "close" or (conversation.barge_in == "interrupt" and waiting.asker == asker)


def _interrupted(conversation: Conversation, seq: int, event: EnvelopeReceived) -> Conversation:
    """The asker's own running turn; where none runs, the one that is about to."""
    if event.stops is not UNSET:
        return _stopped(conversation, seq, event)
    running = conversation.running
    if running is not None:
        is_meant = running.asker == event.asker and event.turn in (UNSET, running.turn)
        return replace(conversation, running=_with_interrupt(running, seq)) if is_meant else conversation
    place = about_to_run(conversation)
    if place is None or event.turn not in (UNSET, conversation.turns + 1):
        return conversation
    queue = list(conversation.queue)
    if queue[place].asker == event.asker:
        queue[place] = replace(queue[place], stopped_by=seq)
    return replace(conversation, queue=tuple(queue))


def _stopped(conversation: Conversation, seq: int, event: EnvelopeReceived) -> Conversation:
    """The turn of one message of the asker's own: the running one, or one that waits."""
    running = conversation.running
    if running is not None and (running.id, running.asker) == (event.stops, event.asker):
        return replace(conversation, running=_with_interrupt(running, seq))
    queue = tuple(
        replace(each, stopped_by=seq)
        if (each.id, each.asker) == (event.stops, event.asker) and not (each.is_suspect or each.stopped_by)
        else each
        for each in conversation.queue
    )
    return replace(conversation, queue=queue)


def about_to_run(conversation: Conversation) -> int | None:
    """Place in the queue of the turn that comes next, as far as anybody can tell before it is judged."""
    if conversation.running is not None or conversation.is_closing:
        return None
    for place, each in enumerate(conversation.queue):
        if each.kind == "user" and not each.is_suspect and not each.is_removed:
            return place
    return None


def _with_interrupt(running: Running, seq: int) -> Running:
    return replace(running, interrupts=(*running.interrupts, seq))


def _recorded(conversation: Conversation, seq: int, event: UserRecorded) -> Conversation:
    waiting = next((each for each in conversation.queue if each.seq == event.envelope_seq), None)
    queue = tuple(each for each in conversation.queue if each.seq != event.envelope_seq)
    moved = replace(
        conversation,
        next_ord=event.ord + 1,
        queue=queue,
        is_closing=any(each.kind == "close" and not each.is_suspect for each in queue),
    )
    if event.id is not UNSET:
        moved = consumed(moved, event.id, 0 if waiting is None else waiting.iat)
    if event.reason in CAPPED:
        moved = replace(moved, invalid=moved.invalid + 1)
    if event.status == "rejected" or event.asker is None:
        return moved
    running = Running(
        turn=event.turn,
        ord=event.ord,
        seq=seq,
        envelope_seq=event.envelope_seq,
        id="" if event.id is UNSET else event.id,
        asker=event.asker,
        kid=event.kid,
        classes=event.classes,
    )
    if waiting is not None and waiting.stopped_by:
        running = _with_interrupt(running, waiting.stopped_by)
    for each in queue:
        if interrupts(moved, each, event.asker):
            running = _with_interrupt(running, each.seq)
    return replace(moved, turns=event.turn, generation_turns=moved.generation_turns + 1, running=running)


def _summarized(conversation: Conversation, seq: int, event: SummaryRecorded) -> Conversation:
    if event.outcome == "kept":
        return conversation
    tokens = 0 if event.tokens is UNSET else event.tokens
    return replace(
        conversation,
        summary=SummaryRef(event.number, seq, event.through_turn, tokens, event.classes),
        evicted=tuple(turn for turn in conversation.evicted if turn.turn > event.through_turn),
    )


def _replied(conversation: Conversation, seq: int, event: ReplyRecorded) -> Conversation:
    moved = replace(conversation, next_ord=event.ord + 1)
    running = conversation.running
    if running is None or running.turn != event.turn:
        return moved
    turn = WindowTurn(
        turn=event.turn,
        asker=running.asker,
        user_ord=running.ord,
        user_seq=running.seq,
        reply_ord=event.ord,
        reply_seq=seq,
        status=event.status,
        classes=event.classes,
        seen=event.seen,
    )
    return entered(replace(moved, running=None), turn)
