"""Background turns as a client has them: begun, asked for, and looked at in the database."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

import httpx
from live_server import LiveServer, until
from minutebook.commands.answers.continuations import KeyedContinuations, forget_all
from minutebook.commands.answers.ports import Continuation, Origin
from minutebook.commands.conversations.access import Access
from minutebook.domain.conversations.decide import envelope_id
from minutebook.domain.conversations.identity import identity_of
from minutebook.domain.principals import Caller, Principal
from minutebook.infra.continuation_hashes import ContinuationHashes
from minutebook.infra.conversation_keys import conversation_keys
from minutebook.infra.postgres.continuation_rows import PostgresContinuationRows
from minutebook.infra.postgres.conversation_log import PostgresConversationLog
from minutebook.infra.postgres.pool import Pool, make_pool
from minutebook.infra.server_key import server_key
from minutebook.infra.settings import Settings
from ulid_transform import ulid_now

ENDS = ("completed", "failed", "cancelled", "expired")
T = TypeVar("T")


def caller(name: str = "alice", tenant: str = "default") -> Caller:
    """A person as their token says them."""
    return Caller(Principal("human", name), tenant, frozenset({"agents-member"}), expires_at=2**40)


@contextlib.asynccontextmanager
async def _pool_of(server: LiveServer) -> AsyncGenerator[Pool]:
    pool = make_pool(server.database_url("app"), "app", max_size=2, statement_timeout_ms=5000)
    await pool.open(wait=True)
    try:
        yield pool
    finally:
        await pool.close()


@contextlib.asynccontextmanager
async def continuations(server: LiveServer, ttl_s: int = 86_400) -> AsyncGenerator[KeyedContinuations]:
    """The handles of that server, worked on from here with its key."""
    settings = Settings(data_dir=server.data_dir)
    async with _pool_of(server) as pool:
        access = Access(PostgresConversationLog(pool), conversation_keys(settings), lambda _: None)
        rows, hashes = PostgresContinuationRows(pool), ContinuationHashes(server_key(settings))
        yield KeyedContinuations(rows, hashes, access, ttl_s, lambda: secrets.randbits(130))


def forgotten(server: LiveServer) -> int:
    """What the retention job deletes now."""

    async def go() -> int:
        async with _pool_of(server) as pool:
            return await forget_all(PostgresContinuationRows(pool))

    return asyncio.run(go())


def with_continuations(
    server: LiveServer, work: Callable[[KeyedContinuations], Coroutine[Any, Any, T]], **options: Any
) -> T:
    """What `work` gives."""

    async def go() -> T:
        async with continuations(server, **options) as handles:
            return await work(handles)

    return asyncio.run(go())


def begin(server: LiveServer, talk: str, message_id: str, name: str = "alice", **options: Any) -> Continuation:
    """The handle of a turn that is sent under that message id."""
    who = caller(name)
    origin = Origin(who.tenant, f"account-of-{name}", ulid_now())
    return with_continuations(
        server, lambda handles: handles.begin(who, talk, envelope_id(identity_of(who), message_id), origin), **options
    )


def send(client: httpx.Client, talk: str, text: str, **fields: Any) -> str:
    """Send a background turn; its token."""
    answer = client.post(f"/v1/conversations/{talk}/turns", json={"text": text, "background": True, **fields})
    assert answer.status_code == 202, answer.text
    handle = answer.json()["continuation"]
    assert set(handle) == {"token", "url", "expiresAt"}
    assert handle["url"] == answer.headers["location"] == f"/v1/continuations/{handle['token']}"
    return handle["token"]


def look(client: httpx.Client, token: str, wait: int = 0) -> dict[str, Any]:
    """How it stands."""
    answer = client.get(f"/v1/continuations/{token}", params={"wait": wait})
    assert answer.status_code == 200, answer.text
    return answer.json()


def ended(client: httpx.Client, token: str) -> dict[str, Any]:
    """How it ended, asked for again and again."""
    found: list[dict[str, Any]] = []

    def is_over() -> bool:
        found[:] = [look(client, token)]
        return found[0]["status"] in ENDS

    until(is_over, 20, "the end of a background turn")
    return found[0]
