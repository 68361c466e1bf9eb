"""The facts of a delivery: ids, digests, reason codes and keyed hashes, never a text or a native id (delivery.md)."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType

from ..events import Event, Opaque, Registry

PartKind = Literal["reply", "echo", "pointer", "notice"]
Outcome = Literal["accepted", "retry", "permanent", "unknown", "withdrawn"]
"""How a send ended, as Pushed of commands/channels/ports.py says it; withdrawn: nothing was sent, since the delivery
was cancelled right before."""

ReceiptState = Literal["failed", "delivered", "observed"]
"""In the order in which they may follow each other; each at most once for a part."""


class PlannedPart(Struct, frozen=True, rename="camel"):
    """n: from 1, in the order of sending; its key is `<delivery id>.<n>`."""

    n: int
    kind: PartKind


class DeliveryPlanned(Event, frozen=True, omit_defaults=True):
    """A payload is to go to a destination. The first event of its stream, and never another.

    destination: HMAC of tenant, channel and address, `h:` and 32 hex digits. lane: what is sent one after another, see
    lanes.py. order: digest of conversation and destination, within which deliveries keep their order; UNSET where there
    is none. recipient: HMAC of the end that it goes to; UNSET where that is a channel's own destination. keyed: the
    channel takes our key, so that a second send changes nothing. digest: SHA-256 of the payload at rest. due_at,
    expires_at: as Recorded time is written (times.py).
    """

    type: ClassVar[str] = "delivery_planned"
    delivery_id: str
    tenant: str
    channel: str
    destination: str
    lane: str
    correlation_id: str
    parts: tuple[PlannedPart, ...]
    keyed: bool
    codec: str
    codec_version: int
    digest: str
    due_at: str
    expires_at: str
    order: str | UnsetType = UNSET
    order_until: str | UnsetType = UNSET
    conversation_id: str | UnsetType = UNSET
    turn: int | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    source_tier: str | UnsetType = UNSET
    recipient: str | UnsetType = UNSET


class AttemptStarted(Event, frozen=True):
    """A part is about to be sent. Whoever finds the attempt open after lease_until knows that its sender is gone.

    n: of the delivery's attempts, from 1. key: of the part, the same in each attempt.
    """

    type: ClassVar[str] = "attempt_started"
    n: int
    part: int
    key: str
    lease_until: str


class AttemptEnded(Event, frozen=True, omit_defaults=True):
    """How attempt n ended, and where the delivery stands now.

    An attempt that ended as unknown may end once more, by proof of what became of it. reason: a code. state dead comes
    with a delivery_died behind it. next_at: not sooner is anything sent. retry_after_s: as the platform asked, clamped.
    open_until: of an accepted one, how long receipts are taken.
    """

    type: ClassVar[str] = "attempt_ended"
    n: int
    outcome: Outcome
    state: Literal["planned", "waiting", "unknown", "accepted", "cancelled", "dead"]
    reason: str = ""
    next_at: str | UnsetType = UNSET
    retry_after_s: float | UnsetType = UNSET
    open_until: str | UnsetType = UNSET


class OrderReleased(Event, frozen=True):
    """It goes although an earlier one of its conversation and destination waits. behind: the id of that one."""

    type: ClassVar[str] = "order_released"
    behind: str


class DeliveryCancelled(Event, frozen=True, omit_defaults=True):
    """Nothing is sent from now on. under_way: an attempt is open, and is recorded as what it becomes."""

    type: ClassVar[str] = "delivery_cancelled"
    reason: str
    under_way: bool = False


class DeliveryExpired(Event, frozen=True):
    """Its time is over, and nothing of what was to go out is in doubt."""

    type: ClassVar[str] = "delivery_expired"


class DeliveryDied(Event, frozen=True):
    """It is a dead letter. reason: a code; unknown_outcome where what was sent may have arrived. replay_until: how long
    an operator may replay it."""

    type: ClassVar[str] = "delivery_died"
    reason: str
    replay_until: str


class DeliveryReplayed(Event, frozen=True, omit_defaults=True):
    """An operator sends a dead letter again, with all its attempts anew; parts that were accepted stay so."""

    type: ClassVar[str] = "delivery_replayed"
    due_at: str
    expires_at: str
    resend_unknown: bool = False


class ReceiptNoted(Event, frozen=True, omit_defaults=True):
    """The platform, or whoever received it, says more of an accepted part, perhaps before that is recorded. at: when,
    as they say."""

    type: ClassVar[str] = "receipt_noted"
    part: int
    state: ReceiptState
    at: str | UnsetType = UNSET


class DeliveryPurged(Event, frozen=True):
    """The payload is gone for good; this stream is its tombstone. reason: a code."""

    type: ClassVar[str] = "delivery_purged"
    reason: str


DeliveryEvent = (
    DeliveryPlanned
    | AttemptStarted
    | AttemptEnded
    | OrderReleased
    | DeliveryCancelled
    | DeliveryExpired
    | DeliveryDied
    | DeliveryReplayed
    | ReceiptNoted
    | DeliveryPurged
)

StoredDeliveryEvent = DeliveryEvent | Opaque

DELIVERY_EVENTS: Registry[DeliveryEvent] = Registry(
    (
        DeliveryPlanned,
        AttemptStarted,
        AttemptEnded,
        OrderReleased,
        DeliveryCancelled,
        DeliveryExpired,
        DeliveryDied,
        DeliveryReplayed,
        ReceiptNoted,
        DeliveryPurged,
    )
)
