"""From decided events to rows: secrets out, then the limit, and what stands for a bridge's item that cannot be kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

from ..domain.errors import Damaged, Invalid, TooLarge
from ..domain.events import Event, Unstorable
from ..domain.redaction import KeyCollision
from ..domain.rooms.context import Decision, NewEvent
from ..domain.rooms.events import ROOM_EVENTS
from .mailbox import Decided
from .ports import EventRow, Redact


def encode(decision: Decision, redact: Redact, payload_bytes: int, new_id: Callable[[], str]) -> Decided:
    """A decision as rows, and as the events that the state is folded from: those that are stored, without secrets.

    payload_bytes: limit of a payload once it is redacted, as compact JSON. From a bridge, what cannot be stored becomes
    a placeholder in its slot (rooms.md, the envelope); from everybody else it raises TooLarge, KeyCollision or Invalid.
    """
    rows: list[EventRow] = []
    events: list[tuple[Any, Any]] = []
    for new in decision.events:
        event, raw, redactions = _stored(new, redact, payload_bytes)
        rows.append(_row(new, new_id(), raw, redactions))
        events.append((new.actor, event))
    return Decided(rows, events, decision.seal, decision.answer, decision.refusal)


def _stored(new: NewEvent, redact: Redact, payload_bytes: int) -> tuple[Any, bytes, list[str]]:
    is_pushed = new.origin == "harness"
    try:
        payload, redactions = redact(new.payload())
    except KeyCollision:
        if not is_pushed:
            raise
        return _placeholder(new, refused=True, reason="key_collision")
    raw = msgspec.json.encode(payload)
    if len(raw) > payload_bytes:
        if not is_pushed:
            raise TooLarge(f"The payload has {len(raw)} bytes; at most {payload_bytes} are taken.")
        return _placeholder(new, oversize=True, bytes=len(raw))
    event = new.event
    if redactions and isinstance(event, Event):
        event = _read_again(event, raw)
        if event is None:
            # A value with a grammar of its own held a secret: what is left of it would be unreadable for ever.
            if not is_pushed:
                raise Invalid("A value that must be exact holds a secret; leave the secret out.")
            return _placeholder(new, refused=True, reason="secret")
    return event, raw, redactions


def _read_again(event: Event, raw: bytes) -> Event | None:
    """The event as its redacted payload says it; None where that says no such event."""
    try:
        read = ROOM_EVENTS.decode(event.type, event.version, raw)
    except Damaged:
        return None
    return read if isinstance(read, type(event)) else None


def _placeholder(new: NewEvent, **fields: Any) -> tuple[Unstorable, bytes, list[str]]:
    body = {**fields, "type": new.event.type}
    return Unstorable(new.event.type, body), msgspec.json.encode(body), []


def _row(new: NewEvent, event_id: str, raw: bytes, redactions: list[str]) -> EventRow:
    return EventRow(
        event_id,
        new.event.type,
        new.event.version,
        msgspec.Raw(raw),
        new.actor.kind,
        new.actor.id,
        new.origin,
        redactions,
        new.classes,
        UNSET if new.actor_role is None else new.actor_role,
        UNSET if new.run_id is None else new.run_id,
        UNSET if new.caused_by is None else new.caused_by,
        UNSET if new.origin_client is None else new.origin_client,
        UNSET if new.origin_key is None else new.origin_key,
    )
