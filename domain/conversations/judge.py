"""What an envelope comes to when its turn comes: from what is stored of it, when, the state, and the keys.

The order of reasons is fixed, and the first that holds is the one that is recorded: unauthenticated, malformed,
replayed, not-a-participant, stale, closed, edit-invalid. That a prompt is too large is found later, by the fit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..errors import Damaged
from ..events import Opaque
from .commands import MAX_REPLY_CHARS
from .decide import envelope_id
from .events import CONVERSATION_EVENTS, EnvelopeReceived, ParticipantRemoved, Rejection
from .reading import CONVERSATION_STREAM, is_ours
from .signing import Keyring
from .state import Conversation, Waiting, WindowTurn
from .wording import is_legible

MAX_AGE_MS = 5 * 60 * 1000
"""Oldest that an envelope may have been when it was stored."""

MAX_AHEAD_MS = 60 * 1000
"""How far the clock that issued an envelope may have been ahead of the database's."""

CLAIMS_AGE_MS = 60 * 60 * 1000
"""After this the claims of an envelope count as none."""

MAX_STORED_CHARS = MAX_REPLY_CHARS
"""Longest text of an envelope at rest: masks may be longer than the secrets that they stand for."""


_NAMELESS: frozenset[Rejection] = frozenset({"unauthenticated", "malformed", "replayed"})
"""Rejections whose record names nobody and repeats nothing."""


class StoredEnvelope(Struct, frozen=True):
    """An envelope as it lies in the log. payload: JSON text. at_ms: when the database stored it, in Unix time."""

    seq: int
    version: int
    payload: str
    at_ms: int


class Good(Struct, frozen=True):
    """It may be acted on. edited: the turn that it edits, where it edits one."""

    seq: int
    envelope: EnvelopeReceived
    edited: WindowTurn | None = None


class Bad(Struct, frozen=True):
    """It may not, and gets a rejected record. envelope: absent where nobody can be said to have sent it, or where it is
    a second copy of what has a record of its own. digest: SHA-256 of its payload, in hex."""

    seq: int
    reason: Rejection
    digest: str
    envelope: EnvelopeReceived | None = None


def judge(conversation: Conversation, waiting: Waiting, stored: StoredEnvelope, keyring: Keyring) -> Good | Bad:
    """Judge an envelope that waits, be it at the head of the queue or behind a turn that it would interrupt."""
    digest = hashlib.sha256(stored.payload.encode(errors="surrogatepass")).hexdigest()
    found = _read(conversation, stored, keyring)
    if not isinstance(found, EnvelopeReceived):
        return Bad(stored.seq, found, digest)
    fault = _fault(conversation, waiting, found, stored)
    if fault is not None:
        return Bad(stored.seq, fault, digest, None if fault in _NAMELESS else found)
    return Good(stored.seq, found, _edited(conversation, found))


def _fault(
    conversation: Conversation, waiting: Waiting, envelope: EnvelopeReceived, stored: StoredEnvelope
) -> Rejection | None:
    """The first reason that holds against an envelope that is signed and readable."""
    found = _reasons(conversation, waiting, envelope, stored)
    return next((reason for holds, reason in found if holds), None)


def _reasons(
    conversation: Conversation, waiting: Waiting, envelope: EnvelopeReceived, stored: StoredEnvelope
) -> Iterator[tuple[bool, Rejection]]:
    """Whether each holds, in their order; a later one supposes that those before it do not."""
    is_known = any(each.id == envelope.id for each in conversation.consumed)
    yield not _spoke(conversation, waiting, envelope, is_known=is_known), "unauthenticated"
    yield not _is_well_formed(envelope), "malformed"
    yield waiting.is_suspect or is_known, "replayed"
    yield waiting.is_removed, "not-a-participant"
    yield not _is_fresh(envelope, stored), "stale"
    yield conversation.is_closing and envelope.kind != "close", "closed"
    yield not _may_edit(conversation, envelope), "edit-invalid"


def _spoke(conversation: Conversation, waiting: Waiting, envelope: EnvelopeReceived, *, is_known: bool) -> bool:
    """Whether its asker might say that when it was received: who was taken out while it waited might.

    What is suspect though it was neither taken up before nor is older than the floor came from somebody who might not,
    whatever they may now.
    """
    if envelope.asker == conversation.owner:
        return True
    if envelope.kind == "close" or (waiting.is_suspect and not is_known and envelope.iat > conversation.floor):
        return False
    return waiting.is_removed or conversation.may_speak(envelope.asker)


def judge_removal(conversation: Conversation, removed: object) -> bool:
    """Whether an event that the running turn lists, read with the keys, takes its asker out of the participants."""
    running = conversation.running
    return (
        isinstance(removed, ParticipantRemoved)
        and running is not None
        and removed.participant == running.asker
        and removed.by == conversation.owner
    )


def judge_interrupt(conversation: Conversation, stored: StoredEnvelope, keyring: Keyring) -> EnvelopeReceived | None:
    """An envelope that the running turn lists as interrupting it: the envelope if it passes every check, else None."""
    waiting = next((each for each in conversation.queue if each.seq == stored.seq), None)
    if waiting is not None:
        judged = judge(conversation, waiting, stored, keyring)
        return judged.envelope if isinstance(judged, Good) else None
    found = _read(conversation, stored, keyring)  # a request to interrupt: the fold has taken it up already
    if not isinstance(found, EnvelopeReceived) or found.kind != "interrupt" or not conversation.may_speak(found.asker):
        return None
    return found if _is_fresh(found, stored) else None


def claims_at(envelope: EnvelopeReceived, now_ms: int) -> dict[str, list[str]]:
    """The claims of its sender's token; none when they are older than an hour or from the future."""
    is_recent = -MAX_AHEAD_MS <= now_ms - envelope.iat <= CLAIMS_AGE_MS
    return {} if envelope.claims is UNSET or not is_recent else envelope.claims


def _read(conversation: Conversation, stored: StoredEnvelope, keyring: Keyring) -> EnvelopeReceived | Rejection:
    try:
        raw = msgspec.json.decode(stored.payload)
    except msgspec.DecodeError:
        return "unauthenticated"
    stream = CONVERSATION_STREAM + conversation.id
    if not is_ours(keyring, stream, stored.seq, EnvelopeReceived.type, raw):
        return "unauthenticated"
    try:
        found = CONVERSATION_EVENTS.decode(EnvelopeReceived.type, stored.version, stored.payload)
    except Damaged:
        return "malformed"
    return found if isinstance(found, EnvelopeReceived) and not isinstance(found, Opaque) else "malformed"


def _is_well_formed(envelope: EnvelopeReceived) -> bool:
    """Whether it says what its kind takes, under the id that its sender and message id give."""
    message_id = envelope.message_id
    if message_id is UNSET or envelope.id != envelope_id(envelope.asker, message_id) or envelope.iat < 0:
        return False
    if envelope.kind != "user":
        return envelope.text is UNSET and envelope.edit_of is UNSET
    return _is_text(envelope.text)


def _is_text(text: str | UnsetType) -> bool:
    return isinstance(text, str) and len(text) <= MAX_STORED_CHARS and "\0" not in text and is_legible(text)


def _is_fresh(envelope: EnvelopeReceived, stored: StoredEnvelope) -> bool:
    return -MAX_AHEAD_MS <= stored.at_ms - envelope.iat <= MAX_AGE_MS


def _may_edit(conversation: Conversation, envelope: EnvelopeReceived) -> bool:
    """Whether it edits nothing, a turn in the window, or the running one, whose turn will be over when it is asked."""
    running = conversation.running
    is_running = running is not None and running.ord == envelope.edit_of and running.asker == envelope.asker
    return envelope.edit_of is UNSET or is_running or _edited(conversation, envelope) is not None


def _edited(conversation: Conversation, envelope: EnvelopeReceived) -> WindowTurn | None:
    """The turn of the sender's own that is still in the window."""
    found = (turn for turn in conversation.window if turn.user_ord == envelope.edit_of)
    return next((turn for turn in found if turn.asker == envelope.asker), None)
