"""The real appender over a real pool, and a proxy that loses the database's answers on demand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import msgspec
from minutebook.commands.ports import Append, Creation, EventRow, Fence, Key, Outcome
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.pool import make_pool
from psycopg_pool import AsyncConnectionPool
from ulid_transform import ulid_now

READY = b"Z\x00\x00\x00\x05I"
"""The server's ReadyForQuery outside a transaction: what was sent is committed or refused."""

Pool = AsyncConnectionPool[Any]


def row(text: str = "hello", **fields: Any) -> EventRow:
    """An event as a handler would build it."""
    payload = fields.pop("payload", msgspec.Raw(msgspec.json.encode({"text": text})))
    return EventRow(ulid_now(), "message", 1, payload, "human", "anna", "client", **fields)


def rows(count: int) -> list[EventRow]:
    """`count` events that differ in their text."""
    return [row(f"number {n}") for n in range(1, count + 1)]


def create(stream: str, *events: EventRow, key: Key | None = None) -> Append:
    """An item that begins a stream; with one event where none are given."""
    return Append(stream, 0, events or (row(),), create=Creation(stream.partition(":")[0], "acme", 90), key=key)


def keyed(name: str, fingerprint: str = "0a", scope: str = "rooms") -> Key:
    """An idempotency key of one caller."""
    return Key("acme", "anna", "post", scope, name, fingerprint, 201, {"ok": True})


def fenced(epoch: int, holder: str = "h1") -> Fence:
    """The claim to hold the run's lease."""
    return Fence("run", holder, epoch)


def kinds(outcomes: list[Outcome]) -> list[str]:
    """Only the words."""
    return [outcome.kind for outcome in outcomes]


@contextlib.asynccontextmanager
async def appending(url: str, *, writers: int = 1, connections: int = 2) -> AsyncGenerator[tuple[Appender, Pool]]:
    """A started appender and its pool of warm connections; closed in order at the end."""
    pool = make_pool(url, "app", max_size=connections, min_size=connections, statement_timeout_ms=20_000)
    await pool.open(wait=True, timeout=20)
    appender = Appender(pool, writers=writers)
    appender.start()
    try:
        yield appender, pool
    finally:
        await appender.close()
        await pool.close()


def run(work: Callable[[Appender, Pool], Coroutine[Any, Any, None]], url: str, **options: Any) -> None:
    """Run a test's body on a loop of its own, with an appender on `url`."""

    async def go() -> None:
        async with appending(url, **options) as (appender, pool):
            await work(appender, pool)

    asyncio.run(go())


class Proxy:
    """Stands between a pool and the database on 127.0.0.1. `lose` names text that a request must hold to be unlucky.

    With `lands` the request reaches the database, which commits; its answer is thrown away, `meanwhile` runs, and the
    client finds a closed connection. Without, the request itself is thrown away. Once per call of `lose`.
    """

    def __init__(self, socket_path: str) -> None:
        self._path = socket_path
        self._server: asyncio.Server | None = None
        self._marker = b""
        self._lands = True
        self._meanwhile: Callable[[], Any] = lambda: None
        self._clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.lost = 0

    def lose(self, text: str, *, lands: bool, meanwhile: Callable[[], Any] = lambda: None) -> None:
        """Arm the proxy for the next request that holds `text`."""
        self._marker, self._lands, self._meanwhile = text.encode(), lands, meanwhile

    async def start(self) -> None:
        """Listen, on the same port as before where there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Cut every connection and take no more: the database is down, as far as the client can tell."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._clients):
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._clients.add(writer)
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            writer.transport.abort()
            return
        unlucky = asyncio.Event()
        down = asyncio.create_task(self._down(up_reader, writer, unlucky))
        try:
            await self._up(reader, writer, up_writer, unlucky)
            if unlucky.is_set():
                await down
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            down.cancel()
            await asyncio.gather(down, return_exceptions=True)
            up_writer.transport.abort()
            writer.transport.abort()
            self._clients.discard(writer)
            self._tasks.discard(task)

    async def _up(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_writer: asyncio.StreamWriter,
        unlucky: asyncio.Event,
    ) -> None:
        while data := await reader.read(1 << 20):
            if self._marker and self._marker in data:
                self._marker = b""
                self.lost += 1
                if not self._lands:
                    self._meanwhile()
                    writer.transport.abort()
                    return
                unlucky.set()
            up_writer.write(data)
            await up_writer.drain()
            if unlucky.is_set():
                return

    async def _down(
        self, up_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, unlucky: asyncio.Event
    ) -> None:
        held = b""
        while data := await up_reader.read(1 << 20):
            if not unlucky.is_set():
                writer.write(data)
                await writer.drain()
                continue
            held = (held + data)[-len(READY) :]
            if held == READY:
                self._meanwhile()
                writer.transport.abort()
                return
