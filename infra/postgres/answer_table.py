"""Answers on their way, the pushes of the last hour, and deliveries by their recipient: rows beside the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.answers.ports import Details, OpenAnswer
from ...domain.channels.messages import Address
from ...domain.deliveries.state import Status
from ...domain.linking.events import LinkedEnd
from .ends import UNLINKED_AT, unlinked_of
from .reads import fetch

SCHEMA_VERSION = 1
"""Of the form of `details`."""

_OPEN = """
WITH made AS (
    INSERT INTO minutebook.answers (id, tenant, schema_version, stream_id, envelope_id, fingerprint, details)
    VALUES (%(id)s, %(tenant)s, %(version)s, %(stream)s, %(envelope)s, %(fingerprint)s, %(details)s::jsonb)
    ON CONFLICT ON CONSTRAINT answers_pkey DO NOTHING RETURNING fingerprint)
SELECT fingerprint FROM made UNION ALL SELECT a.fingerprint FROM minutebook.answers a WHERE a.id = %(id)s LIMIT 1
"""
_COLUMNS = "a.id, a.tenant, a.stream_id, a.envelope_id, a.details::text, a.user_seq, a.reply_seq"
_DUE = (
    f"SELECT {_COLUMNS} FROM minutebook.answers a"  # noqa: S608 - constants only
    " WHERE a.due_at <= clock_timestamp() ORDER BY a.due_at LIMIT %s"
)
# A message that waits for a runner may be taken up at any time; what fails has its time from its turn's end on.
_UNTAKEN = f"""
SELECT {_COLUMNS} FROM minutebook.answers a
WHERE a.created_at < %(before)s AND (
    (a.user_seq IS NULL AND NOT EXISTS (SELECT FROM minutebook.turn_work w WHERE w.stream_id = a.stream_id))
    OR (a.due_at > clock_timestamp() AND NOT EXISTS (SELECT FROM minutebook.events e
        WHERE e.stream_id = a.stream_id AND e.seq = coalesce(a.reply_seq, a.user_seq) AND e.ts >= %(before)s)))
ORDER BY a.created_at LIMIT %(limit)s
"""  # noqa: S608
_ADDRESS = """
UPDATE minutebook.answers a SET details = jsonb_set(a.details, '{addresses}',
    coalesce(a.details -> 'addresses', '{}') || %s::jsonb) WHERE a.id = %s RETURNING true
"""
_ADDRESSES = "SELECT a.details::text FROM minutebook.answers a WHERE a.id = %s"
_LATER = """
UPDATE minutebook.answers a SET due_at = clock_timestamp() + make_interval(secs => %s) WHERE a.id = %s RETURNING true
"""
_FORGET = "DELETE FROM minutebook.answers a WHERE a.id = ANY(%s::text[]) RETURNING true"

_TAKE = "SELECT minutebook.take_push_v1(%s, %s, %s, %s)"
_EXPIRE = "DELETE FROM minutebook.pushes p WHERE p.at < clock_timestamp() - interval '1 hour' RETURNING true"

# What was planned since an end was unlinked is its own, or that of the link that came after, however late whoever takes
# the rest along comes, or once more.
_WAITING = f"""
SELECT d.id FROM minutebook.deliveries d, {UNLINKED_AT}
WHERE d.recipient = %(native)s AND d.ended_at IS NULL AND d.tenant = %(tenant)s AND d.channel = %(channel)s
  AND d.planned_at <= u.at
ORDER BY d.place LIMIT %(limit)s
"""  # noqa: S608 - constants only
_STATES = "SELECT d.id, d.state FROM minutebook.deliveries d WHERE d.id = ANY(%s::text[])"

Pool = AsyncConnectionPool[psycopg.AsyncConnection[Any]]


class PostgresAnswerTable:
    """AnswerTable of commands/answers/ports.py over a pool of the app role."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def open(self, answer: OpenAnswer, fingerprint: str) -> str:
        """See AnswerTable.open. What another process puts at the same moment is read once more."""
        values = {
            "id": answer.id,
            "tenant": answer.tenant,
            "version": SCHEMA_VERSION,
            "stream": answer.stream_id,
            "envelope": answer.envelope_id,
            "fingerprint": fingerprint,
            "details": msgspec.json.encode(answer.details).decode(),
        }
        rows = await fetch(self._pool, _OPEN, values) or await fetch(self._pool, _OPEN, values)
        return rows[0][0] if rows else fingerprint

    async def due(self, limit: int) -> list[OpenAnswer]:
        """See AnswerTable.due."""
        return [_answer(row) for row in await fetch(self._pool, _DUE, (limit,))]

    async def untaken(self, before: datetime, limit: int) -> list[OpenAnswer]:
        """See AnswerTable.untaken."""
        return [_answer(row) for row in await fetch(self._pool, _UNTAKEN, {"before": before, "limit": limit})]

    async def address(self, answer_id: str, addresses: Mapping[str, Address]) -> None:
        """See AnswerTable.address."""
        await fetch(self._pool, _ADDRESS, (msgspec.json.encode(addresses).decode(), answer_id))

    async def addresses(self, answer_id: str) -> Mapping[str, Address] | None:
        """See AnswerTable.addresses."""
        rows = await fetch(self._pool, _ADDRESSES, (answer_id,))
        return msgspec.json.decode(rows[0][0], type=Details).addresses if rows else None

    async def later(self, answer_id: str, after_s: float) -> None:
        """See AnswerTable.later."""
        await fetch(self._pool, _LATER, (after_s, answer_id))

    async def forget(self, ids: Sequence[str]) -> None:
        """See AnswerTable.forget."""
        await fetch(self._pool, _FORGET, (list(ids),))


class PostgresPushes:
    """Pushes of commands/answers/ports.py over a pool of the app role."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def take(self, delivery_id: str, tenant: str, recipient: str, most: int) -> bool:
        """See Pushes.take."""
        return (await fetch(self._pool, _TAKE, (delivery_id, tenant, recipient, most)))[0][0]

    async def expire(self) -> None:
        """Forget those of an hour ago."""
        await fetch(self._pool, _EXPIRE, ())


class PostgresRecipients:
    """Recipients of commands/answers/ports.py over a pool of the app role."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def waiting(self, tenant: str, account: str, end: LinkedEnd, limit: int) -> list[str]:
        """See Recipients.waiting."""
        rows = await fetch(self._pool, _WAITING, {**unlinked_of(tenant, account, end), "limit": limit})
        return [row[0] for row in rows]

    async def states(self, ids: Sequence[str]) -> dict[str, Status]:
        """See Recipients.states."""
        return dict(await fetch(self._pool, _STATES, (list(ids),)))


def _answer(row: tuple[Any, ...]) -> OpenAnswer:
    id_, tenant, stream_id, envelope_id, details, user_seq, reply_seq = row
    read = msgspec.json.decode(details, type=Details)
    return OpenAnswer(id_, tenant, stream_id, envelope_id, read, user_seq, reply_seq)
