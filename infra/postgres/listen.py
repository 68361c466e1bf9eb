"""The wake-up channel: one LISTEN connection a process. It carries stream ids, never data, and may always be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import structlog

CHANNEL = "minutebook"

PING_S = 1.0
"""Silence after which the connection is pinged."""

PING_TIMEOUT_S = 1.0
"""A ping that takes longer means that the listener hangs."""

RECONNECT_S = (0.1, 0.5, 1.0)
"""Waits before the next try to connect; the last one repeats."""

Wake = Callable[[frozenset[int] | None], None]
"""Called with the stream ids that moved, or None where any may have."""

log = structlog.get_logger(__name__)


class Listener:
    """Keeps one session listening, outside every transaction, and calls `wake` for what it hears.

    After every (re)connect `wake(None)` is called once, so that nothing between two sessions is missed. `is_up` says
    whether a session is listening now.
    """

    def __init__(self, url: str, wake: Wake) -> None:
        self._url = url
        self._wake = wake
        self._task: asyncio.Task[None] | None = None
        self.is_up = False
        self.reconnects = 0

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
                    await connection.execute("LISTEN minutebook")
                    self.is_up = True
                    tries = 0
                    self._wake(None)
                    await self._listen(connection)
            except (psycopg.Error, OSError, TimeoutError) as error:
                log.warning("listener lost", error=type(error).__name__)
            finally:
                self.is_up = False
            self.reconnects += 1
            await asyncio.sleep(RECONNECT_S[min(tries, len(RECONNECT_S) - 1)])
            tries += 1

    async def _listen(self, connection: psycopg.AsyncConnection[Any]) -> None:
        while True:
            async for notify in connection.notifies(timeout=PING_S):
                self._wake(parse(notify.payload))
            async with asyncio.timeout(PING_TIMEOUT_S):
                await connection.execute("SELECT 1")


def parse(payload: str) -> frozenset[int] | None:
    """The stream ids of a notification; None for `*` and for anything that is not ours."""
    try:
        return frozenset(int(part) for part in payload.split(","))
    except ValueError:
        return None
