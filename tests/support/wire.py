"""A wire to PostgreSQL that can be cut, frozen or made deaf, and that loses answers; for tests without a loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from minutebook.infra.postgres.embedded import EmbeddedPostgres
from psycopg.conninfo import conninfo_to_dict

READY = b"Z\x00\x00\x00\x05I"
"""ReadyForQuery outside a transaction: what was sent is committed or refused."""

NOTIFICATION = ord("A")
HEADER = 5
CHUNK = 1 << 16


class Wire:
    """A proxy on 127.0.0.1 in a thread of its own; `url(role)` leads through it. All switches may be turned any time.

    deaf: wake-ups (NotificationResponse) are left out, all else goes through. frozen: nothing goes either way, and
    nothing says so. refusing: connections are cut at once. `lose(text)`: the next request that holds the text reaches
    the database, which commits; its answer is thrown away and the connection cut after `meanwhile`.
    """

    def __init__(self, database: EmbeddedPostgres, name: str = "minutebook") -> None:
        settings = conninfo_to_dict(database.url())
        self._path = str(Path(str(settings["host"])) / f".s.PGSQL.{settings['port']}")
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self._marker = b""
        self._meanwhile: Callable[[], Any] = lambda: None
        self.deaf = False
        self.refusing = False
        self.lost = 0
        self.port = 0

    def url(self, role: str = "app") -> str:
        """A URL through the wire for one of the house's roles."""
        return (
            f"postgresql://minutebook_{role}@127.0.0.1:{self.port}/{self._name}?sslmode=disable&gssencmode=disable"
        )  # fmt: skip

    def lose(self, text: str, meanwhile: Callable[[], Any] = lambda: None) -> None:
        """Arm it for the next request that holds `text`."""
        self._meanwhile = meanwhile
        self._marker = text.encode()

    def freeze(self) -> None:
        """Stop forwarding, both ways, on connections that are there and on new ones."""
        self._loop.call_soon_threadsafe(self._thawed.clear)

    def thaw(self) -> None:
        """Forward again, what was held back first."""
        self._loop.call_soon_threadsafe(self._thawed.set)

    def cut(self) -> None:
        """Cut every connection that is there."""
        self._loop.call_soon_threadsafe(self._cut)

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Cut everything and end the thread."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        self._cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            return
        up_reader, up_writer = await asyncio.open_unix_connection(self._path)
        unlucky = asyncio.Event()
        ways = [
            asyncio.create_task(self._up(reader, up_writer, unlucky)),
            asyncio.create_task(self._down(up_reader, writer, unlucky)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            up_writer.transport.abort()

    async def _up(
        self, reader: asyncio.StreamReader, up_writer: asyncio.StreamWriter, unlucky: asyncio.Event
    ) -> None:  # fmt: skip
        while data := await reader.read(CHUNK):
            await self._thawed.wait()
            if self._marker and self._marker in data:
                self._marker = b""
                unlucky.set()
            up_writer.write(data)
            await up_writer.drain()

    async def _down(
        self, up_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, unlucky: asyncio.Event
    ) -> None:  # fmt: skip
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await up_reader.readexactly(HEADER)
                body = await up_reader.readexactly(int.from_bytes(head[1:]) - HEADER + 1)
                await self._thawed.wait()
                if unlucky.is_set():
                    if head + body == READY:
                        await self._loop.run_in_executor(None, self._meanwhile)
                        self.lost += 1
                        return
                    continue
                if head[0] == NOTIFICATION and self.deaf:
                    continue
                writer.write(head + body)
                await writer.drain()


@contextlib.contextmanager
def wire_to(database: EmbeddedPostgres) -> Generator[Wire]:
    """A wire to the embedded server's own database, gone with the block."""
    wire = Wire(database)
    wire.start()
    try:
        yield wire
    finally:
        wire.stop()
