"""The facts of a conversation: what its viewers may know of, a fixed number of events a turn (conversations.md).

Records (UserRecorded, ReplyRecorded) are the transcript. Every event is signed: an envelope by who took it in, all
others by the runner or, the first, by who started the conversation. What is not verifiably signed is folded by nobody.
`is_erased`: its words are gone, and this is what stays of it (erasing.py); nobody records it so.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType

from ..events import Event, Opaque, Registry
from .identity import Identity

Mode = Literal["owner", "shared"]
BargeIn = Literal["queue", "interrupt"]
EnvelopeKind = Literal["user", "close", "interrupt"]
UserStatus = Literal["accepted", "rejected"]
ReplyStatus = Literal["completed", "interrupted", "failed"]

Rejection = Literal[
    "unauthenticated",
    "malformed",
    "replayed",
    "stale",
    "edit-invalid",
    "prompt-too-large",
    "closed",
    "not-a-participant",
]
"""Why a message was not taken up as a turn."""

Failure = Literal["model-error", "denied", "turn-failed", "cancelled"]
"""Why a turn failed: all that its asker is told, beside an error id."""


class ConversationStarted(Event, frozen=True, omit_defaults=True):
    """A conversation began. The first event of its stream, and never another. handle: the caller's own name for it."""

    type: ClassVar[str] = "conversation_started"
    conversation_id: str
    owner: Identity
    agent: str
    mode: Mode
    barge_in: BargeIn
    kid: str
    mac: str
    handle: str | UnsetType = UNSET


class EnvelopeReceived(Event, frozen=True, omit_defaults=True):
    """What somebody asks for, signed by the server that took it in; acted on once it is its turn.

    id: sha256 over length-prefixed tenant, actor, on_behalf_of and message id. iat: milliseconds of Unix time.
    claims: of the sender's token, those that the settings name. edit_of: ord of the user record that this one edits.
    classes: what the sender adds. turn, seen: of an interrupt, the turn meant and the code points received of it.
    stops: of an interrupt, the id of the message whose turn is meant, be it running or waiting.
    """

    type: ClassVar[str] = "envelope_received"
    id: str
    kind: EnvelopeKind
    iat: int
    asker: Identity
    kid: str
    mac: str
    message_id: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    claims: dict[str, list[str]] | UnsetType = UNSET
    edit_of: int | UnsetType = UNSET
    classes: tuple[str, ...] | UnsetType = UNSET
    turn: int | UnsetType = UNSET
    seen: int | UnsetType = UNSET
    stops: str | UnsetType = UNSET
    is_erased: bool = False


class UserRecorded(Event, frozen=True, omit_defaults=True):
    """A message as a turn's question, or as a rejected one (turn 0).

    envelope_seq: where it was received. asker: None where nobody can be said to have sent it; then text is absent and
    digest is the SHA-256 of what was found. classes: of the context it was built on, and of what it edits.
    """

    type: ClassVar[str] = "user_recorded"
    ord: int
    turn: int
    generation: int
    status: UserStatus
    envelope_seq: int
    asker: Identity | None
    kid: str
    mac: str
    id: str | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    edit_of: int | UnsetType = UNSET
    edit_of_turn: int | UnsetType = UNSET
    classes: tuple[str, ...] = ()
    reason: Rejection | UnsetType = UNSET
    digest: str | UnsetType = UNSET
    is_erased: bool = False


class ContextDecided(Event, frozen=True, omit_defaults=True):
    """What the model is shown for a turn: ords, never text. Replayed as it is, whatever a counter says later.

    kept, evicted: ords of the user records whose turns are shown, or are left out for good. kept_tokens: of each that
    is kept. counted: tokens by ord of turns that were counted now. tokens: of the whole request, made up of `parts`.
    reserved: kept free for the answer. summary: number of the summary that is shown, 0 for none. summary_dropped: it
    did not fit this turn. prompt_digest, system_digest, tools_digest: keyed digests of the messages, of the operator's
    words and of the tool list, made with the key `kid`. model: name of the agent's model, as a viewer may know it.
    hidden: ords of questions whose turns the asker is not cleared for, in shared mode; they are left out whole.
    """

    type: ClassVar[str] = "context_decided"
    turn: int
    ord: int
    kept: tuple[int, ...]
    evicted: tuple[int, ...]
    counted: dict[str, int]
    tokens: int
    reserved: int
    summary: int
    prompt_digest: str
    tools_digest: str
    kid: str
    mac: str
    summary_dropped: bool = False
    model: str | UnsetType = UNSET
    parts: dict[str, int] | UnsetType = UNSET
    kept_tokens: tuple[int, ...] = ()
    system_digest: str | UnsetType = UNSET
    hidden: tuple[int, ...] = ()


class SummaryRecorded(Event, frozen=True, omit_defaults=True):
    """What became of folding evicted turns into the rolling summary.

    number: of the summary that holds from now on. through_turn: it covers the turns up to it. classes: of all that it
    covers. outcome `kept`: it failed, for `reason`, and the previous one (with its turns) stays.
    """

    type: ClassVar[str] = "summary_recorded"
    number: int
    through_turn: int
    outcome: Literal["replaced", "kept"]
    kid: str
    mac: str
    text: str | UnsetType = UNSET
    tokens: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    classes: tuple[str, ...] = ()
    is_erased: bool = False


class ReplyRecorded(Event, frozen=True, omit_defaults=True):
    """A turn's one end. text: what the model said in it. seen: code points of it that the asker had received, where it
    was interrupted; later prompts hold so much of it. usage: tokens by kind (`input`, `output`)."""

    type: ClassVar[str] = "reply_recorded"
    ord: int
    turn: int
    generation: int
    status: ReplyStatus
    text: str
    asker: Identity
    attempts: int
    kid: str
    mac: str
    classes: tuple[str, ...] = ()
    reason: Failure | UnsetType = UNSET
    error_id: str | UnsetType = UNSET
    truncated: bool = False
    seen: int | UnsetType = UNSET
    usage: dict[str, int] | UnsetType = UNSET
    is_erased: bool = False


class EnvelopesDropped(Event, frozen=True):
    """So many more envelopes were not verifiably ours, beyond those that have a record. through_seq: the last one."""

    type: ClassVar[str] = "envelopes_dropped"
    count: int
    through_seq: int
    kid: str
    mac: str


class ConversationRotated(Event, frozen=True):
    """A new generation began: the state is folded into `carry` (state.Carry as JSON), and loading starts here."""

    type: ClassVar[str] = "conversation_rotated"
    generation: int
    carry: dict[str, Any]
    kid: str
    mac: str


class ParticipantAdded(Event, frozen=True):
    """Somebody may take part in a shared conversation from here on. by: the owner who says so, the event's actor."""

    type: ClassVar[str] = "participant_added"
    participant: Identity
    by: Identity
    kid: str
    mac: str


class ParticipantRemoved(Event, frozen=True):
    """They may no more: their running turn stops here, and what of theirs waits becomes no turn."""

    type: ClassVar[str] = "participant_removed"
    participant: Identity
    by: Identity
    kid: str
    mac: str


class ClearanceRecorded(Event, frozen=True):
    """What a viewer of a shared conversation is cleared for from here on, so that the past can be answered.

    labels: sorted. policy: digest of the clearance settings that they come from.
    """

    type: ClassVar[str] = "clearance_recorded"
    viewer: Identity
    labels: tuple[str, ...]
    policy: str
    kid: str
    mac: str


class ConversationClosed(Event, frozen=True):
    """The conversation was sealed; nothing follows. envelope_seq: of the request."""

    type: ClassVar[str] = "conversation_closed"
    envelope_seq: int
    kid: str
    mac: str


ConversationEvent = (
    ConversationStarted
    | EnvelopeReceived
    | UserRecorded
    | ContextDecided
    | SummaryRecorded
    | ReplyRecorded
    | EnvelopesDropped
    | ConversationRotated
    | ParticipantAdded
    | ParticipantRemoved
    | ClearanceRecorded
    | ConversationClosed
)

StoredConversationEvent = ConversationEvent | Opaque

CONVERSATION_EVENTS: Registry[ConversationEvent] = Registry(
    (
        ConversationStarted,
        EnvelopeReceived,
        UserRecorded,
        ContextDecided,
        SummaryRecorded,
        ReplyRecorded,
        EnvelopesDropped,
        ConversationRotated,
        ParticipantAdded,
        ParticipantRemoved,
        ClearanceRecorded,
        ConversationClosed,
    )
)

RECORD_CLIENT = "ord"
"""origin_client of records; the origin_key is the ord: unique in the stream, and how a cursor is found."""

CONTEXT_CLIENT = "context"
"""origin_client of context_decided; the origin_key is the turn: one a turn, and how the context ledger finds it."""

PARTICIPANT_CLIENT = "participant:"
"""origin_client of participant events, with identity_key() behind it; the origin_key is the seq, as 16 digits: the
newest of a person's before a place is one look-up."""

CLEARANCE_CLIENT = "clearance:"
"""Likewise, of clearance_recorded."""


class Unsigned(Struct, frozen=True):
    """An event whose MAC is not ours. seq: its place. is_envelope: it will be recorded as unauthenticated."""

    seq: int
    is_envelope: bool
