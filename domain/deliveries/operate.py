"""What operators, and the ends of links, do to a delivery: cancel, replay, purge."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

from ..decisions import Decision, NewEvent
from ..errors import AlreadyEnded, NotReplayable, NotVisible
from ..events import Event
from ..principals import Principal
from ..times import stamp
from .events import DeliveryCancelled, DeliveryPurged, DeliveryReplayed
from .retry import Policy, after
from .state import Delivery

Cause = Literal[
    "inFlight",
    "accepted",
    "expired",
    "revoked",
    "unlink",
    "redaction",
    "purge",
    "replayWindow",
    "unknownOutcome",
]
"""Why a delivery cannot be replayed: the `cause` of not_replayable."""

CANCELLED_BY: dict[str, Cause] = {"unlink": "unlink", "redaction": "redaction"}
"""What a cancellation for that reason makes of a replay; after any other it is revoked."""

OPERATOR = "operator"

_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")

_SAID: dict[Cause, str] = {
    "inFlight": "It is still under way; wait for its end, or revoke it.",
    "accepted": "The platform has it; it is never sent again.",
    "expired": "Its time is over; let it be planned again.",
    "revoked": "It was revoked; let it be planned again.",
    "unlink": "Its recipient was unlinked.",
    "redaction": "What it says was redacted.",
    "purge": "Its payload was purged.",
    "replayWindow": "It died too long ago.",
    "unknownOutcome": "It may have arrived; say resendUnknown to send it all the same.",
}


def reason_code(text: str) -> str:
    """An operator's reason as the log may hold it: a code as it is, and of free words only that there were some."""
    return text if _CODE.fullmatch(text) else OPERATOR


def cancel(delivery: Delivery, reason: str, now: datetime, actor: Principal) -> Decision:
    """Nothing is sent any more. A send that has begun is recorded as what it becomes. Once more changes nothing.

    Raises NotVisible where there is no such delivery, AlreadyEnded where it ended otherwise.
    """
    if delivery.plan is None:
        raise NotVisible
    if delivery.status == "cancelled" or delivery.is_withdrawn:
        return Decision()
    if delivery.is_ended:
        raise AlreadyEnded("The delivery has ended already.", state=delivery.status)
    attempt = delivery.attempt
    under_way = attempt is not None and attempt.is_open and attempt.lease_until > stamp(now)
    return _by(actor, DeliveryCancelled(reason_code(reason), under_way))


def why_not_replayed(delivery: Delivery, now: datetime, *, resend_unknown: bool) -> Cause | None:
    """What stands against a replay; None where nothing does."""
    match delivery.status:
        case "dead":
            if delivery.is_purged:
                return "purge"
            if delivery.open_until <= stamp(now):
                return "replayWindow"
            return "unknownOutcome" if delivery.is_in_doubt and not resend_unknown else None
        case "accepted" | "expired":
            return delivery.status
        case "cancelled":
            return "purge" if delivery.is_purged else CANCELLED_BY.get(delivery.reason, "revoked")
        case _:
            return "inFlight"


def replay(
    delivery: Delivery, now: datetime, policy: Policy, actor: Principal, *, resend_unknown: bool = False
) -> Decision:
    """Send a dead letter again: the same delivery and the same keys, all its attempts anew.

    Whether policy, consent, clearance and redaction still allow it is asked at the send, as ever. Raises NotVisible,
    NotReplayable with its `cause`.
    """
    if delivery.plan is None:
        raise NotVisible
    cause = why_not_replayed(delivery, now, resend_unknown=resend_unknown)
    if cause is not None:
        raise NotReplayable(_SAID[cause], cause=cause)
    return _by(actor, DeliveryReplayed(stamp(now), after(now, policy.expiry_s), resend_unknown))


def purge(delivery: Delivery, reason: str, now: datetime, actor: Principal) -> Decision:
    """The payload goes for good; what has not ended is cancelled first. Once more changes nothing.

    Raises NotVisible.
    """
    if delivery.plan is None:
        raise NotVisible
    if delivery.is_purged:
        return Decision()
    first = () if delivery.is_ended else _events(cancel(delivery, reason, now, actor))
    return _by(actor, *first, DeliveryPurged(reason_code(reason)))


def _events(decision: Decision) -> tuple[Event, ...]:
    return tuple(new.event for new in decision.events if isinstance(new.event, Event))


def _by(actor: Principal, *events: Event) -> Decision:
    return Decision(tuple(NewEvent(event, actor) for event in events))
