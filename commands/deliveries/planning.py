"""Plans deliveries: payloads, and the log with the rows beside it in one append; then the wake-up."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import structlog
from msgspec import UNSET, Struct, UnsetType

from ...domain.channels.messages import Address, Outgoing
from ...domain.deliveries.decide import Planning, part_key, plan
from ...domain.deliveries.events import DeliveryPlanned, PartKind
from ...domain.deliveries.lanes import LANES
from ...domain.deliveries.retry import Policy
from ...domain.errors import Invalid, MinutebookError, Unavailable
from ...domain.ids import long_id
from ..channels.ports import Channel
from ..ports import Append, Creation, EventStore
from .kind import DELIVERY, RETENTION_DAYS, NewId, rows_of, stream_of
from .ports import Bound, Codec, Encoded, Hashes, LaneQueue, Payload, Payloads

log = structlog.get_logger(__name__)


class Said(Struct, frozen=True):
    """One part before a channel renders it; see Outgoing. text: redacted."""

    kind: PartKind
    text: str
    label: str | UnsetType = UNSET


class Wanted(Struct, frozen=True):
    """A payload for a destination. once: what makes it this delivery and no other, such as run and target; the same
    again plans nothing. correlation_id: from the inbound request to every attempt.

    destination: where the caller has hashed it already. recipient: keyed hash of the end that it goes to.
    """

    tenant: str
    channel: str
    address: Address
    parts: tuple[Said, ...]
    once: str
    correlation_id: str
    conversation_id: str | UnsetType = UNSET
    turn: int | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    source_tier: str | UnsetType = UNSET
    destination: str | UnsetType = UNSET
    recipient: str | UnsetType = UNSET


class ChannelTerms(Struct, frozen=True):
    """What the settings say of a channel's deliveries. rate: sends a second, None for any pace. days: of a delivery's
    stream, from its seal on."""

    policy: Policy = Policy()
    lanes: int = LANES
    rate: float | None = None
    days: int = RETENTION_DAYS


Terms = Callable[[str], ChannelTerms]
"""By the channel's name."""


class Planner:
    """One per process. `close` waits for the wake-ups under way; what is lost of them the sweep makes good."""

    def __init__(
        self,
        store: EventStore,
        payloads: Payloads,
        codec: Codec,
        queue: LaneQueue,
        hashes: Hashes,
        channels: Mapping[str, Channel],
        terms: Terms,
        now: Callable[[], datetime],
        new_id: NewId,
    ) -> None:
        self._store = store
        self._payloads = payloads
        self._codec = codec
        self._queue = queue
        self._hashes = hashes
        self._channels = channels
        self._terms = terms
        self._now = now
        self._new_id = new_id
        self._waking: set[asyncio.Task[None]] = set()

    def id_of(self, tenant: str, once: str) -> str:
        """The id that a delivery has or will have."""
        return long_id(self._hashes.id_bits(tenant, once))

    async def plan(self, wanted: Sequence[Wanted]) -> list[str]:
        """The ids, in order; all are stored when this returns. One that was planned before stays as it is.

        Raises Invalid for a channel of another tenant or one that cannot push, and Unavailable.
        """
        if not wanted:
            return []
        now = self._now()
        prepared = [self._prepare(each, now) for each in wanted]
        # In this order: of a payload that is there for nothing retention disposes, a delivery without one is lost.
        await self._payloads.put([(bound, encoded) for _, _, bound, encoded in prepared])
        outcomes = await self._store.append([item for _, item, _, _ in prepared])
        for outcome in outcomes:
            if outcome.kind not in ("appended", "conflict", "sealed"):
                raise Unavailable("The deliveries were not planned; try again.")
        lanes = {
            planned.lane
            for (planned, _, _, _), outcome in zip(prepared, outcomes, strict=True)
            if outcome.kind == "appended"
        }
        if lanes:
            self._wake(lanes)
        return [planned.delivery_id for planned, _, _, _ in prepared]

    async def forget(self, ids: Sequence[str]) -> None:
        """Erase the payloads of deliveries. Raises Unavailable."""
        await self._payloads.forget(ids)

    async def close(self) -> None:
        """Wait for the wake-ups under way."""
        await asyncio.gather(*self._waking)

    def _prepare(self, wanted: Wanted, now: datetime) -> tuple[DeliveryPlanned, Append, Bound, Encoded]:
        channel = self._channels.get(wanted.channel)
        if channel is None or channel.tenant != wanted.tenant or not channel.can.push:
            raise Invalid.at("$.channel", "is no channel of the tenant that can be sent to")
        delivery_id = self.id_of(wanted.tenant, wanted.once)
        kinds, payloads = _rendered(channel, delivery_id, wanted.parts)
        bound = Bound(wanted.tenant, delivery_id, channel.codec, channel.version)
        encoded = self._codec.encode(bound, Payload(wanted.address, tuple(payloads)))
        destination = (
            self._hashes.destination(wanted.tenant, wanted.channel, wanted.address)
            if wanted.destination is UNSET
            else wanted.destination
        )
        terms = self._terms(wanted.channel)
        decision = plan(
            Planning(
                delivery_id,
                wanted.tenant,
                wanted.channel,
                destination,
                wanted.correlation_id,
                tuple(kinds),
                channel.can.keys,
                channel.codec,
                channel.version,
                hashlib.sha256(encoded.body).hexdigest(),
                terms.lanes,
                wanted.conversation_id,
                wanted.turn,
                wanted.run_id,
                wanted.source_tier,
                wanted.recipient,
            ),
            now,
            terms.policy,
        )
        decided = rows_of(decision, self._new_id)
        creation = Creation(DELIVERY, wanted.tenant, terms.days)
        planned = decision.events[0].event
        assert isinstance(planned, DeliveryPlanned)  # noqa: S101 - what plan answers
        return planned, Append(stream_of(delivery_id), 0, decided.rows, create=creation), bound, encoded

    def _wake(self, lanes: set[str]) -> None:
        task = asyncio.create_task(_woken(self._queue, lanes))
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)


def _rendered(
    channel: Channel, delivery_id: str, parts: Sequence[Said]
) -> tuple[list[PartKind], list[Mapping[str, Any]]]:
    """Kinds and payloads of all parts: what a channel splits becomes parts of its own."""
    kinds: list[PartKind] = []
    payloads: list[Mapping[str, Any]] = []
    for said in parts:
        key = part_key(delivery_id, len(payloads) + 1)
        for payload in channel.render(Outgoing(said.kind, said.text, key, said.label)):
            kinds.append(said.kind)
            payloads.append(payload)
    return kinds, payloads


async def _woken(queue: LaneQueue, lanes: set[str]) -> None:
    try:
        await queue.wake(lanes)
    except MinutebookError as error:
        log.warning("lanes not woken; the sweep will", lanes=len(lanes), error=error.code)
