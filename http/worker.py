"""What every process of a server has, and the one that folds read models; without the imports of the HTTP side."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

import uvloop

from ..infra.database import Database
from ..infra.postgres.listen import Listener
from ..infra.postgres.pool import make_pool, verify_role
from ..infra.postgres.projector import Projector
from ..infra.postgres.views import PROJECTIONS
from ..infra.settings import Settings

USER_TIMEOUT_MS = 30_000
"""The kernel gives up a peer that acknowledges nothing for this long."""


def bind(host: str, port: int) -> socket.socket:
    """The listening socket; its port is known before anything is started. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted sockets inherit it. Without it the body of an answer waits for the client's delayed acknowledgement of
    # the headers: 40 ms on every request.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
    sock.bind((host, port))
    sock.set_inheritable(True)
    return sock


@contextlib.asynccontextmanager
async def projectors(settings: Settings, database: Database) -> AsyncGenerator[list[Projector]]:
    """The live projectors of this process, with a listener of their own."""
    pool = make_pool(
        database.url("projector"),
        "projector",
        max_size=len(PROJECTIONS) + 1,
        statement_timeout_ms=settings.database.statement_timeout_ms,
    )
    await verify_role(database.url("projector"), "projector")
    await pool.open(wait=True)
    running: list[Projector] = []

    def wake(ids: frozenset[int] | None) -> None:
        for projector in running:
            projector.wake(ids)

    listener = Listener(database.listen_url, wake, database.url("app"))
    running += [Projector(projection, pool, lambda: listener.is_up) for projection in PROJECTIONS.values()]
    listener.start()
    for projector in running:
        projector.start()
    try:
        yield running
    finally:
        for projector in running:
            await projector.close()
        await listener.close()
        await pool.close()


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a serving process on the loop that it is made for."""
    uvloop.run(main)


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
