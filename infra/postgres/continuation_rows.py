"""Handles of background turns at rest; the log's transactions write their ends (functions/55_note_continuation.sql)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import psycopg
from msgspec import UNSET
from psycopg_pool import AsyncConnectionPool

from ...commands.answers.ports import KeptContinuation, NewContinuation
from ...domain.conversations.identity import Identity
from ...domain.errors import Unavailable
from ...domain.linking.events import LinkedEnd
from .ends import UNLINKED_AT, unlinked_of
from .identities import columns
from .reads import fetch

PUT_TRIES = 3
"""Times that one is put which somebody else puts and withdraws."""

_COUNT = """
SELECT count(*) FROM (SELECT FROM minutebook.continuations c
    WHERE c.actor = %s AND c.tenant = %s AND c.on_behalf_of = %s AND c.status IS NULL LIMIT %s) o
"""
_PUT = """
INSERT INTO minutebook.continuations (id, tenant, handle, actor, on_behalf_of, stream_id, conversation_id, envelope_id,
    account, channel, native, ttl_s, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))
ON CONFLICT ON CONSTRAINT continuations_handle DO NOTHING RETURNING expires_at, xmin::text
"""
# Whoever begins it again writes it anew, as it is: their turn may have got through, and who was first leaves it alone.
_WITHDRAW = (
    "DELETE FROM minutebook.continuations c WHERE c.tenant = %s AND c.handle = %s AND c.xmin::text = %s"
    " AND c.turn IS NULL AND c.status IS NULL RETURNING true"
)
_AGAIN = """
WITH held AS (
    UPDATE minutebook.continuations c SET expires_at = c.expires_at
    WHERE c.tenant = %(tenant)s AND c.handle = %(handle)s AND c.turn IS NULL AND c.status IS NULL
    RETURNING c.expires_at)
SELECT h.expires_at FROM held h
UNION ALL
SELECT c.expires_at FROM minutebook.continuations c
WHERE c.tenant = %(tenant)s AND c.handle = %(handle)s AND (c.turn IS NOT NULL OR c.status IS NOT NULL)
LIMIT 1
"""
_EXPIRES = """
SELECT c.expires_at FROM minutebook.continuations c
WHERE c.tenant = %s AND c.handle = %s AND (c.status IS NULL OR c.expires_at > clock_timestamp())
"""
_FIND = """
SELECT c.id, c.stream_id, c.conversation_id, c.envelope_id, c.turn, c.record_ord, c.status, c.reason, c.expires_at,
    c.expires_at <= clock_timestamp()
FROM minutebook.continuations c
WHERE c.tenant = %s AND c.handle = %s AND c.actor = %s AND c.on_behalf_of = %s
  AND (c.status IS NULL OR c.expires_at > clock_timestamp())
"""
_EXPIRED = (
    "UPDATE minutebook.continuations c SET status = 'expired', ended_at = c.expires_at,"
    " expires_at = c.expires_at + make_interval(secs => c.ttl_s)"
    " WHERE c.status IS NULL AND c.expires_at <= clock_timestamp()"
)
_EXPIRE = f"{_EXPIRED} AND c.tenant = %s AND c.handle = %s RETURNING true"
_EXPIRE_SOME = (
    f"{_EXPIRED} AND c.id IN (SELECT o.id FROM minutebook.continuations o WHERE o.status IS NULL"  # noqa: S608 - constants only
    " AND o.expires_at <= clock_timestamp() LIMIT %s) RETURNING true"
)
_OF_END = (
    "c.tenant = %(tenant)s AND c.account = %(account)s AND c.channel = %(channel)s AND c.native = %(native)s"
    " AND c.begun_at <= u.at"
)
_FORGET_ENDED = (
    f"DELETE FROM minutebook.continuations c USING {UNLINKED_AT}"  # noqa: S608 - as above
    f" WHERE {_OF_END} AND c.status IS NOT NULL AND c.reason <> %(reason)s RETURNING true"
)
_END_ALL = (
    "UPDATE minutebook.continuations c SET status = 'cancelled', ended_at = clock_timestamp(),"  # noqa: S608 - as above
    " expires_at = clock_timestamp() + make_interval(secs => c.ttl_s), reason = %(reason)s"
    f" FROM {UNLINKED_AT} WHERE {_OF_END} AND c.status IS NULL RETURNING true"
)
_FORGET = """
DELETE FROM minutebook.continuations c WHERE c.id IN (
    SELECT o.id FROM minutebook.continuations o
    WHERE o.status IS NOT NULL AND o.expires_at <= clock_timestamp() ORDER BY o.expires_at LIMIT %s) RETURNING true
"""


class PostgresContinuationRows:
    """ContinuationRows of commands/answers/ports.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def put(self, new: NewContinuation, most: int) -> tuple[datetime, str] | None:
        """See ContinuationRows.put. One that is there already is found first, so that a full house still answers it."""
        again = {"tenant": new.tenant, "handle": new.handle}
        known = await fetch(self._pool, _AGAIN, again)
        if known:
            return known[0][0], ""
        actor, tenant, on_behalf_of = columns(new.who)
        ((opened,),) = await fetch(self._pool, _COUNT, (actor, tenant, on_behalf_of, most))
        if opened >= most:
            return None
        end = ("", "") if new.end is UNSET else (new.end.channel, new.end.native)
        whose = (new.id, new.tenant, new.handle, actor, on_behalf_of)
        about = (new.stream_id, new.conversation_id, new.envelope_id, new.account, *end, new.ttl_s, new.open_s)
        for _ in range(PUT_TRIES):
            made = await fetch(self._pool, _PUT, (*whose, *about))
            if made:
                return made[0]
            # Somebody has put the same one meanwhile, and may have withdrawn it since.
            known = await fetch(self._pool, _AGAIN, again)
            if known:
                return known[0][0], ""
        raise Unavailable("The same message is sent by others; try again.")

    async def expires(self, tenant: str, handle: str) -> datetime | None:
        """See ContinuationRows.expires."""
        rows = await fetch(self._pool, _EXPIRES, (tenant, handle))
        return rows[0][0] if rows else None

    async def find(self, tenant: str, handle: str, who: Identity) -> KeptContinuation | None:
        """See ContinuationRows.find."""
        actor, _, on_behalf_of = columns(who)
        rows = await fetch(self._pool, _FIND, (tenant, handle, actor, on_behalf_of))
        if not rows:
            return None
        *kept, is_over = rows[0]
        found = KeptContinuation(*kept)
        return KeptContinuation(*kept, is_due=is_over and found.status is None)

    async def withdraw(self, tenant: str, handle: str, made: str) -> None:
        """See ContinuationRows.withdraw."""
        await fetch(self._pool, _WITHDRAW, (tenant, handle, made))

    async def expire(self, tenant: str, handle: str) -> None:
        """See ContinuationRows.expire."""
        await fetch(self._pool, _EXPIRE, (tenant, handle))

    async def end_all(self, tenant: str, account: str, end: LinkedEnd, reason: str) -> int:
        """See ContinuationRows.end_all."""
        about = {**unlinked_of(tenant, account, end), "reason": reason}
        ended = len(await fetch(self._pool, _END_ALL, about))
        await fetch(self._pool, _FORGET_ENDED, about)
        return ended

    async def forget(self, limit: int) -> int:
        """See ContinuationRows.forget."""
        await fetch(self._pool, _EXPIRE_SOME, (limit,))
        return len(await fetch(self._pool, _FORGET, (limit,)))
