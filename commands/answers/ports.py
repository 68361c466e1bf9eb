"""What taking an answer elsewhere needs of the world, as protocols."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import UNSET, Struct, UnsetType

from ...domain.channels.messages import Address
from ...domain.conversations.commands import SendTurn
from ...domain.linking.events import LinkedEnd
from ...domain.principals import Caller
from ..mailbox import Answer


class Origin(Struct, frozen=True):
    """Where a turn comes from. account: the isolation key of who asks, never that of a group.

    end, address: of the channel that it was said on; UNSET for a turn of the HTTP API, whose originating answer is the
    conversation itself. correlation_id: a ULID, from the inbound request to every attempt.
    """

    tenant: str
    account: str
    correlation_id: str
    end: LinkedEnd | UnsetType = UNSET
    address: Address | UnsetType = UNSET


class Intake(Protocol):
    """The one way in for a turn, from the API and from every channel."""

    async def send(
        self, caller: Caller, conversation_id: str, command: SendTurn, key: str | None, origin: Origin
    ) -> Answer:
        """As Conversations.send; the fields of a background turn beside it (`continuation`). Where its answer goes is
        stored before the turn is, under the turn's message id: the same message again changes nothing and answers the
        same.

        Raises what Conversations.send raises, UnknownTarget and FanOutExceeded.
        """
        ...


class Continuation(Struct, frozen=True, rename="camel"):
    """Handle of a background turn, as its asker gets it. token: shown once here and never stored or logged."""

    token: str
    url: str
    expires_at: str

    def fields(self) -> dict[str, Any]:
        """As it stands in answers, under `continuation`."""
        return {"token": self.token, "url": self.url, "expiresAt": self.expires_at}


class Continuations(Protocol):
    """Handles of background turns. Every method raises Unavailable."""

    async def begin(self, caller: Caller, conversation_id: str, envelope_id: str, origin: Origin) -> Continuation:
        """The handle of the turn with that record id. Again: the same handle. To be called before the turn is sent."""
        ...

    async def end_all(self, tenant: str, account: str, end: LinkedEnd) -> int:
        """End those that were begun from an end, since it is unlinked; how many had not ended."""
        ...


class Unlinking(Protocol):
    """What goes with a link (delivery.md, Linking)."""

    async def unlinked(self, tenant: str, account: str, end: LinkedEnd) -> tuple[int, int]:
        """Cancel the deliveries that wait for that end, and end its continuations: how many of each. The same again
        changes nothing. Raises Unavailable."""
        ...
