"""What the runner decides: which step comes next, and the events of each. State in, unsigned events out.

A decision that the state has overtaken (the envelope was taken up, the turn has ended) comes to nothing: no events.
Events come with an empty `kid` and `mac`, as those of decide.py do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..decisions import Decision, NewEvent
from ..principals import TURN_RUNNER
from .carry import carry_of, may_be_carried
from .commands import MAX_REPLY_CHARS
from .events import (
    RECORD_CLIENT,
    ContextDecided,
    ConversationClosed,
    ConversationEvent,
    ConversationRotated,
    EnvelopeReceived,
    EnvelopesDropped,
    Failure,
    Rejection,
    ReplyRecorded,
    ReplyStatus,
    SummaryRecorded,
    UserRecorded,
)
from .fit import Fitted
from .judge import Bad, Good
from .state import DROP_BATCH, ROTATE_EVENTS, ROTATE_TURNS, Conversation, Waiting, WindowTurn
from .window import common_summary, to_summarize
from .wording import cut, repaired


class Step(Struct, frozen=True):
    """What the runner does next. run: the running turn. take: judge `waiting`, then accept or reject it.

    close: judge `waiting`, the request; if it is bad reject it, else judge and reject `other`, or close_up where there
    is none left.
    """

    name: Literal["idle", "run", "drop", "rotate", "take", "close"]
    waiting: Waiting | None = None
    other: Waiting | None = None


def next_step(conversation: Conversation) -> Step:
    """The one thing to do; idle where nothing waits or the conversation is nobody's."""
    if conversation.owner is None or conversation.state == "closed":
        return Step("idle")
    if conversation.running is not None:
        return Step("run")
    if conversation.dropped_uncounted >= DROP_BATCH:
        return Step("drop")
    if conversation.is_closing:
        request = next(each for each in conversation.queue if each.kind == "close" and not each.is_suspect)
        other = next((each for each in conversation.queue if each is not request), None)
        return Step("close", request, other)
    if is_rotation_due(conversation):
        return Step("rotate")
    return Step("take", conversation.queue[0]) if conversation.queue else Step("idle")


def is_rotation_due(conversation: Conversation) -> bool:
    """Whether a new generation begins before the next turn."""
    is_long = conversation.generation_turns >= ROTATE_TURNS or conversation.events >= ROTATE_EVENTS
    return is_long and may_be_carried(conversation)


class Shown(Struct, frozen=True):
    """What a turn's model is shown, as its ContextDecided says it. summary: number of the one in the prompt, or 0.

    hidden: see ContextDecided.
    """

    fitted: Fitted
    reserved: int
    summary: int
    prompt_digest: str
    system_digest: str
    tools_digest: str
    model: str
    hidden: tuple[int, ...] = ()


def accept(conversation: Conversation, good: Good, shown: Shown | None) -> Decision:
    """The message as the next turn's question, with what the model will be shown; `shown` is None where the agent is
    gone and the turn fails unasked. The question gets the classes of all that its context has.

    In shared mode what does not fit is left out of this turn alone: another asker's may have room for it.
    """
    if conversation.running is not None or not _waits(conversation, good.seq, for_its_asker=True):
        return Decision()
    envelope, turn, ord_ = good.envelope, conversation.turns + 1, conversation.next_ord
    recorded = UserRecorded(
        ord=ord_,
        turn=turn,
        generation=conversation.generation,
        status="accepted",
        envelope_seq=good.seq,
        asker=envelope.asker,
        kid="",
        mac="",
        **_said(envelope, good.edited),
        classes=_classes(conversation, good, shown),
    )
    events: list[ConversationEvent] = [recorded]
    if shown is not None:
        fitted = shown.fitted
        events.append(
            ContextDecided(
                turn=turn,
                ord=ord_,
                kept=fitted.kept,
                evicted=fitted.evicted if conversation.mode == "owner" else (),
                counted=fitted.counted,
                tokens=fitted.tokens,
                reserved=shown.reserved,
                summary=shown.summary,
                prompt_digest=shown.prompt_digest,
                tools_digest=shown.tools_digest,
                kid="",
                mac="",
                summary_dropped=fitted.summary_dropped,
                model=shown.model,
                parts={str(name): tokens for name, tokens in fitted.parts.items()},
                kept_tokens=fitted.kept_tokens,
                system_digest=shown.system_digest,
                hidden=shown.hidden,
            )
        )
    return _decision(events, good.seq)


def reject(conversation: Conversation, bad: Bad) -> Decision:
    """The message as a rejected record. Without a sender it keeps a digest and no word."""
    if conversation.running is not None or not _waits(conversation, bad.seq):
        return Decision()
    said: dict[str, Any] = {"digest": bad.digest} if bad.envelope is None else _said(bad.envelope, None)
    recorded = UserRecorded(
        ord=conversation.next_ord,
        turn=0,
        generation=conversation.generation,
        status="rejected",
        envelope_seq=bad.seq,
        asker=None if bad.envelope is None else bad.envelope.asker,
        kid="",
        mac="",
        reason=bad.reason,
        classes=() if bad.envelope is None or bad.envelope.classes is UNSET else bad.envelope.classes,
        **said,
    )
    return _decision([recorded], bad.seq)


def reject_good(conversation: Conversation, good: Good, reason: Rejection) -> Decision:
    """A message that passed every check and still cannot be asked: `prompt-too-large`."""
    return reject(conversation, Bad(good.seq, reason, "", good.envelope))


class Outcome(Struct, frozen=True):
    """How the running turn ended. text: all that the model said, redacted. attempts: how often it was taken up.

    classes: of the tools that were called. acknowledged: code points that the asker said to have received, sent: those
    that were sent to them; they count where it was interrupted. usage: tokens by kind.
    """

    status: ReplyStatus
    text: str = ""
    attempts: int = 1
    classes: tuple[str, ...] = ()
    reason: Failure | UnsetType = UNSET
    error_id: str | UnsetType = UNSET
    usage: dict[str, int] | UnsetType = UNSET
    acknowledged: int | None = None
    sent: int = 0


def end_turn(conversation: Conversation, turn: int, outcome: Outcome) -> Decision:
    """The running turn's one end."""
    running = conversation.running
    if running is None or running.turn != turn:
        return Decision()
    whole = repaired(outcome.text)
    text = cut(whole, MAX_REPLY_CHARS)
    is_interrupted = outcome.status == "interrupted"
    recorded = ReplyRecorded(
        ord=conversation.next_ord,
        turn=turn,
        generation=conversation.generation,
        status=outcome.status,
        text=text,
        asker=running.asker,
        attempts=outcome.attempts,
        kid="",
        mac="",
        classes=tuple(sorted({*running.classes, *outcome.classes})),
        reason=outcome.reason if outcome.status == "failed" else UNSET,
        error_id=outcome.error_id if outcome.status == "failed" else UNSET,
        truncated=len(text) < len(whole),
        seen=heard(text, outcome.acknowledged, outcome.sent) if is_interrupted else UNSET,
        usage=outcome.usage,
    )
    return _decision([recorded], running.seq)


def heard(text: str, acknowledged: int | None, sent: int) -> int:
    """Code points of a reply that its asker had: what they acknowledged, else what was sent; never half a character."""
    return len(cut(text, sent if acknowledged is None else acknowledged))


def acknowledged_by(envelopes: Iterable[EnvelopeReceived], turn: int, noted: int | None) -> int | None:
    """The furthest acknowledgement of a turn: beside the log, or in a request to interrupt that turn."""
    said = [each.seen for each in envelopes if each.turn in (UNSET, turn) and each.seen is not UNSET]
    return max([*said, *([] if noted is None else [noted])], default=None)


class NewSummary(Struct, frozen=True):
    """A summary of the one before it and of the turns up to `through_turn`. tokens: of its text."""

    text: str
    tokens: int
    through_turn: int


def record_summary(conversation: Conversation, summary: NewSummary) -> Decision:
    """The summary replaces what it covers: the one before it and turns that left the window. An empty one changes
    nothing, and is recorded so."""
    before = common_summary(conversation)
    covered = [turn for turn in to_summarize(conversation) if turn.turn <= summary.through_turn]
    if not covered:
        return Decision()
    if not summary.text.strip():
        return keep_summary(conversation, "empty")
    classes = set(() if before is None else before.classes).union(*(turn.classes for turn in covered))
    recorded = SummaryRecorded(
        number=1 if conversation.summary is None else conversation.summary.number + 1,
        through_turn=covered[-1].turn,
        outcome="replaced",
        kid="",
        mac="",
        text=repaired(summary.text),
        tokens=summary.tokens,
        classes=tuple(sorted(classes)),
    )
    return _decision([recorded])


def keep_summary(conversation: Conversation, reason: str) -> Decision:
    """Summarizing failed: the previous summary stays, and so do the turns that wait for the next one."""
    before = conversation.summary
    recorded = SummaryRecorded(
        number=0 if before is None else before.number,
        through_turn=0 if before is None else before.through_turn,
        outcome="kept",
        kid="",
        mac="",
        reason=reason,
    )
    return _decision([recorded])


def drop(conversation: Conversation, version: int) -> Decision:
    """One event that counts envelopes without a record, of which there are a hundred or more."""
    if conversation.dropped_uncounted < DROP_BATCH:
        return Decision()
    return _decision([EnvelopesDropped(conversation.dropped_uncounted, version, "", "")])


def rotate(conversation: Conversation) -> Decision:
    """A new generation, where one is due and no turn runs."""
    if conversation.running is not None or conversation.state == "closed" or not is_rotation_due(conversation):
        return Decision()
    carry = msgspec.to_builtins(carry_of(conversation), str_keys=True)
    return _decision([ConversationRotated(conversation.generation + 1, carry, "", "")])


def close_up(conversation: Conversation, request: Good, version: int) -> Decision:
    """The end of a conversation in which nothing runs and nothing else waits: what was dropped is counted, and the
    stream is sealed."""
    is_alone = [each.seq for each in conversation.queue] == [request.seq]
    if conversation.running is not None or request.envelope.kind != "close" or not is_alone:
        return Decision()
    events: list[ConversationEvent] = []
    if conversation.dropped_uncounted:
        events.append(EnvelopesDropped(conversation.dropped_uncounted, version, "", ""))
    events.append(ConversationClosed(request.seq, "", ""))
    return msgspec.structs.replace(_decision(events, request.seq), seal=True)


def _waits(conversation: Conversation, seq: int, *, for_its_asker: bool = False) -> bool:
    """Whether that envelope still waits. for_its_asker: and its asker was not taken out since it was judged."""
    found = next((each for each in conversation.queue if each.seq == seq), None)
    return conversation.state == "open" and found is not None and not (for_its_asker and found.is_removed)


def _said(envelope: EnvelopeReceived, edited: WindowTurn | None) -> dict[str, Any]:
    """What a record repeats of its envelope."""
    return {
        "id": envelope.id,
        "message_id": envelope.message_id,
        "text": envelope.text,
        "edit_of": envelope.edit_of,
        "edit_of_turn": UNSET if edited is None else edited.turn,
    }


def _classes(conversation: Conversation, good: Good, shown: Shown | None) -> tuple[str, ...]:
    """Of what the sender added, of the turn that is edited, and of all that the prompt holds."""
    found = set(() if good.envelope.classes is UNSET else good.envelope.classes)
    if good.edited is not None:
        found.update(good.edited.classes)
    if shown is not None:
        kept = frozenset(shown.fitted.kept)
        found.update(label for turn in conversation.window if turn.user_ord in kept for label in turn.classes)
        if shown.summary and conversation.summary is not None:
            found.update(conversation.summary.classes)
    return tuple(sorted(found))


def _decision(events: Iterable[ConversationEvent], caused_by: int | None = None) -> Decision:
    return Decision(tuple(_by_runner(event, caused_by) for event in events))


def _by_runner(event: ConversationEvent, caused_by: int | None) -> NewEvent:
    is_record = isinstance(event, UserRecorded | ReplyRecorded)
    return NewEvent(
        event,
        TURN_RUNNER,
        origin="broker",
        caused_by=caused_by,
        origin_client=RECORD_CLIENT if is_record else None,
        origin_key=str(event.ord) if is_record else None,
    )
