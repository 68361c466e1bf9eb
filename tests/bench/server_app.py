"""The real application as an importable ASGI app, for measuring it under more than one server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from minutebook.commands.dispatcher import Dispatcher, Fingerprints
from minutebook.http import process
from minutebook.http.app import create_app
from minutebook.http.live import Hub
from minutebook.http.services import Services
from minutebook.infra.database import Database
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.export_reader import ExportReader
from minutebook.infra.postgres.listen import Listener
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.postgres.readiness import Readiness
from minutebook.infra.postgres.store import PostgresStore
from minutebook.infra.postgres.view_reader import ViewReader
from minutebook.infra.server_key import server_key
from minutebook.infra.settings_load import load
from minutebook.infra.tokens import TokenVerifier
from prometheus_client import CollectorRegistry

_app: Any = None
_lock = asyncio.Lock()


async def _make() -> Any:
    settings = load(Path(os.environ["BENCH_DATA_DIR"]), {}, {})
    database = Database(settings).open()
    pool = make_pool(database.url("app"), "app", max_size=10, statement_timeout_ms=10_000)
    await pool.open(wait=True)
    appender = Appender(pool)
    appender.start()
    store = PostgresStore(pool, appender)
    hub = Hub(store)
    hub.start()
    Listener(database.listen_url, hub.wake).start()
    verifier = TokenVerifier(settings)
    await verifier.start()
    dispatcher = Dispatcher(store, Fingerprints(server_key(settings)), process._bounds(settings))
    services = Services(
        settings,
        process._rooms(settings, dispatcher),
        store,
        ViewReader(pool),
        ExportReader(pool),
        hub,
        await store.log_id(),
        process._now,
    )
    return create_app(services, verifier, Readiness(pool, []), CollectorRegistry())


async def app(scope: Any, receive: Any, send: Any) -> None:
    """ASGI entry point; everything is made on the first request of a worker."""
    global _app
    if scope["type"] != "http":
        return
    if _app is None:
        async with _lock:
            if _app is None:
                _app = await _make()
    await _app(scope, receive, send)
