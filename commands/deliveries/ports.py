"""What deliveries need of the world, as protocols; infra/ has the adapters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

from msgspec import UNSET, Struct, UnsetType

from ...domain.channels.messages import Address
from ...domain.deliveries.events import DeliveryPlanned
from ...domain.deliveries.state import Status
from ..ports import StoredEvent

PAGE = 100
"""Most deliveries in one page of a list."""

STREAM = "delivery:"
"""What the name of a delivery's stream begins with."""


class Bound(Struct, frozen=True):
    """What a payload at rest is bound to: it opens for nothing else."""

    tenant: str
    delivery_id: str
    codec: str
    version: int


class Encoded(Struct, frozen=True):
    """A payload at rest. key: opens the body, itself encrypted; None where payloads are kept in the clear."""

    body: bytes
    key: bytes | None = None


class Unreadable(Exception):
    """A payload at rest cannot be read. reason: `codec_unknown`, `payload_gone`,
    `payload_key_unknown` or `payload_damaged`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Payload(Struct, frozen=True):
    """Where to, and what: one channel-native payload for each part, in order."""

    address: Address
    parts: tuple[Mapping[str, Any], ...]


class Codec(Protocol):
    """Between a payload and its form at rest, for every codec and version that was ever written. Pure."""

    def encode(self, bound: Bound, payload: Payload) -> Encoded:
        """The payload at rest. Raises TooLarge."""
        ...

    def decode(self, bound: Bound, encoded: Encoded) -> Payload:
        """The payload again. Raises Unreadable."""
        ...


class Payloads(Protocol):
    """Payloads at rest by the id of their delivery."""

    async def put(self, payloads: Sequence[tuple[Bound, Encoded]]) -> None:
        """Keep them, as safely as what is appended once this has returned. What is there already stays as it is, and
        what was planned already gets none: it had its own."""
        ...

    async def get(self, ids: Sequence[str]) -> dict[str, tuple[Bound, Encoded]]:
        """Those that are there."""
        ...

    async def forget(self, ids: Sequence[str]) -> int:
        """Drop them with their keys, for good; how many there were."""
        ...

    async def purge(self, ids: Sequence[str]) -> None:
        """As forget, and what of them lies in inboxes of this server goes as well."""
        ...


class Due(Struct, frozen=True):
    """A delivery of which something is due. behind: the earlier one of its order that waits although this one goes."""

    stream_id: int
    delivery_id: str
    channel: str
    behind: str | None
    tenant: str


class Gate(Struct, frozen=True):
    """Whether a destination may be sent to now. probe: one delivery, to see whether it is there again.

    at: when to ask again, of one that is shut.
    """

    state: Literal["open", "probe", "shut", "paused"]
    failures: int = 0
    at: datetime | None = None


class Look(Struct, frozen=True):
    """What is due in a lane, by the database's clock. now: that clock. next_at: when there is something due again."""

    now: datetime
    due: Sequence[Due]
    next_at: datetime | None


class Rows(Protocol):
    """The operational rows beside the log, which the log's own transactions keep."""

    async def look(self, lane: str, limit: int) -> Look:
        """At most `limit` due deliveries of a lane, in order."""
        ...

    async def events_of(self, stream_ids: Sequence[int]) -> dict[int, list[StoredEvent]]:
        """The whole streams of a few deliveries."""
        ...

    async def versions(self, stream_ids: Sequence[int]) -> dict[int, int]:
        """The heads of streams."""
        ...

    async def lanes_due(self, limit: int) -> list[str]:
        """Lanes with due work that nothing holds back: neither a pause nor a breaker."""
        ...

    async def expired(self, limit: int) -> Look:
        """Deliveries whose time is over and which nobody is sending, whatever holds their lane back."""
        ...

    async def without_channel(self, names: Sequence[str], quiet_s: float, limit: int) -> Look:
        """Deliveries of other channels than these that nobody is sending and to which nothing happened for so long."""
        ...

    async def release_orders(self) -> None:
        """Let go whose head has waited for its window."""
        ...


class Gates(Protocol):
    """Breakers, pauses and paces: of all processes."""

    async def pass_(self, tenant: str, channel: str, destination: str, lease_s: float) -> Gate:
        """Whether to send now. Who is answered `probe` has it alone for `lease_s`."""
        ...

    async def told(self, channel: str, destination: str, *, is_alive: bool, wait_s: float | None) -> bool:
        """Note how a send went. wait_s: as the platform asks. Answers whether the destination may still be sent to."""
        ...

    async def take(self, channel: str, rate: float, wanted: int) -> tuple[int, float]:
        """How many of `wanted` sends the channel's pace allows now, and after how many seconds there is another."""
        ...


class LaneQueue(Protocol):
    """Wakes lanes through the job engine."""

    async def wake(self, lanes: Collection[str], after_s: float = 0) -> None:
        """A job for each, not sooner than in `after_s`; one that waits for longer is moved up."""
        ...


class Hashes(Protocol):
    """Keyed hashes, by tenant: nobody can tell an address or an id from them."""

    def destination(self, tenant: str, channel: str, address: Address) -> str:
        """`h:` and 32 hex digits."""
        ...

    def id_bits(self, tenant: str, text: str) -> int:
        """130 bits or more for an id that is the same for the same text."""
        ...


Permit = Callable[[DeliveryPlanned], Awaitable[str | None]]
"""Asked right before each attempt: policy, consent, audience and clearance as they are now. The reason of a refusal,
which cancels the delivery; None where it may go."""


async def permit_all(_plan: DeliveryPlanned) -> str | None:
    """Where nothing is to be asked."""
    return None


class Filter(Struct, frozen=True):
    """Which deliveries of a tenant to list; what is UNSET does not matter."""

    state: Status | UnsetType = UNSET
    channel: str | UnsetType = UNSET
    destination: str | UnsetType = UNSET
    correlation: str | UnsetType = UNSET
    run: str | UnsetType = UNSET
    conversation: str | UnsetType = UNSET


class Listed(Struct, frozen=True):
    """A row of the list. stream_id: its place, newest first."""

    stream_id: int
    delivery_id: str
    channel: str
    destination: str
    state: Status
    attempts: int
    reason: str
    run_id: str | None
    conversation_id: str | None
    correlation_id: str
    codec: str
    version: int
    due_at: datetime
    expires_at: datetime
    is_ended: bool


class Standing(Struct, frozen=True):
    """How a channel does. waiting: deliveries that have not ended, the oldest one planned at `oldest`. shut: breakers
    that are, the first of which lets a probe through at `retry_at`. pause: the code of its reason, None where it is not
    stopped; until: its end, None where nobody has said one."""

    channel: str
    waiting: int
    oldest: datetime | None
    shut: int
    retry_at: datetime | None
    pause: str | None
    paused_until: datetime | None


class Board(Protocol):
    """What operators look at."""

    async def page(self, tenant: str, wanted: Filter, before: int | None, limit: int) -> list[Listed]:
        """Newest first, from below a place."""
        ...

    async def one(self, tenant: str, delivery_id: str) -> Listed | None:
        """One delivery of the tenant."""
        ...

    async def standing(self, tenant: str, channels: Sequence[str]) -> list[Standing]:
        """Of every channel on which something of the tenant waits, or which is stopped, and of those of `channels` with
        a shut breaker."""
        ...

    async def in_doubt(self, tenant: str, channel: str | None, after: int, limit: int) -> list[tuple[Due, str]]:
        """Deliveries of the tenant without proof of what became of them, oldest first from behind a place, each with
        its state."""
        ...

    async def stale_payloads(self, after_s: float, dead_s: float, orphan_s: float, limit: int) -> list[str]:
        """Ids of payloads whose time is over: so long after the end, after a death, after they were put for nothing."""
        ...

    async def to_seal(self, limit: int) -> list[tuple[int, str, int]]:
        """Streams that take neither receipt nor replay any more: id, delivery, version."""
        ...

    async def sealed(self, stream_ids: Sequence[int]) -> None:
        """They are."""
        ...
