"""This server's own inbox: parts of deliveries by recipient, in the order of their commits (functions/56_inbox.sql)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg
import structlog
from msgspec import Struct
from psycopg_pool import AsyncConnectionPool

from ...commands.deliveries.ports import Bound, Codec, Encoded, Payload, Unreadable
from ...domain.channels.messages import Address
from ...domain.errors import AlreadyEnded, Invalid, Unavailable
from ...domain.ids import is_conversation_id
from .reads import fetch

CHANNEL = "minutebook_inbox"
"""Where a part is announced: the id of its recipient's row."""

WEB, VERSION = "web", 1
"""Codec of what lies here, and the version that is written."""

IDLE_S = 30 * 86_400
"""So long after its last part the row of a recipient with nothing in their inbox goes."""

FORGET_BATCH = 1000

_PUT = "SELECT minutebook.inbox_put_v1(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_HAS = "SELECT EXISTS (SELECT FROM minutebook.inbox_items i WHERE i.key = %s AND i.tenant = %s)"
_OPEN = "SELECT o.id, o.last FROM minutebook.inbox_open_v1(%s, %s) o"
_LASTS = "SELECT h.id, h.last FROM minutebook.inbox_heads h WHERE h.id = ANY(%s::bigint[])"
_PAGE = """
SELECT i.cursor, i.key, i.channel, i.delivery_id, i.part, i.conversation_id, i.turn, i.created_at,
    i.observed_at IS NOT NULL, i.revoked_at IS NOT NULL, i.tenant, i.codec, i.codec_version, i.body, i.wrapped
FROM minutebook.inbox_items i
WHERE i.head = %s AND i.cursor > %s AND i.expires_at > clock_timestamp() AND (i.revoked_at IS NULL OR %s)
ORDER BY i.cursor LIMIT %s
"""
_OF_DELIVERIES = """
SELECT i.cursor, i.key, i.channel, i.delivery_id, i.part, i.conversation_id, i.turn, i.created_at,
    i.observed_at IS NOT NULL, i.revoked_at IS NOT NULL, i.tenant, i.codec, i.codec_version, NULL, NULL
FROM minutebook.inbox_items i
WHERE i.head = %s AND i.delivery_id = ANY(%s::text[]) AND i.revoked_at IS NULL AND i.expires_at > clock_timestamp()
ORDER BY i.cursor
"""
_DELIVERED = """
UPDATE minutebook.inbox_items i SET delivered_at = clock_timestamp()
WHERE i.key = ANY(%s::text[]) AND i.delivered_at IS NULL RETURNING i.delivery_id
"""
_OBSERVED = """
UPDATE minutebook.inbox_items i
SET observed_at = clock_timestamp(), delivered_at = coalesce(i.delivered_at, clock_timestamp())
WHERE i.key = ANY(%s::text[]) AND i.observed_at IS NULL RETURNING i.delivery_id
"""
_EXPIRE = "SELECT minutebook.inbox_expire_v1(%s, %s)"

log = structlog.get_logger(__name__)


class InboxItem(Struct, frozen=True):
    """One part. payload: as the web channel renders it; None where it is revoked, or cannot be read."""

    cursor: int
    key: str
    channel: str
    delivery_id: str
    part: int
    conversation_id: str | None
    turn: int | None
    at: datetime
    is_observed: bool
    is_revoked: bool
    payload: Mapping[str, Any] | None = None


class Head(Struct, frozen=True):
    """A recipient's inbox: its id, and the newest place in it."""

    id: int
    last: int


class PostgresInbox:
    """InboxRows of commands/channels/ports.py over a pool of the app role, and what its readers need. Every method
    raises Unavailable."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]], codec: Codec, ttl_s: int) -> None:
        """codec: what payloads at rest go through. ttl_s: how long a part stays."""
        self._pool = pool
        self._codec = codec
        self._ttl_s = ttl_s

    async def put(self, tenant: str, channel: str, address: Address, payload: Mapping[str, Any], key: str) -> None:
        """See InboxRows.put. The recipient is the address's native id, a principal as text.

        Raises AlreadyEnded for a part of what was cancelled or purged, Invalid for a key of no delivery.
        """
        delivery_id, part = _parsed(key)
        encoded = self._codec.encode(Bound(tenant, key, WEB, VERSION), Payload(address, (payload,)))
        about = (tenant, channel, address.native_id, delivery_id, part, WEB, VERSION, encoded.body, encoded.key)
        ((outcome,),) = await fetch(self._pool, _PUT, (*about, self._ttl_s))
        if outcome == "withdrawn":
            raise AlreadyEnded("The delivery was withdrawn.")
        if outcome == "unknown":
            raise Unavailable("There is no such delivery of that channel.")

    async def has(self, tenant: str, key: str) -> bool:
        """See InboxRows.has."""
        return (await fetch(self._pool, _HAS, (key, tenant)))[0][0]

    async def open(self, tenant: str, recipient: str) -> Head:
        """The inbox of a principal, which everybody has."""
        return Head(*(await fetch(self._pool, _OPEN, (tenant, recipient)))[0])

    async def lasts(self, ids: Sequence[int]) -> dict[int, int]:
        """The newest places of inboxes, by id."""
        return dict(await fetch(self._pool, _LASTS, (list(ids),)))

    async def page(self, head: int, after: int, limit: int, *, with_revoked: bool = False) -> list[InboxItem]:
        """Items behind a place, in order. with_revoked: those too that are no more, without their words."""
        return [self._item(row) for row in await fetch(self._pool, _PAGE, (head, after, with_revoked, limit))]

    async def of_deliveries(self, head: int, ids: Sequence[str]) -> list[InboxItem]:
        """The parts of those deliveries, without their words."""
        return [self._item(row) for row in await fetch(self._pool, _OF_DELIVERIES, (head, list(ids)))]

    async def mark(self, delivered: Sequence[str], observed: Sequence[str]) -> int:
        """Note by the keys of parts what their reader has and saw, forward only; of how many deliveries that is new,
        one that is new in both counting twice."""
        first = await fetch(self._pool, _DELIVERED, (list(delivered),)) if delivered else []
        then = await fetch(self._pool, _OBSERVED, (list(observed),)) if observed else []
        return len({row[0] for row in first}) + len({row[0] for row in then})

    async def forget(self) -> int:
        """Part of the retention job: delete all whose time is over; how many."""
        gone = 0
        while True:
            ((batch,),) = await fetch(self._pool, _EXPIRE, (FORGET_BATCH, IDLE_S))
            gone += batch
            if batch < FORGET_BATCH:
                return gone

    def _item(self, row: Sequence[Any]) -> InboxItem:
        *said, tenant, codec, version, body, wrapped = row
        item = InboxItem(*said)
        if body is None:
            return item
        encoded = Encoded(bytes(body), None if wrapped is None else bytes(wrapped))
        try:
            payload = self._codec.decode(Bound(tenant, item.key, codec, version), encoded)
        except Unreadable as error:
            log.warning("a part in an inbox cannot be read", part=item.key, reason=error.reason)
            return item
        return InboxItem(*said, payload=payload.parts[0])


def _parsed(key: str) -> tuple[str, int]:
    """The delivery and the number of a part's key. Raises Invalid."""
    delivery_id, _, part = key.partition(".")
    if not is_conversation_id(delivery_id) or not (part.isascii() and part.isdecimal() and len(part) < 5):
        raise Invalid.at("$.key", "is no key of a part")
    return delivery_id, int(part)
