"""Ends of channels that have spoken, with the ids that their platforms know them by."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, LiteralString

import psycopg
from msgspec import UNSET
from psycopg_pool import AsyncConnectionPool

from ...commands.channels.ends import ACTIVE_S, TOKEN_CHANNEL, TOMBSTONE_S, EndsForgotten, KnownEnd
from ...domain.channels.messages import Address, Place
from ...domain.linking.display import displayed
from ...domain.linking.events import LinkedEnd
from ...domain.principals import Principal
from .reads import fetch

_NOTE = """
INSERT INTO minutebook.ends AS e (tenant, channel, native, own_key, native_id, chat, thread, display, spoke_at)
VALUES (%(tenant)s, %(channel)s, %(native)s, %(own_key)s, %(native_id)s, %(chat)s, %(thread)s, %(display)s,
    CASE WHEN %(is_message)s THEN clock_timestamp() ELSE 'epoch' END)
ON CONFLICT ON CONSTRAINT ends_pkey DO UPDATE SET
    own_key = EXCLUDED.own_key, native_id = EXCLUDED.native_id, chat = EXCLUDED.chat, thread = EXCLUDED.thread,
    display = EXCLUDED.display, spoke_at = greatest(e.spoke_at, EXCLUDED.spoke_at), seen_at = clock_timestamp()
RETURNING true
"""
_SHAPE: LiteralString = """
    e.channel, e.native, e.native_id, e.chat, e.thread, e.display, e.spoke_at,
    e.spoke_at > clock_timestamp() - make_interval(secs => %(active_s)s)
"""
_LINKED: LiteralString = f"""
SELECT i.holder, i.push, i.link_id, {_SHAPE}
FROM minutebook.linked_identities i
JOIN minutebook.ends e ON e.tenant = i.tenant AND e.channel = i.channel AND e.native = i.native
"""  # noqa: S608 - constants only
_OWN: LiteralString = f"""
SELECT e.own_key, CASE WHEN e.muted THEN 'off' ELSE 'replies' END, '', {_SHAPE}
FROM minutebook.ends e
"""  # noqa: S608 - constants only
_NOT_LINKED: LiteralString = """
  AND NOT EXISTS (SELECT FROM minutebook.linked_identities i WHERE i.tenant = e.tenant AND i.channel = e.channel
                  AND i.native = e.native AND i.holder IS NOT NULL)
"""
_OF_ACCOUNT: LiteralString = f"""
{_LINKED} WHERE i.tenant = %(tenant)s AND i.holder = %(account)s
UNION ALL
{_OWN} WHERE e.tenant = %(tenant)s AND e.own_key = %(account)s {_NOT_LINKED}
ORDER BY spoke_at DESC, channel, native
"""
_ONE: LiteralString = f"""
{_LINKED} WHERE i.tenant = %(tenant)s AND i.channel = %(channel)s AND i.native = %(native)s AND i.holder IS NOT NULL
UNION ALL
{_OWN} WHERE e.tenant = %(tenant)s AND e.channel = %(channel)s AND e.native = %(native)s {_NOT_LINKED}
"""
# An identity's own row says it no more once it is linked again.
UNLINKED_AT: LiteralString = """
(SELECT coalesce((SELECT max(e.ts) FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id
        WHERE s.name = 'account:' || %(account)s AND s.tenant = %(tenant)s AND e.type = 'unlinked'
          AND e.payload ->> 'channel' = %(channel)s AND e.payload ->> 'native' = %(native)s),
    clock_timestamp()) AS at) u
"""
"""When an end left an account last; now, where nothing says so. Its parameters: unlinked_of."""
_PERSON = (
    "SELECT e.native_id FROM minutebook.ends e WHERE e.tenant = %s AND e.own_key = %s AND e.channel = %s"
    " ORDER BY e.seen_at DESC LIMIT 1"
)
_MUTE = """
UPDATE minutebook.ends e SET muted = %s WHERE e.tenant = %s AND e.channel = %s AND e.native = %s RETURNING true
"""
_FORGET = "SELECT f.ends, f.tombstones, f.wrongs, f.challenges FROM minutebook.forget_ends_v2(%s, %s, %s) f"


class PostgresEnds:
    """Ends of commands/channels/ends.py over a pool of the app role. active_s, tombstone_s: as those constants."""

    def __init__(
        self,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        active_s: float = ACTIVE_S,
        tombstone_s: float = TOMBSTONE_S,
    ) -> None:
        self._pool = pool
        self._active_s = active_s
        self._tombstone_s = tombstone_s

    async def note(
        self, tenant: str, end: LinkedEnd, own_key: str, address: Address, display: str, *, is_message: bool = True
    ) -> None:
        """See Ends.note."""
        place = Place("") if address.place is UNSET else address.place
        row = {
            "tenant": tenant,
            "channel": end.channel,
            "native": end.native,
            "own_key": own_key,
            "native_id": address.native_id,
            "chat": place.chat,
            "thread": None if place.thread is UNSET else place.thread,
            "display": displayed(display),
            "is_message": is_message,
        }
        await fetch(self._pool, _NOTE, row)

    async def of_account(self, tenant: str, account: str) -> Sequence[KnownEnd]:
        """See Ends.of_account."""
        rows = await fetch(self._pool, _OF_ACCOUNT, {"tenant": tenant, "account": account, "active_s": self._active_s})
        return [_known(row) for row in rows]

    async def one(self, tenant: str, end: LinkedEnd) -> KnownEnd | None:
        """See Ends.one."""
        about = {"tenant": tenant, "channel": end.channel, "native": end.native, "active_s": self._active_s}
        rows = await fetch(self._pool, _ONE, about)
        return _known(rows[0]) if rows else None

    async def principal_of(self, tenant: str, account: str) -> Principal:
        """See Ends.principal_of."""
        rows = await fetch(self._pool, _PERSON, (tenant, account, TOKEN_CHANNEL))
        return Principal.parse(rows[0][0]) if rows else Principal("guest", account)

    async def mute(self, tenant: str, end: LinkedEnd, *, is_muted: bool) -> bool:
        """See Ends.mute."""
        return bool(await fetch(self._pool, _MUTE, (is_muted, tenant, end.channel, end.native)))

    async def forget(self, limit: int) -> EndsForgotten:
        """See Ends.forget."""
        return EndsForgotten(*(await fetch(self._pool, _FORGET, (limit, self._active_s, self._tombstone_s)))[0])


def unlinked_of(tenant: str, account: str, end: LinkedEnd) -> dict[str, Any]:
    """What UNLINKED_AT asks for."""
    return {"tenant": tenant, "account": account, "channel": end.channel, "native": end.native}


def _known(row: tuple[str, Any, str, str, str, str, str, str | None, str, datetime, bool]) -> KnownEnd:
    account, push, link_id, channel, native, native_id, chat, thread, display, spoke_at, is_active = row
    place = Place(chat, UNSET if thread is None else thread) if chat else UNSET
    address = Address(channel, native_id, place)
    return KnownEnd(
        LinkedEnd(channel, native), account, address, display, spoke_at.astimezone(UTC), push, link_id, is_active
    )
