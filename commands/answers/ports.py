"""What taking an answer elsewhere needs of the world, as protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import UNSET, Struct, UnsetType

from ...domain.answers.target import FAN_OUT, ORIGINATING, ResponseTarget
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


class ChannelFacts(Struct, frozen=True):
    """What answers must know of a channel of the settings. is_own: it has a destination of its own, declared by the
    operator. is_inbox: this server's own inbox. labels: what it may carry, beside what is not restricted. target,
    is_background: of the turns that come over it, unless they say otherwise."""

    tenant: str
    can_push: bool
    is_own: bool = False
    is_inbox: bool = False
    labels: frozenset[str] = frozenset()
    tier: str | UnsetType = UNSET
    target: ResponseTarget = ORIGINATING
    is_background: bool = False


class AnswerTerms(Struct, frozen=True):
    """What the settings say of answers. channels: by name. pushes_per_hour: to one recipient, over all that they did
    not ask for in that chat."""

    channels: Mapping[str, ChannelFacts]
    fan_out: int = FAN_OUT
    pushes_per_hour: int = 60

    def known(self, tenant: str, name: str) -> ChannelFacts | None:
        """The channel of that tenant with that name."""
        facts = self.channels.get(name)
        return None if facts is None or facts.tenant != tenant else facts


class Details(Struct, frozen=True):
    """What the log may not hold. origin: where the message was said. addresses: by destination, once resolved."""

    origin: Address | UnsetType = UNSET
    addresses: Mapping[str, Address] = {}


class OpenAnswer(Struct, frozen=True):
    """An answer that is on its way. stream_id: of its conversation. user_seq, reply_seq: of the records there."""

    id: str
    tenant: str
    stream_id: int
    envelope_id: str
    details: Details
    user_seq: int | None = None
    reply_seq: int | None = None


class AnswerTable(Protocol):
    """The rows beside the log of answers, which are gone when nothing more is to be planned. Raises Unavailable."""

    async def open(self, answer: OpenAnswer, fingerprint: str) -> str:
        """Keep it, unless it is there; the fingerprint that is kept."""
        ...

    async def due(self, limit: int) -> list[OpenAnswer]:
        """Those whose turn has ended, the one that has waited longest first."""
        ...

    async def untaken(self, before: datetime, limit: int) -> list[OpenAnswer]:
        """Those whose message was never taken up, from before a moment."""
        ...

    async def address(self, answer_id: str, addresses: Mapping[str, Address]) -> None:
        """Keep addresses beside those that are kept."""
        ...

    async def later(self, answer_id: str, after_s: float) -> None:
        """Look at it again in so many seconds."""
        ...

    async def forget(self, ids: Sequence[str]) -> None:
        """There is nothing more to be done."""
        ...


class Pushes(Protocol):
    """Pushes to a recipient within an hour."""

    async def take(self, delivery_id: str, tenant: str, recipient: str, most: int) -> bool:
        """Whether one more may go; the same delivery again takes nothing. Raises Unavailable."""
        ...


class Recipients(Protocol):
    """Deliveries by whom they go to."""

    async def waiting(self, tenant: str, end: LinkedEnd, limit: int) -> list[str]:
        """Ids of those to an end that have not ended. Raises Unavailable."""
        ...
