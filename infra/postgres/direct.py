"""One prepared statement at a time, straight through libpq: what cursors add costs more than a small append."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result
from psycopg.pq.abc import PGconn, PGresult
from psycopg_pool import AsyncConnectionPool

CANCEL_S = 2.0
"""Longest wait for what a cancelled statement came to, before its connection is given up."""

Pool = AsyncConnectionPool[psycopg.AsyncConnection[Any]]


class DirectSession:
    """A connection that is kept, for calls that answer one value. Not for two tasks at once.

    It is watched between calls too, so that one which the database closed is told before it is used again.
    """

    def __init__(self, pool: Pool, connection: psycopg.AsyncConnection[Any]) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._pgconn: PGconn = connection.pgconn
        self._fd = self._pgconn.socket
        self._prepared: set[bytes] = set()
        self._answer: asyncio.Future[list[PGresult]] | None = None
        self._results: list[PGresult] = []
        self._is_watched = False
        self._watch()
        self.connection = connection

    @classmethod
    async def open(cls, pool: Pool) -> DirectSession:
        """Take a connection out of the pool. Raises PoolTimeout, and psycopg.Error where it is dead already."""
        connection = await pool.getconn()
        try:
            return cls(pool, connection)
        except psycopg.Error:
            await pool.putconn(connection)
            raise

    @property
    def is_usable(self) -> bool:
        """Whether the connection is up as far as is known."""
        return not self.connection.closed and self._pgconn.status == pq.ConnStatus.OK

    async def close(self, *, is_broken: bool = False) -> None:
        """Give the connection back, or up where something is amiss with it."""
        self._unwatch()
        if is_broken:
            with contextlib.suppress(psycopg.Error):
                await self.connection.close()
        await self._pool.putconn(self.connection)

    @contextlib.asynccontextmanager
    async def through_psycopg(self) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
        """The connection for psycopg's own cursors, which wait on its socket themselves."""
        self._unwatch()
        try:
            yield self.connection
        finally:
            if self.is_usable:
                self._watch()

    async def call(self, name: bytes, sql: bytes, parameters: Sequence[bytes | None]) -> str | None:
        """The one value of a statement, in text form; prepared under `name` at its first use. Parameters are text.

        Raises psycopg.Error; after an error without an SQLSTATE the outcome is unknown. A cancelled call cancels its
        statement: what has not committed by then does not.
        """
        if any(parameter is not None and b"\0" in parameter for parameter in parameters):
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        if name not in self._prepared:
            await self._send(lambda: self._pgconn.send_prepare(name, sql))
            self._prepared.add(name)
        (result,) = await self._send(lambda: self._pgconn.send_query_prepared(name, parameters))
        value = result.get_value(0, 0)
        return None if value is None else value.decode()

    async def _send(self, send: Callable[[], None]) -> list[PGresult]:
        answer: asyncio.Future[list[PGresult]] = self._loop.create_future()
        self._answer, self._results = answer, []
        try:
            send()
            await self._flush()
            results = await asyncio.shield(answer)
        except asyncio.CancelledError:
            await self._cancel(answer)
            raise
        except psycopg.Error:
            self._unwatch()
            raise
        finally:
            self._answer = None
        for result in results:
            if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
                raise _error_of(result, self.connection.info.encoding)
        if len(results) != 1:
            raise psycopg.OperationalError("the connection was lost before the answer")
        return results

    async def _flush(self) -> None:
        """Until the socket has taken what was sent; a batch may be larger than its buffer."""
        while self._pgconn.flush():
            writable: asyncio.Future[None] = self._loop.create_future()
            self._loop.add_writer(self._fd, _settle, writable)
            try:
                await writable
            finally:
                self._loop.remove_writer(self._fd)

    async def _cancel(self, answer: asyncio.Future[list[PGresult]]) -> None:
        """Stop the statement and wait for what became of it."""
        with contextlib.suppress(psycopg.Error, TimeoutError):
            await self.connection.cancel_safe(timeout=CANCEL_S)
            await asyncio.wait_for(answer, CANCEL_S)

    def _watch(self) -> None:
        self._loop.add_reader(self._fd, self._on_readable)
        self._is_watched = True

    def _unwatch(self) -> None:
        """Before anybody else may get the number: libpq closes the socket of a connection that it finds broken."""
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._fd)

    def _on_readable(self) -> None:
        """Take what the database says; hand a whole answer to whoever waits for it."""
        pgconn = self._pgconn
        try:
            pgconn.consume_input()
            while self._answer is not None and not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    if not self._answer.done():
                        self._answer.set_result(self._results)
                    return
                self._results.append(result)
        except psycopg.Error as error:
            self._unwatch()
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(error)
                return
        if self._answer is None and pgconn.status != pq.ConnStatus.OK:
            self._unwatch()


def _error_of(result: PGresult, encoding: str) -> psycopg.Error:
    """The error of a result. What libpq says of a connection that broke has no SQLSTATE, nor a class."""
    error = error_from_result(result, encoding)
    return error if error.sqlstate is not None else psycopg.OperationalError(str(error))


def _settle(writable: asyncio.Future[None]) -> None:
    if not writable.done():
        writable.set_result(None)
