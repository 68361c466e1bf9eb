"""From decided events of conversations and turns to rows: secrets out, then signed at their place, then the limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from ...domain.conversations.events import (
    CLEARANCE_CLIENT,
    CONTEXT_CLIENT,
    PARTICIPANT_CLIENT,
    RECORD_CLIENT,
    ClearanceRecorded,
    ContextDecided,
    EnvelopeReceived,
    ParticipantAdded,
    ParticipantRemoved,
    ReplyRecorded,
    SummaryRecorded,
    UserRecorded,
)
from ...domain.conversations.identity import identity_key
from ...domain.conversations.reading import signed_part
from ...domain.conversations.signing import Keyring, Mac, execution_id
from ...domain.conversations.turn_events import ModelAnswered, ToolEnded
from ...domain.decisions import Decision, NewEvent
from ...domain.errors import TooLarge
from ...domain.events import Event
from ...domain.jsontext import strip_nul
from ..mailbox import Decided
from ..ports import EventRow, Redact

PAYLOAD_BYTES = 512 * 1024
"""Largest payload of an event of a conversation or a turn, as compact JSON."""

_FOREIGN: dict[str, tuple[str, ...]] = {
    EnvelopeReceived.type: ("text", "claims"),
    SummaryRecorded.type: ("text",),
    ModelAnswered.type: ("calls",),
    ToolEnded.type: ("output",),
}
"""Members that hold words of others which nothing has looked at yet. The text of a question comes out of its envelope,
that of a reply out of the redactor of its stream."""


class Scribe(Struct, frozen=True):
    """Writes events down as rows. One per process. new_id draws a ULID."""

    keyring: Keyring
    redact: Redact
    new_id: Callable[[], str]

    def encode(self, stream: str, version: int, decision: Decision, redactions: Sequence[str] = ()) -> Decided:
        """A decision as rows behind `version`, and as the signed events that the state is folded from.

        The events come with any `kid` and `mac`; their own are put in. redactions: ids of the rules that took something
        out of a reply while it was streamed. Raises TooLarge, KeyCollision.
        """
        rows: list[EventRow] = []
        events: list[tuple[Any, Any]] = []
        for place, new in enumerate(decision.events, version + 1):
            if not isinstance(new.event, Event):
                raise TypeError("a conversation has no placeholders")
            event, payload, taken = self._without_secrets(new.event)
            domain, fields = signed_part(stream, place, event.type, payload)
            mac = self.keyring.sign(domain, fields)
            event = _signed(event, mac)
            raw = msgspec.json.encode({**payload, "kid": mac.kid, "mac": mac.mac})
            if len(raw) > PAYLOAD_BYTES:
                raise TooLarge(f"The payload has {len(raw)} bytes; at most {PAYLOAD_BYTES} are taken.")
            if isinstance(event, ReplyRecorded | ModelAnswered):
                taken = sorted({*taken, *redactions})
            rows.append(_row(new, event, place, self.new_id(), raw, taken))
            events.append((new.actor, event))
        return Decided(rows, events, decision.seal, decision.answer, decision.refusal)

    def execution(self, conversation_id: str, ord_: int, kid: str) -> str:
        """The id of a turn's execution. Raises LookupError where the key is gone."""
        return execution_id(self.keyring, kid, conversation_id, ord_)

    def _without_secrets(self, event: Event) -> tuple[Event, dict[str, Any], list[str]]:
        """The event, its payload, and the ids of the rules that took something."""
        payload: dict[str, Any] = event.payload()
        foreign = {name: strip_nul(payload[name]) for name in _FOREIGN.get(event.type, ()) if name in payload}
        if not foreign:
            return event, payload, []
        shown, taken = self.redact(foreign)
        if all(payload[name] == value for name, value in shown.items()):
            return event, payload, taken
        payload |= shown
        return msgspec.convert(payload, type(event)), payload, taken


def _signed(event: Event, mac: Mac) -> Event:
    return replace(event, kid=mac.kid, mac=mac.mac)


def _row(new: NewEvent, event: Event, seq: int, event_id: str, raw: bytes, redactions: list[str]) -> EventRow:
    client, key = _origin(event, seq)
    classes = event.classes if isinstance(event, UserRecorded | ReplyRecorded | ToolEnded) else new.classes
    return EventRow(
        event_id,
        event.type,
        event.version,
        msgspec.Raw(raw),
        new.actor.kind,
        new.actor.id,
        new.origin,
        redactions,
        classes,
        caused_by=UNSET if new.caused_by is None else new.caused_by,
        origin_client=UNSET if client is None else client,
        origin_key=UNSET if key is None else key,
    )


def _origin(event: Event, seq: int) -> tuple[str | None, str | None]:
    """Unique in the stream, and how a record, a context, or what is said of a person is found."""
    match event:
        case UserRecorded() | ReplyRecorded():
            return RECORD_CLIENT, str(event.ord)
        case ContextDecided():
            return CONTEXT_CLIENT, str(event.turn)
        case ParticipantAdded() | ParticipantRemoved():
            return PARTICIPANT_CLIENT + identity_key(event.participant), f"{seq:016}"
        case ClearanceRecorded():
            return CLEARANCE_CLIENT + identity_key(event.viewer), f"{seq:016}"
        case _:
            return None, None
