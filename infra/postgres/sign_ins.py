"""Sign-ins under way, and what they said of people: rows that go by their age."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.linking.sign_in_ports import MAX_SIGN_INS, SIGN_IN_S, Person, SignIn
from .reads import fetch

_PUT = """
INSERT INTO minutebook.link_sign_ins (hash, tenant, link_id, issuer, verified, expires_at)
SELECT %(hash)s, %(tenant)s, %(link_id)s, %(issuer)s, %(verified)s::jsonb,
    clock_timestamp() + make_interval(secs => %(s)s)
WHERE (SELECT count(*) FROM minutebook.link_sign_ins s
       WHERE s.link_id = %(link_id)s AND s.expires_at > clock_timestamp()) < %(most)s
RETURNING true
"""
_LOOK = """
SELECT s.tenant, s.link_id, s.issuer, s.verified::text FROM minutebook.link_sign_ins s
WHERE s.hash = %s AND s.expires_at > clock_timestamp()
"""
_TAKE = """
DELETE FROM minutebook.link_sign_ins s WHERE s.hash = %s
RETURNING s.tenant, s.link_id, s.issuer, s.verified::text, s.expires_at > clock_timestamp()
"""
_FORGET = """
WITH gone AS (DELETE FROM minutebook.link_sign_ins s WHERE s.expires_at <= clock_timestamp() RETURNING true)
SELECT count(*) FROM gone
"""
_KEEP = """
INSERT INTO minutebook.claim_snapshots AS c (tenant, account, issuer, sub, claims, taken_at, expires_at)
VALUES (%(tenant)s, %(account)s, %(issuer)s, %(sub)s, %(claims)s::jsonb, clock_timestamp(),
    clock_timestamp() + make_interval(secs => %(ttl_s)s))
ON CONFLICT ON CONSTRAINT claim_snapshots_pkey DO UPDATE SET issuer = EXCLUDED.issuer, sub = EXCLUDED.sub,
    claims = EXCLUDED.claims, taken_at = EXCLUDED.taken_at, expires_at = EXCLUDED.expires_at
RETURNING true
"""
_OF = """
SELECT c.claims::text FROM minutebook.claim_snapshots c
WHERE c.tenant = %s AND c.account = %s AND c.expires_at > clock_timestamp()
"""
_FORGET_CLAIMS = """
WITH gone AS (DELETE FROM minutebook.claim_snapshots c WHERE c.expires_at <= clock_timestamp() RETURNING true)
SELECT count(*) FROM gone
"""

Pool = AsyncConnectionPool[psycopg.AsyncConnection[Any]]


class PostgresSignIns:
    """SignInRows of commands/linking/sign_in_ports.py over a pool of the app role."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def put(self, hashed: str, sign_in: SignIn) -> bool:
        """See SignInRows.put."""
        row = {
            "hash": hashed,
            "tenant": sign_in.tenant,
            "link_id": sign_in.link_id,
            "issuer": sign_in.issuer,
            "verified": None if sign_in.person is None else msgspec.json.encode(sign_in.person).decode(),
            "s": SIGN_IN_S,
            "most": MAX_SIGN_INS,
        }
        return bool(await fetch(self._pool, _PUT, row))

    async def look(self, hashed: str) -> SignIn | None:
        """See SignInRows.look."""
        rows = await fetch(self._pool, _LOOK, (hashed,))
        return _sign_in(*rows[0]) if rows else None

    async def take(self, hashed: str) -> SignIn | None:
        """See SignInRows.take."""
        rows = await fetch(self._pool, _TAKE, (hashed,))
        return _sign_in(*rows[0][:4]) if rows and rows[0][4] else None

    async def forget(self) -> int:
        """See SignInRows.forget."""
        return (await fetch(self._pool, _FORGET, ()))[0][0]


class PostgresSnapshots:
    """Snapshots of commands/linking/sign_in_ports.py, and Claims of channels, over a pool of the app role."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def keep(self, account: str, person: Person) -> None:
        """See Snapshots.keep."""
        row = {
            "tenant": person.tenant,
            "account": account,
            "issuer": person.issuer,
            "sub": person.sub,
            "claims": msgspec.json.encode(person.claims).decode(),
            "ttl_s": person.claims_ttl_s,
        }
        await fetch(self._pool, _KEEP, row)

    async def of(self, tenant: str, account: str) -> Mapping[str, tuple[str, ...]]:
        """See Snapshots.of."""
        rows = await fetch(self._pool, _OF, (tenant, account))
        return msgspec.json.decode(rows[0][0], type=dict[str, tuple[str, ...]]) if rows else {}

    async def forget(self) -> int:
        """See Snapshots.forget."""
        return (await fetch(self._pool, _FORGET_CLAIMS, ()))[0][0]


def _sign_in(tenant: str, link_id: str, issuer: str, verified: str | None) -> SignIn:
    person = None if verified is None else msgspec.json.decode(verified, type=Person)
    return SignIn(tenant, link_id, issuer, person)
