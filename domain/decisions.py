"""What a decision answers, whatever kind of stream it is about: new events, and what the caller is told."""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import MinutebookError
from .events import Event, Origin, Unstorable
from .principals import Principal


class NewEvent(msgspec.Struct, frozen=True):
    """An event to append, with what the envelope says beside the payload. `body` wins over the event's own payload.

    origin_client and origin_key: the writer and its own number for the event, unique together in a stream.
    """

    event: Event | Unstorable
    actor: Principal
    actor_role: str | None = None
    run_id: str | None = None
    caused_by: int | None = None
    origin: Origin = "client"
    classes: tuple[str, ...] = ()
    origin_client: str | None = None
    origin_key: str | None = None
    body: Any = None

    def payload(self) -> Any:
        """The JSON-ready payload, before redaction."""
        return self.event.payload() if self.body is None else self.body


class Decision(msgspec.Struct, frozen=True):
    """What to append, whether the stream is sealed with it, and fields for the command's answer.

    refusal: what the caller is told once the events are stored, where a command finds that something has happened
    meanwhile which the log must say, and cannot do its own. It burns no idempotency key.
    """

    events: tuple[NewEvent, ...] = ()
    seal: bool = False
    answer: dict[str, Any] = {}
    refusal: MinutebookError | None = None
