"""One of each event of deliveries with everything in it, and a plan to begin tests with."""

from __future__ import annotations

from datetime import UTC, datetime

from minutebook.domain.deliveries.decide import Planning
from minutebook.domain.deliveries.events import (
    AttemptEnded,
    AttemptStarted,
    DeliveryCancelled,
    DeliveryDied,
    DeliveryEvent,
    DeliveryExpired,
    DeliveryPlanned,
    DeliveryPurged,
    DeliveryReplayed,
    OrderReleased,
    PartKind,
    PlannedPart,
    ReceiptNoted,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ID = "deli" * 6 + "aa"
HERE = "h:" + "0123456789abcdef" * 2
AT = "2026-11-30T12:00:00.000000Z"
LATER = "2026-12-01T12:00:00.000000Z"

DELIVERY_SAMPLES: tuple[DeliveryEvent, ...] = (
    DeliveryPlanned(
        ID,
        "acme",
        "hook",
        HERE,
        f"{HERE}/3",
        "corr-1",
        (PlannedPart(1, "echo"), PlannedPart(2, "reply")),
        True,
        "webhook",
        1,
        "ab" * 32,
        AT,
        LATER,
        "cd" * 16,
        AT,
        "conv" * 6 + "aa",
        7,
        "run-1",
        "internal",
    ),
    AttemptStarted(1, 1, f"{ID}.1", AT),
    AttemptEnded(1, "retry", "waiting", "http_503", LATER, 30.0, LATER),
    OrderReleased("deli" * 6 + "bb"),
    DeliveryCancelled("unlink", True),
    DeliveryExpired(),
    DeliveryDied("unknown_outcome", LATER),
    DeliveryReplayed(AT, LATER, True),
    ReceiptNoted(2, "delivered", AT),
    DeliveryPurged("operator"),
)


def planning(*parts: PartKind, keyed: bool = True, conversation: str | None = None, id_: str = ID) -> Planning:
    """A plan of those parts; a reply where none is named."""
    made = Planning(id_, "acme", "hook", HERE, "corr-1", parts or ("reply",), keyed, "webhook", 1, "ab" * 32)
    if conversation is None:
        return made
    return Planning(
        id_, "acme", "hook", HERE, "corr-1", parts or ("reply",), keyed, "webhook", 1, "ab" * 32, 4, conversation
    )
