"""What taking an answer elsewhere needs of the world, as protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

from msgspec import UNSET, Struct, UnsetType

from ...domain.answers.resolve import ChannelFacts
from ...domain.answers.target import FAN_OUT
from ...domain.channels.link_policy import LinkPolicy, with_tier
from ...domain.channels.messages import Address
from ...domain.conversations.commands import SendTurn
from ...domain.conversations.identity import Identity
from ...domain.deliveries.state import Status
from ...domain.linking.events import LinkedEnd
from ...domain.principals import Caller
from ..channels.ends import TOKEN_CHANNEL
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
    """Handle of a background turn, as its asker gets it. token: shown here alone, and never stored or logged. made: by
    which who began it withdraws it; empty where it was there already."""

    token: str
    url: str
    expires_at: str
    made: str = ""

    def fields(self) -> dict[str, Any]:
        """As it stands in answers, under `continuation`."""
        return {"token": self.token, "url": self.url, "expiresAt": self.expires_at}

    def __repr__(self) -> str:
        return f"Continuation(expires_at={self.expires_at!r})"


class Continuations(Protocol):
    """Handles of background turns. Every method raises Unavailable."""

    async def begin(self, caller: Caller, conversation_id: str, envelope_id: str, origin: Origin) -> Continuation:
        """The handle of the turn with that record id. Again: the same handle. To be called before the turn is sent, and
        behind the checks of who sends it: one whose turn is never sent stays until its time is over, unless it is
        withdrawn.

        Raises NotVisible for who has no part in the conversation, TooManyPending.
        """
        ...

    async def again(self, caller: Caller, conversation_id: str, envelope_id: str) -> Continuation | None:
        """The handle of a turn that was sent before; None where its time is over."""
        ...

    async def withdraw(self, caller: Caller, begun: Continuation) -> None:
        """Forget the handle of a turn that was refused. Of one that was taken up it stays, and of one that was begun
        again: that one may have got through."""
        ...

    async def end_all(self, tenant: str, account: str, end: LinkedEnd) -> int:
        """End those that were begun from an end before it left that account last, and forget those that had ended; how
        many had not. The same again changes nothing."""
        ...


EndStatus = Literal["completed", "failed", "cancelled", "expired"]
UNLINKED = "unlinked"
"""Reason of the end of one whose end was unlinked."""


class TokenMaker(Protocol):
    """Tokens, and what is stored of them. Pure."""

    def token(self, tenant: str, who: Identity, conversation_id: str, envelope_id: str) -> str:
        """43 characters of base64url, which nobody without the server's key can guess; the same for the same."""
        ...

    def handle(self, tenant: str, token: str) -> str:
        """64 hex digits, of any text."""
        ...


class NewContinuation(Struct, frozen=True):
    """What is stored of a handle. who: as their own token names them. open_s: its time while there is no end, ttl_s:
    its time from then on."""

    id: str
    tenant: str
    handle: str
    who: Identity
    stream_id: int
    conversation_id: str
    envelope_id: str
    account: str
    end: LinkedEnd | UnsetType
    open_s: int
    ttl_s: int


class KeptContinuation(Struct, frozen=True):
    """A handle as it stands. status: of its one end, None while there is none. turn, record_ord: as far as the log has
    them; record_ord is that of the record which is the end, None where the end is none of the log's records.

    is_due: its time is over and it has no end yet.
    """

    id: str
    stream_id: int
    conversation_id: str
    envelope_id: str
    turn: int | None
    record_ord: int | None
    status: EndStatus | None
    reason: str
    expires_at: datetime
    is_due: bool = False


class ContinuationRows(Protocol):
    """Handles at rest, by the database's clock. Every method raises Unavailable."""

    async def put(self, new: NewContinuation, most: int) -> tuple[datetime, str] | None:
        """When it expires, and by what to withdraw it: empty where it was put before, by whoever. None where its owner
        has `most` open ones."""
        ...

    async def expires(self, tenant: str, handle: str) -> datetime | None:
        """When one expires; None where it was forgotten or may be."""
        ...

    async def find(self, tenant: str, handle: str, who: Identity) -> KeptContinuation | None:
        """That person's, unless it was forgotten or may be: one look-up, whatever the reason that there is none."""
        ...

    async def withdraw(self, tenant: str, handle: str, made: str) -> None:
        """Forget one that has neither a turn nor an end, and was put by nobody since."""
        ...

    async def expire(self, tenant: str, handle: str) -> None:
        """Its end is that its time is over, where it is and no other end was first."""
        ...

    async def end_all(self, tenant: str, account: str, end: LinkedEnd, reason: str) -> int:
        """See Continuations.end_all."""
        ...

    async def forget(self, limit: int) -> int:
        """Expire what is due, and delete at most `limit` whose time after the end is over; how many were deleted."""
        ...


class Unlinking(Protocol):
    """What goes with a link (delivery.md, Linking)."""

    async def unlinked(self, tenant: str, account: str, end: LinkedEnd) -> tuple[int, int]:
        """Cancel the deliveries that wait for that end, and end its continuations: how many of each. The same again
        changes nothing. Raises Unavailable."""
        ...


class AnswerTerms(Struct, frozen=True):
    """What the settings say of answers. channels: by name. pushes_per_hour: to one recipient, over all that they did
    not ask for in that chat. token_tiers: by tenant the tier of those who speak with a token."""

    channels: Mapping[str, ChannelFacts]
    policy: LinkPolicy
    fan_out: int = FAN_OUT
    pushes_per_hour: int = 60
    token_tiers: Mapping[str, str] = {}

    def policy_of(self, tenant: str) -> LinkPolicy:
        """Where answers may go in a tenant; those with a token have a tier of its own."""
        return with_tier(self.policy, TOKEN_CHANNEL, self.token_tiers.get(tenant))

    def known(self, tenant: str, name: str) -> ChannelFacts | None:
        """The channel of that tenant with that name."""
        facts = self.channels.get(name)
        return None if facts is None or facts.tenant != tenant else facts

    def of_tenant(self, tenant: str) -> Mapping[str, ChannelFacts]:
        """The channels of a tenant."""
        return {name: facts for name, facts in self.channels.items() if facts.tenant == tenant}


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
        """Those from before a moment whose message was never taken up and waits for nobody, and those whose turn had
        ended by then, and that wait because they failed."""
        ...

    async def address(self, answer_id: str, addresses: Mapping[str, Address]) -> None:
        """Keep addresses beside those that are kept."""
        ...

    async def addresses(self, answer_id: str) -> Mapping[str, Address] | None:
        """Those that are kept of it; None where it is gone."""
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

    async def waiting(self, tenant: str, account: str, end: LinkedEnd, limit: int) -> list[str]:
        """Ids of those to an end that have not ended, and were planned before it left that account last. Raises
        Unavailable."""
        ...

    async def states(self, ids: Sequence[str]) -> Mapping[str, Status]:
        """Where deliveries stand, those that are there. Raises Unavailable."""
        ...
