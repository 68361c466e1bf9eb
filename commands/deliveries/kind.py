"""What the dispatcher must know of deliveries."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import msgspec

from ...domain.decisions import Decision
from ...domain.deliveries.events import DELIVERY_EVENTS
from ...domain.deliveries.state import INITIAL, SCHEMA, Delivery, evolve
from ...domain.events import Event
from ..mailbox import Decided
from ..ports import EventRow, StoredEvent
from ..streams import Kind, left_as_it_is
from .ports import STREAM

NewId = Callable[[], str]
"""Makes ULIDs."""

DELIVERY = "delivery"

MAX_EVENTS = 4000
"""Read of one delivery's stream, which is all of it: two of each of MAX_SENDS, receipts of its parts, and what
operators do."""

RETENTION_DAYS = 90
"""Of a delivery's stream, with its attempts, from its seal on."""


DELIVERY_KIND: Kind[Delivery] = Kind(DELIVERY, SCHEMA, INITIAL, Delivery, DELIVERY_EVENTS, evolve, left_as_it_is)


def stream_of(delivery_id: str) -> str:
    """The name of a delivery's stream."""
    return f"{STREAM}{delivery_id}"


def folded(events: list[StoredEvent]) -> Delivery:
    """A delivery from its whole stream. Raises Damaged."""
    return reduce(DELIVERY_KIND.fold, events, INITIAL)


def rows_of(decision: Decision, new_id: NewId) -> Decided:
    """A decision as rows. There is nothing to redact: no event of a delivery has a word of anybody's in it."""
    rows: list[EventRow] = []
    events: list[tuple[object, object]] = []
    for new in decision.events:
        if not isinstance(new.event, Event):
            continue
        raw = msgspec.Raw(msgspec.json.encode(new.event))
        actor = new.actor
        rows.append(EventRow(new_id(), new.event.type, new.event.version, raw, actor.kind, actor.id, new.origin))
        events.append((actor, new.event))
    return Decided(rows, events, decision.seal, decision.answer, decision.refusal)
