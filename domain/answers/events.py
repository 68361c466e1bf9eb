"""The facts of where an answer goes: ids, keyed hashes and reason codes only, never a native id or an address.

The stream of an answer is `answer:<id>`, where the id is a keyed hash of conversation and envelope: one a message.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType

from ..events import Event, Opaque, Registry
from .target import TargetKind

SkipReason = Literal["link_policy", "no_push", "not_linked", "not_authorized", "audience", "muted", "fan_out"]
"""Why a destination gets nothing. audience: it may not hear this. muted: its person wants no push of that kind.
fan_out: an answer goes to no more than the others."""

Form = Literal["reply", "pointer"]
"""What is sent: the answer itself or, where the channel may not carry it, that there is one, in a private chat."""


class NamedEnd(Struct, frozen=True):
    """An end that a target names. native: keyed hash."""

    channel: str
    native: str


class AnswerRequested(Event, frozen=True, omit_defaults=True):
    """A turn was sent whose answer goes somewhere. The first event of its stream, and never another.

    account: the isolation key of who asks. source: the channel that it was said on, `token` where it was the API; tier:
    its own. native, destination: keyed hashes of the end and of the place that it was said in; UNSET for the API.
    is_group: others read there, too. channels, identities: of the kinds that name them.
    """

    type: ClassVar[str] = "answer_requested"
    answer_id: str
    tenant: str
    conversation_id: str
    envelope_id: str
    correlation_id: str
    account: str
    kind: TargetKind
    source: str
    tier: str | UnsetType = UNSET
    native: str | UnsetType = UNSET
    destination: str | UnsetType = UNSET
    is_group: bool = False
    channels: tuple[str, ...] = ()
    identities: tuple[NamedEnd, ...] = ()
    echo: bool = False
    background: bool = False


class IntendedTarget(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A destination that gets a delivery. destination, recipient: keyed hashes of the address and of the end; UNSET
    where it is a channel's own destination. is_pushed: it is not the chat that was asked in, and so counts against the
    cap of its recipient. account: the isolation key of the recipient, where it is not who asked. label: the source,
    where a private answer goes to a shared place."""

    delivery_id: str
    channel: str
    destination: str
    form: Form
    recipient: str | UnsetType = UNSET
    is_pushed: bool = False
    account: str | UnsetType = UNSET
    label: str | UnsetType = UNSET


class SkippedTarget(Struct, frozen=True, rename="camel"):
    """A destination that gets nothing, and why."""

    channel: str
    reason: SkipReason


class TargetsResolved(Event, frozen=True, omit_defaults=True):
    """Where the answer goes, once and for all. turn: 0 of a message that became none. user_seq, reply_seq: its records
    in the conversation's stream. The stream is sealed with it."""

    type: ClassVar[str] = "targets_resolved"
    turn: int
    intended: tuple[IntendedTarget, ...] = ()
    skipped: tuple[SkippedTarget, ...] = ()
    user_seq: int | UnsetType = UNSET
    reply_seq: int | UnsetType = UNSET


class AnswerDropped(Event, frozen=True):
    """There will be no answer: the message was never taken up. The stream is sealed with it."""

    type: ClassVar[str] = "answer_dropped"
    reason: Literal["no_turn"] = "no_turn"


AnswerEvent = AnswerRequested | TargetsResolved | AnswerDropped

StoredAnswerEvent = AnswerEvent | Opaque

ANSWER_EVENTS: Registry[AnswerEvent] = Registry((AnswerRequested, TargetsResolved, AnswerDropped))
