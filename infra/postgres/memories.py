"""What agents remember of their askers: entries of a scope, whose label says nothing of the identity."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.conversations.ports import MemoryEntry, MemoryWritten
from ...domain.conversations.identity import Identity, identity_key
from .reads import fetch

LABEL_DIGITS = 16

_WRITE = (
    "SELECT minutebook.memory_write_v1(p_stream_id => %s, p_epoch => %s, p_tenant => %s, p_scope => %s, p_key => %s,"
    " p_text => %s, p_writer => %s, p_classes => %s)"
)
_READ = (
    "SELECT m.key, m.text, m.writer, m.classes FROM minutebook.memories m WHERE m.scope = %s AND m.tenant = %s"
    " AND m.updated_at > clock_timestamp() - interval '365 days' ORDER BY m.updated_at DESC, m.key"
)
_EXPIRE = "SELECT minutebook.memories_expire_v1()"


class PostgresMemories:
    """Memories of commands/conversations/ports.py over a pool of the app role. key: the server's own, which stays."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]], key: bytes) -> None:
        self._pool = pool
        self._key = key

    def label(self, agent: str, asker: Identity) -> str:
        """See Memories.label."""
        said = f"minutebook memory scope\0{agent}\0{identity_key(asker)}"
        return hmac.new(self._key, said.encode(), hashlib.sha256).hexdigest()[:LABEL_DIGITS]

    async def write(self, stream_id: int, epoch: int, tenant: str, scope: str, entry: MemoryEntry) -> MemoryWritten:
        """See Memories.write."""
        said = (entry.key, entry.text, entry.writer, list(entry.classes))
        return (await fetch(self._pool, _WRITE, (stream_id, epoch, tenant, scope, *said)))[0][0]

    async def read(self, tenant: str, scope: str) -> list[MemoryEntry]:
        """See Memories.read."""
        rows = await fetch(self._pool, _READ, (scope, tenant))
        return [MemoryEntry(key, text, writer, tuple(classes)) for key, text, writer, classes in rows]

    async def expire(self) -> None:
        """What nobody has written for 365 days goes. Raises Unavailable."""
        await fetch(self._pool, _EXPIRE, ())
