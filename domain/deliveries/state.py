"""The state of a delivery, and how each event moves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, assert_never

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ..events import Opaque, Recorded
from .events import (
    AttemptEnded,
    AttemptStarted,
    DeliveryCancelled,
    DeliveryDied,
    DeliveryExpired,
    DeliveryPlanned,
    DeliveryPurged,
    DeliveryReplayed,
    OrderReleased,
    PartKind,
    ReceiptNoted,
    ReceiptState,
    StoredDeliveryEvent,
)

Status = Literal["none", "planned", "attempting", "waiting", "unknown", "accepted", "dead", "cancelled", "expired"]

TERMINAL: frozenset[Status] = frozenset({"accepted", "dead", "cancelled", "expired"})

SCHEMA = "delivery-1"


class Part(Struct, frozen=True):
    """Where a part stands. tries: sends since the plan or the replay. unknowns: those of which nobody knows what became
    of them. A dropped part is sent no more, and holds nothing back."""

    n: int
    kind: PartKind
    state: Literal["open", "accepted", "dropped"] = "open"
    tries: int = 0
    unknowns: int = 0
    receipt: ReceiptState | None = None


class Attempt(Struct, frozen=True):
    """The newest attempt. is_unknown: it ended, and nobody knows how."""

    n: int
    part: int
    lease_until: str
    is_open: bool = True
    is_unknown: bool = False


class Delivery(Struct, frozen=True):
    """A delivery. next_at: not sooner is anything sent. reason: of the last attempt or of the end. open_until: how long
    receipts or a replay are taken, of an ended one. is_withdrawn: cancelled while an attempt is open."""

    plan: DeliveryPlanned | None = None
    status: Status = "none"
    parts: tuple[Part, ...] = ()
    attempt: Attempt | None = None
    attempts: int = 0
    next_at: str = ""
    expires_at: str = ""
    reason: str = ""
    open_until: str = ""
    is_withdrawn: bool = False
    is_purged: bool = False
    is_released: bool = False

    @property
    def is_ended(self) -> bool:
        """Whether its state is a terminal one."""
        return self.status in TERMINAL

    @property
    def next_part(self) -> Part | None:
        """The part to send next."""
        return next((part for part in self.parts if part.state == "open"), None)

    @property
    def is_in_doubt(self) -> bool:
        """Whether something that counts as not sent may have arrived."""
        return any(part.state == "open" and part.unknowns for part in self.parts)

    def part(self, n: int) -> Part | None:
        """The part with that number."""
        return self.parts[n - 1] if 1 <= n <= len(self.parts) else None


INITIAL = Delivery()


def evolve(delivery: Delivery, recorded: Recorded[StoredDeliveryEvent]) -> Delivery:  # noqa: C901, PLR0911, PLR0912 - one branch an event
    """One event further."""
    match recorded.event:
        case DeliveryPlanned() as plan:
            parts = tuple(Part(each.n, each.kind) for each in plan.parts)
            return replace(
                delivery, plan=plan, status="planned", parts=parts, next_at=plan.due_at, expires_at=plan.expires_at
            )
        case AttemptStarted(n=n, part=part, lease_until=lease_until):
            parts = _with(delivery, part, lambda each: replace(each, tries=each.tries + 1))
            return replace(
                delivery, status="attempting", parts=parts, attempt=Attempt(n, part, lease_until), attempts=n
            )
        case AttemptEnded() as ended:
            return _end_attempt(delivery, ended)
        case OrderReleased():
            return replace(delivery, is_released=True)
        case DeliveryCancelled(reason=reason, under_way=under_way):
            if under_way:
                return replace(delivery, is_withdrawn=True, reason=reason)
            return replace(delivery, status="cancelled", reason=reason, attempt=_closed(delivery.attempt))
        case DeliveryExpired():
            return replace(delivery, status="expired", reason="expired")
        case DeliveryDied(reason=reason, replay_until=replay_until):
            return replace(delivery, status="dead", reason=reason, open_until=replay_until)
        case DeliveryReplayed() as replayed:
            return _again(delivery, replayed)
        case ReceiptNoted(part=part, state=state):
            return replace(delivery, parts=_with(delivery, part, lambda each: replace(each, receipt=state)))
        case DeliveryPurged():
            return replace(delivery, is_purged=True)
        case Opaque():
            return delivery
        case _ as unreachable:
            assert_never(unreachable)


def _end_attempt(delivery: Delivery, ended: AttemptEnded) -> Delivery:
    attempt = delivery.attempt
    if attempt is None or attempt.n != ended.n:
        return delivery
    is_late = not attempt.is_open
    parts = _with(delivery, attempt.part, lambda part: _moved(part, ended, is_late=is_late))
    return replace(
        delivery,
        status=ended.state,
        parts=parts,
        attempt=replace(attempt, is_open=False, is_unknown=ended.outcome == "unknown"),
        next_at=delivery.next_at if ended.next_at is UNSET else ended.next_at,
        open_until=delivery.open_until if ended.open_until is UNSET else ended.open_until,
        reason=delivery.reason if ended.state == "cancelled" else ended.reason,
        is_withdrawn=False,
    )


def _moved(part: Part, ended: AttemptEnded, *, is_late: bool) -> Part:
    """A part after its attempt. An echo is tried once: it holds no reply back, and comes never behind it."""
    if ended.outcome == "accepted":
        return replace(part, state="accepted", unknowns=0)
    if part.kind == "echo":
        return replace(part, state="dropped")
    if ended.outcome == "unknown":
        return replace(part, unknowns=part.unknowns + 1)
    return replace(part, unknowns=max(0, part.unknowns - 1)) if is_late else part


def _again(delivery: Delivery, replayed: DeliveryReplayed) -> Delivery:
    return replace(
        delivery,
        status="planned",
        parts=tuple(
            replace(part, tries=0, unknowns=0 if replayed.resend_unknown else part.unknowns) for part in delivery.parts
        ),
        next_at=replayed.due_at,
        expires_at=replayed.expires_at,
        reason="",
        open_until="",
    )


def _closed(attempt: Attempt | None) -> Attempt | None:
    return None if attempt is None else replace(attempt, is_open=False)


_Change = Callable[[Part], Part]


def _with(delivery: Delivery, n: int, change: _Change) -> tuple[Part, ...]:
    return tuple(change(part) if part.n == n else part for part in delivery.parts)
