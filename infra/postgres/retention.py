"""Retention: expired streams go, one transaction each; what was done is held against what an independent eye counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any, LiteralString

import msgspec
import psycopg
from psycopg import sql

from .pool import CONNECT_TIMEOUT_S, RoleName, check_role

MAX_FAILURES = 20
"""Streams that could not be purged and are named in the report."""

INBOUND_DAYS = 30
"""For how long a spent proof of a channel is kept, unless the settings say."""

_NOW = "SELECT clock_timestamp()"

_EXPIRED = "s.sealed AND NOT s.held AND s.closed_at + make_interval(days => s.retention_days) <= %(now)s::timestamptz"
_EXPIRED_BY_TENANT: LiteralString = (
    f"SELECT s.tenant, count(*), coalesce(sum(s.version), 0)::bigint FROM minutebook.streams s WHERE {_EXPIRED}"  # noqa: S608 - constants only
    " GROUP BY 1"
)
_OLD_KEYS_BY_TENANT = """
SELECT o.tenant, count(*) FROM (
    SELECT k.tenant FROM minutebook.idempotency k
    WHERE k.created_at + interval '30 days' <= %(now)s::timestamptz AND k.operation <> 'send_turn'
    UNION ALL SELECT s.tenant FROM minutebook.inbound_signatures s
    WHERE s.seen_at + make_interval(days => %(inbound_days)s) <= %(now)s::timestamptz
    UNION ALL SELECT c.tenant FROM minutebook.channel_sessions c
    WHERE c.used_at + interval '30 days' <= %(now)s::timestamptz) o
GROUP BY 1
"""
_EXPIRED_IDS: LiteralString = f"SELECT s.id, s.name, s.tenant FROM minutebook.streams s WHERE {_EXPIRED} ORDER BY s.id"  # noqa: S608 - constants only
_PURGE = "SELECT minutebook.purge_stream_v1(%s)"
_DELETE_KEYS = """
WITH gone AS (DELETE FROM minutebook.idempotency k
              WHERE k.created_at + interval '30 days' <= %(now)s::timestamptz AND k.operation <> 'send_turn'
              RETURNING k.tenant),
spent AS (DELETE FROM minutebook.inbound_signatures s
          WHERE s.seen_at + make_interval(days => %(inbound_days)s) <= %(now)s::timestamptz RETURNING s.tenant),
idle AS (DELETE FROM minutebook.channel_sessions c
         WHERE c.used_at + interval '30 days' <= %(now)s::timestamptz RETURNING c.tenant)
SELECT g.tenant, count(*)
FROM (SELECT * FROM gone UNION ALL SELECT * FROM spent UNION ALL SELECT * FROM idle) g GROUP BY 1
"""
_RIGHTS = """
SELECT o.what FROM (VALUES
    ('DELETE on minutebook.streams', has_table_privilege('minutebook.streams', 'DELETE')),
    ('DELETE on minutebook.events', has_table_privilege('minutebook.events', 'DELETE')),
    ('DELETE on minutebook.idempotency', has_table_privilege('minutebook.idempotency', 'DELETE')),
    ('DELETE on minutebook.inbound_signatures', has_table_privilege('minutebook.inbound_signatures', 'DELETE')),
    ('DELETE on minutebook.channel_sessions', has_table_privilege('minutebook.channel_sessions', 'DELETE')),
    ('DELETE on minutebook.leases', has_table_privilege('minutebook.leases', 'DELETE')),
    ('DELETE on minutebook.snapshots', has_table_privilege('minutebook.snapshots', 'DELETE')),
    ('DELETE on minutebook.deltas', has_table_privilege('minutebook.deltas', 'DELETE')),
    ('DELETE on minutebook.token_reservations', has_table_privilege('minutebook.token_reservations', 'DELETE')),
    ('USAGE on minutebook_views', has_schema_privilege('minutebook_views', 'USAGE')),
    ('EXECUTE on minutebook.purge_stream_v1', has_function_privilege('minutebook.purge_stream_v1(bigint)', 'EXECUTE'))
) AS o (what, held) WHERE NOT o.held
UNION ALL
SELECT format('DELETE on minutebook_views.%I', c.relname) FROM pg_class c
WHERE c.relnamespace = 'minutebook_views'::regnamespace AND c.relkind = 'r' AND NOT has_table_privilege(c.oid, 'DELETE')
ORDER BY 1
"""


class RetentionBroken(Exception):
    """The retention role cannot do its work; the message says why and what to do."""


class TenantReport(msgspec.Struct, frozen=True, rename="camel"):
    """What went of one tenant (or would go, on a dry run). keys: what is remembered of requests for a time, idempotency
    keys and spent proofs and idle sessions of channels."""

    tenant: str
    streams: int
    events: int
    keys: int


class RetentionReport(msgspec.Struct, frozen=True, rename="camel"):
    """remaining: streams and keys, expired when the run began, that the auditor still counts after it.

    failures: streams that could not be purged, with the reason; they are among the remaining.
    """

    is_dry_run: bool
    tenants: list[TenantReport]
    remaining_streams: int
    remaining_keys: int
    failures: list[str]

    @property
    def ok(self) -> bool:
        """Whether nothing that had expired is left; a dry run leaves all of it."""
        return self.is_dry_run or not (self.remaining_streams or self.remaining_keys or self.failures)


_Session = psycopg.AsyncConnection[tuple[Any, ...]]


async def purge_expired(
    url: str,
    auditor_url: str,
    *,
    inbound_days: int = INBOUND_DAYS,
    dry_run: bool = False,
    told: Callable[[int, int], None] | None = None,
) -> RetentionReport:
    """Delete what expired up to now. `url` is the retention role's, whose policies do not narrow the auditor's eyes.
    inbound_days: how long spent proofs of channels are kept; 7 at least.

    Raises RoleRefused for another role, and RetentionBroken where a right is missing or row-level security hides from
    the retention role what has expired: a purge that deletes nothing must never look like one that had nothing to do
    (fault B12). A stream that is held meanwhile stays and is not counted.
    """
    async with await _connect(url, "retention") as session, await _connect(auditor_url, "auditor") as auditor:
        await _check_rights(session)
        now: datetime = (await _rows(auditor, _NOW))[0][0]
        old = {"now": now, "inbound_days": inbound_days}
        expired = await _rows(session, _EXPIRED_IDS, {"now": now})
        await _check_sight(auditor, Counter(tenant for _, _, tenant in expired), now)
        if dry_run:
            tenants = await _count(auditor, old)
            streams, keys = sum(each.streams for each in tenants), sum(each.keys for each in tenants)
            return RetentionReport(True, tenants, streams, keys, [])
        streams, events, failures = await _purge(session, expired, told)
        keys = Counter[str](dict(await _rows(session, _DELETE_KEYS, old)))  # pyright: ignore[reportArgumentType]
        tenants = [
            TenantReport(tenant, streams[tenant], events[tenant], keys[tenant])
            for tenant in sorted(streams.keys() | keys.keys())
        ]
        left = await _count(auditor, old)
        return RetentionReport(
            False, tenants, sum(each.streams for each in left), sum(each.keys for each in left), failures
        )


async def _connect(url: str, role: RoleName) -> _Session:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S)
    try:
        await check_role(connection, role)
        await connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(f"minutebook_{role}")))
        await connection.execute("SET search_path = pg_catalog, pg_temp")
    except BaseException:
        await connection.close()
        raise
    return connection


async def _rows(session: _Session, statement: LiteralString, parameters: Any = None) -> list[tuple[Any, ...]]:
    try:
        return await (await session.execute(statement, parameters)).fetchall()
    except psycopg.errors.InsufficientPrivilege as error:
        raise RetentionBroken(
            f"{error.diag.message_primary}: grants are missing; run `minutebook migrate`, then `minutebook doctor`."
        ) from error


async def _check_rights(session: _Session) -> None:
    missing = [row[0] for row in await _rows(session, _RIGHTS)]
    if missing:
        raise RetentionBroken(
            f"The retention role lacks {', '.join(missing)}; nothing was deleted. See `minutebook doctor`."
        )


async def _check_sight(auditor: _Session, seen: Counter[str], now: datetime) -> None:
    there = {tenant: streams for tenant, streams, _ in await _rows(auditor, _EXPIRED_BY_TENANT, {"now": now})}
    hidden = sum(there.values()) - seen.total()
    if hidden > 0:
        raise RetentionBroken(
            f"Row-level security hides {hidden} of {sum(there.values())} expired streams from the retention role;"
            " nothing was deleted. See `minutebook doctor`."
        )


async def _purge(
    session: _Session, expired: list[tuple[Any, ...]], told: Callable[[int, int], None] | None
) -> tuple[Counter[str], Counter[str], list[str]]:
    streams, events, failures = Counter[str](), Counter[str](), list[str]()
    for done, (stream_id, name, tenant) in enumerate(expired, 1):
        try:
            deleted = (await _rows(session, _PURGE, (stream_id,)))[0][0]
        except (psycopg.OperationalError, RetentionBroken):
            raise
        except psycopg.Error as error:
            if len(failures) < MAX_FAILURES:
                failures.append(f"{name}: {error.diag.message_primary or type(error).__name__}")
            continue
        if deleted is not None:  # None: held, or gone, since it was listed
            streams[tenant] += 1
            events[tenant] += deleted
        if told is not None:
            told(done, len(expired))
    return streams, events, failures


async def _count(auditor: _Session, old: dict[str, Any]) -> list[TenantReport]:
    streams: dict[str, tuple[int, int]] = {
        tenant: (count, events) for tenant, count, events in await _rows(auditor, _EXPIRED_BY_TENANT, old)
    }
    keys: dict[str, int] = dict(await _rows(auditor, _OLD_KEYS_BY_TENANT, old))  # pyright: ignore[reportArgumentType]
    return [
        TenantReport(tenant, *streams.get(tenant, (0, 0)), keys.get(tenant, 0))
        for tenant in sorted(streams.keys() | keys.keys())
    ]
