"""The wake-up channel: one LISTEN connection a process. It carries stream ids, never data, and may always be lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Any

import psycopg
import structlog
from psycopg import sql

from .deltas_table import CHANNEL as DELTAS
from .inbox import CHANNEL as INBOXES
from .turn_work import CHANNEL as TURNS

CHANNEL = "minutebook"

PING_S = 1.0
"""Silence after which the connection is pinged."""

PING_TIMEOUT_S = 1.0
"""A ping that takes longer means that the listener hangs."""

RECONNECT_S = (0.1, 0.5, 1.0)
"""Waits before the next try to connect; the last one repeats."""

PING = "SELECT pg_notification_queue_usage()"

PROBE_TIMEOUT_S = 3.0
"""A wake-up of our own that is not heard within this time means that the channel is deaf: a pooler in transaction mode
takes LISTEN, and nothing ever comes (field fault B22)."""

PROBE = "0"
"""Payload of such a wake-up: no stream has this id, so nobody wakes for nothing."""

Wake = Callable[[frozenset[int] | None], None]
"""Called with the stream ids that moved, or None where any may have."""

log = structlog.get_logger(__name__)


class Listener:
    """Keeps one session listening, outside every transaction, and calls `wake` for what it hears.

    `wake(None)` is called after every (re)connect, so that nothing between two sessions is missed, and at every loss.
    `is_up`: a session is listening, and was not found deaf. probe_url: where wake-ups are sent from, for the self-test.
    wake_deltas, wake_turns, wake_inboxes: called likewise for the channels of deltas, of work that was left and of
    inboxes (with the ids of their recipients' rows), which are heard only then.
    queue_usage: how full PostgreSQL's notification queue was at the last ping, 0 to 1; commits fail when it is full.
    """

    def __init__(
        self,
        url: str,
        wake: Wake,
        probe_url: str | None = None,
        *,
        wake_deltas: Wake | None = None,
        wake_turns: Wake | None = None,
        wake_inboxes: Wake | None = None,
    ) -> None:
        self._url = url
        wakes = {CHANNEL: wake, DELTAS: wake_deltas, TURNS: wake_turns, INBOXES: wake_inboxes}
        self._wakes = {channel: each for channel, each in wakes.items() if each is not None}
        self._probe_url = probe_url or url
        self._task: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self._is_listening = False
        self._is_deaf = False
        self.reconnects = 0
        self.queue_usage = 0.0

    @property
    def is_up(self) -> bool:
        """Whether wake-ups may be relied upon to come soon."""
        return self._is_listening and not self._is_deaf

    def start(self) -> None:
        """Begin on the running loop."""
        self._task = asyncio.create_task(self._run(), name="listener")

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        tries = 0
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, connect_timeout=5, application_name="minutebook listener"
                ) as connection:
                    for channel in self._wakes:
                        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                    self._is_listening = True
                    tries = 0
                    self._wake_all()
                    await self._listen_probed(connection)
            except (psycopg.Error, OSError, TimeoutError) as error:
                log.warning("listener lost", error=type(error).__name__)
            finally:
                self._is_listening = False
            # Whoever waits for long because wake-ups were heard must look now, and from now on by itself.
            self._wake_all()
            self.reconnects += 1
            await asyncio.sleep(RECONNECT_S[min(tries, len(RECONNECT_S) - 1)])
            tries += 1

    async def _listen_probed(self, connection: psycopg.AsyncConnection[Any]) -> None:
        probe = asyncio.create_task(self._probe(), name="listener probe")
        try:
            await self._listen(connection)
        finally:
            probe.cancel()
            await asyncio.gather(probe, return_exceptions=True)

    async def _listen(self, connection: psycopg.AsyncConnection[Any]) -> None:
        while True:
            async for notify in connection.notifies(timeout=PING_S):
                self._heard.set()
                self._is_deaf = False
                if notify.payload != PROBE:
                    self._wakes[notify.channel](parse(notify.payload))
            await self._ping(connection)

    async def _ping(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Raises TimeoutError where the answer does not come; the connection is cut then, since a cancelled statement
        would wait for the server that hangs."""
        asking = asyncio.create_task(connection.execute(PING), name="listener ping")
        try:
            await asyncio.wait((asking,), timeout=PING_TIMEOUT_S)
        finally:
            if not asking.done():
                self._is_listening = False
                cut(connection)
                await asyncio.gather(asking, return_exceptions=True)
        row = await (await asking).fetchone()
        self.queue_usage = float(row[0]) if row else 0.0

    async def _probe(self) -> None:
        """Send one wake-up and wait for it; a deaf channel is said once, and left to the polls."""
        self._heard.clear()
        with contextlib.suppress(psycopg.Error, OSError):
            async with await psycopg.AsyncConnection.connect(
                self._probe_url, autocommit=True, connect_timeout=5, application_name="minutebook probe"
            ) as connection:
                await connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, PROBE))
            try:
                async with asyncio.timeout(PROBE_TIMEOUT_S):
                    await self._heard.wait()
                self._is_deaf = False
            except TimeoutError:
                if not self._is_deaf:
                    log.warning("no wake-up is heard; set database.listenUrl to a direct connection")
                self._is_deaf = True
                self._wake_all()

    def _wake_all(self) -> None:
        for wake in self._wakes.values():
            wake(None)


def cut(connection: psycopg.AsyncConnection[Any]) -> None:
    """End the wire under a connection, so that whoever waits on it is told at once."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


def parse(payload: str) -> frozenset[int] | None:
    """The stream ids of a notification; None for `*` and for anything that is not ours."""
    try:
        return frozenset(int(part) for part in payload.split(","))
    except ValueError:
        return None
