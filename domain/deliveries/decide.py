"""What becomes of a delivery on its way: planned, claimed, settled. State in, events out; time and chance handed in."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from ..decisions import Decision, NewEvent
from ..errors import Invalid
from ..events import Event
from ..ids import is_conversation_id
from ..principals import SERVER
from ..times import stamp
from .events import (
    AttemptEnded,
    AttemptStarted,
    DeliveryDied,
    DeliveryExpired,
    DeliveryPlanned,
    OrderReleased,
    Outcome,
    PartKind,
    PlannedPart,
    ReceiptNoted,
    ReceiptState,
)
from .lanes import DESTINATION, LANES, lane_of, order_of
from .retry import MAX_PARTS, MAX_SENDS, UNKNOWN_SENDS, Policy, after, clamped
from .state import Delivery, Part

UNKNOWN_OUTCOME = "unknown_outcome"
ATTEMPTS_USED = "attempts_used"
CRASH = "crash"
CHANNEL_GONE = "channel_gone"

MAX_REASON_CHARS = 64

_RECEIPTS: dict[ReceiptState | None, int] = {None: 0, "failed": 1, "delivered": 2, "observed": 3}


class Planning(Struct, frozen=True):
    """What is to be delivered, as its first event says it. See DeliveryPlanned."""

    delivery_id: str
    tenant: str
    channel: str
    destination: str
    correlation_id: str
    parts: tuple[PartKind, ...]
    keyed: bool
    codec: str
    codec_version: int
    digest: str
    lanes: int = LANES
    conversation_id: str | UnsetType = UNSET
    turn: int | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    source_tier: str | UnsetType = UNSET
    recipient: str | UnsetType = UNSET


class Sent(Struct, frozen=True):
    """How a send ended: Pushed of commands/channels/ports.py without what the log may not know."""

    outcome: Outcome
    reason: str = ""
    retry_after_s: float | None = None


def plan(planning: Planning, now: datetime, policy: Policy) -> Decision:
    """The first event. Raises Invalid for what no plan may hold."""
    if not is_conversation_id(planning.delivery_id) or not DESTINATION.fullmatch(planning.destination):
        raise Invalid.at("$.deliveryId", "is no id of a delivery, or its destination is no keyed hash")
    if not 1 <= len(planning.parts) <= MAX_PARTS:
        raise Invalid.at("$.parts", f"must be 1 to {MAX_PARTS}")
    order = order_of(planning.destination, planning.conversation_id)
    about = planning.delivery_id if planning.conversation_id is UNSET else planning.conversation_id
    return _only(
        DeliveryPlanned(
            planning.delivery_id,
            planning.tenant,
            planning.channel,
            planning.destination,
            lane_of(planning.destination, about, planning.lanes),
            planning.correlation_id,
            tuple(PlannedPart(n, kind) for n, kind in enumerate(planning.parts, 1)),
            planning.keyed,
            planning.codec,
            planning.codec_version,
            planning.digest,
            stamp(now),
            after(now, policy.expiry_s),
            order,
            UNSET if order is UNSET else after(now, policy.order_s),
            planning.conversation_id,
            planning.turn,
            planning.run_id,
            planning.source_tier,
            planning.recipient,
        )
    )


def claim(delivery: Delivery, now: datetime, policy: Policy, draw: float, behind: str | None = None) -> Decision:
    """Begin the attempt of the next part, or say what time has made of the delivery; nothing where nothing is due.

    An attempt without an end whose lease is gone becomes unknown (the crash window); what comes next is another claim.
    behind: the earlier delivery that waits and holds this one back no more. With an open attempt of one's own this is
    never called.
    """
    moment = stamp(now)
    if delivery.plan is None or delivery.is_ended:
        return Decision()
    if delivery.status == "attempting" and delivery.attempt is not None:
        if delivery.attempt.lease_until > moment:
            return Decision()
        return _ended(delivery, Sent("unknown", CRASH), now, policy, draw)
    if delivery.expires_at <= moment:
        return _expired(delivery, now, policy)
    part = delivery.next_part
    if part is None or delivery.next_at > moment:
        return Decision()
    released = () if behind is None or delivery.is_released else (OrderReleased(behind),)
    started = AttemptStarted(
        delivery.attempts + 1,
        part.n,
        part_key(delivery.plan.delivery_id, part.n),
        after(now, policy.lease_s),
    )
    return _only(*released, started)


def end_gone(delivery: Delivery, now: datetime, policy: Policy, draw: float) -> Decision:
    """There is no such channel any more: a dead letter, whatever it waits for.

    One that is being sent comes to its end first; an attempt whose sender is gone becomes unknown, and what comes next
    is another call.
    """
    if delivery.plan is None or delivery.is_ended:
        return Decision()
    if delivery.status == "attempting" and delivery.attempt is not None:
        if delivery.attempt.lease_until > stamp(now):
            return Decision()
        return _ended(delivery, Sent("unknown", CRASH), now, policy, draw)
    return _only(_died(UNKNOWN_OUTCOME if delivery.is_in_doubt else CHANNEL_GONE, now, policy))


def settle(delivery: Delivery, n: int, sent: Sent, now: datetime, policy: Policy, draw: float) -> Decision:
    """Record how attempt n ended; nothing where it is not the newest, or has its end.

    What is known at last of an attempt that ended as unknown (a late answer, a look-up) counts while nothing was sent
    again.
    """
    attempt = delivery.attempt
    if attempt is None or attempt.n != n or delivery.plan is None:
        return Decision()
    if attempt.is_open and delivery.status == "attempting":
        return _ended(delivery, sent, now, policy, draw)
    if attempt.is_unknown and delivery.status == "unknown" and sent.outcome in ("accepted", "retry", "permanent"):
        return _ended(delivery, sent, now, policy, draw)
    return Decision()


def note_receipt(
    delivery: Delivery, part: int, state: ReceiptState, now: datetime, at: str | UnsetType = UNSET
) -> Decision:
    """Forward only, on an accepted part of an accepted delivery, within its window; and on the part that is being sent:
    whoever has it may be quicker than the record of its acceptance. Else nothing."""
    found = delivery.part(part)
    if found is None or _RECEIPTS[found.receipt] >= _RECEIPTS[state]:
        return Decision()
    is_taken = delivery.status == "accepted" and found.state == "accepted" and delivery.open_until > stamp(now)
    attempt = delivery.attempt
    is_sent = attempt is not None and attempt.is_open and delivery.status == "attempting" and attempt.part == part
    return _only(ReceiptNoted(part, state, at)) if is_taken or is_sent else Decision()


def part_key(delivery_id: str, n: int) -> str:
    """What the platform knows a part by, the same in every attempt."""
    return f"{delivery_id}.{n}"


def _expired(delivery: Delivery, now: datetime, policy: Policy) -> Decision:
    if delivery.is_in_doubt:
        return _only(_died(UNKNOWN_OUTCOME, now, policy))
    return _only(DeliveryExpired())


def _ended(delivery: Delivery, sent: Sent, now: datetime, policy: Policy, draw: float) -> Decision:
    attempt = delivery.attempt
    part = None if attempt is None else delivery.part(attempt.part)
    if attempt is None or part is None:
        return Decision()
    reason = sent.reason[:MAX_REASON_CHARS]
    if delivery.is_withdrawn:
        state = "accepted" if sent.outcome == "accepted" and not _others(delivery, part) else "cancelled"
        window = after(now, policy.receipt_s) if state == "accepted" else UNSET
        return _only(AttemptEnded(attempt.n, sent.outcome, state, reason, open_until=window))
    if sent.outcome == "accepted" or part.kind == "echo":
        return _part_done(delivery, attempt.n, part, sent, now, policy, draw)
    died = _why_dead(delivery, part, sent, policy)
    if died is not None:
        ended = AttemptEnded(attempt.n, sent.outcome, "dead", reason, retry_after_s=_asked(sent))
        return _only(ended, _died(died, now, policy))
    return _only(_waits(delivery, attempt.n, part, sent, now, policy, draw))


def _part_done(
    delivery: Delivery, n: int, part: Part, sent: Sent, now: datetime, policy: Policy, draw: float
) -> Decision:
    """After an accepted part, or an echo however it ended: the next part, or the end."""
    reason = sent.reason[:MAX_REASON_CHARS]
    if _others(delivery, part):
        wait_s = 0.0 if sent.outcome != "retry" else policy.wait_s(1, draw, sent.retry_after_s)
        next_at = min(after(now, wait_s), delivery.expires_at)
        return _only(AttemptEnded(n, sent.outcome, "planned", reason, next_at, _asked(sent)))
    if sent.outcome == "accepted" or any(each.state == "accepted" for each in delivery.parts):
        return _only(AttemptEnded(n, sent.outcome, "accepted", reason, open_until=after(now, policy.receipt_s)))
    ended = AttemptEnded(n, sent.outcome, "dead", reason)
    died = UNKNOWN_OUTCOME if sent.outcome == "unknown" else reason or ATTEMPTS_USED
    return _only(ended, _died(died, now, policy))


def _why_dead(delivery: Delivery, part: Part, sent: Sent, policy: Policy) -> str | None:
    """The reason of its death; None where it is tried again."""
    if sent.outcome == "permanent":
        return sent.reason[:MAX_REASON_CHARS] or "permanent"
    is_used_up = part.tries >= policy.attempts or delivery.attempts >= MAX_SENDS
    if sent.outcome == "unknown":
        keyed = delivery.plan is not None and delivery.plan.keyed
        is_used_up = is_used_up or (not keyed and part.unknowns + 1 >= UNKNOWN_SENDS)
        return UNKNOWN_OUTCOME if is_used_up else None
    if not is_used_up:
        return None
    return UNKNOWN_OUTCOME if part.unknowns else ATTEMPTS_USED


def _waits(
    delivery: Delivery, n: int, part: Part, sent: Sent, now: datetime, policy: Policy, draw: float
) -> AttemptEnded:
    state: Literal["unknown", "waiting"] = "unknown" if sent.outcome == "unknown" else "waiting"
    # What is due after its expiry is due at it, for its end to be said.
    next_at = min(after(now, policy.wait_s(part.tries, draw, sent.retry_after_s)), delivery.expires_at)
    return AttemptEnded(n, sent.outcome, state, sent.reason[:MAX_REASON_CHARS], next_at, _asked(sent))


def _others(delivery: Delivery, part: Part) -> bool:
    """Whether other parts are still to be sent."""
    return any(each.state == "open" and each.n != part.n for each in delivery.parts)


def _asked(sent: Sent) -> float | UnsetType:
    return UNSET if sent.retry_after_s is None else clamped(sent.retry_after_s)


def _died(reason: str, now: datetime, policy: Policy) -> DeliveryDied:
    return DeliveryDied(reason, after(now, policy.replay_s))


def _only(*events: Event) -> Decision:
    return Decision(tuple(NewEvent(event, SERVER, origin="broker") for event in events))
