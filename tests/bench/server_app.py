"""The real application as an importable ASGI app, for measuring it under more than one server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import msgspec
from minutebook.commands.attendance import Attendance
from minutebook.commands.beside import Beside
from minutebook.commands.dispatcher import Dispatcher, Fingerprints
from minutebook.commands.rooms import Rooms
from minutebook.http.app import create_app
from minutebook.http.bounds import dispatcher_bounds, now, room_means
from minutebook.http.bridges import Bridges
from minutebook.http.conversation_work import conversation_work
from minutebook.http.limits import Limits
from minutebook.http.live import Hub
from minutebook.http.metrics import Metrics
from minutebook.http.services import Services
from minutebook.infra.clearance import ClearancePolicy
from minutebook.infra.database import Database
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.export_reader import ExportReader
from minutebook.infra.postgres.forks import PostgresForks
from minutebook.infra.postgres.holds import PostgresHolds
from minutebook.infra.postgres.listen import Listener
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.postgres.presence import PostgresPresence
from minutebook.infra.postgres.readiness import Readiness
from minutebook.infra.postgres.store import PostgresStore
from minutebook.infra.postgres.view_reader import ViewReader
from minutebook.infra.redaction.setup import redactor_of
from minutebook.infra.server_key import server_key
from minutebook.infra.settings_load import load
from minutebook.infra.tokens import TokenVerifier

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
    metrics = Metrics()
    hub = Hub(store, metrics.fanned_out)
    hub.start()
    Listener(database.listen_url, hub.wake, database.url("app")).start()
    verifier = TokenVerifier(settings)
    await verifier.start()
    dispatcher = Dispatcher(store, Fingerprints(server_key(settings)), dispatcher_bounds(settings))
    limits = Limits(msgspec.structs.replace(settings.limits, actions_per_second=1_000_000, action_burst=1_000_000))
    attendance = Attendance(PostgresPresence(pool), now, settings.timeouts.presence_seconds)
    attendance.start()
    beside = Beside(store, PostgresForks(pool), PostgresHolds(pool), limits.admit, attendance.acted)
    redactor = redactor_of(settings)
    clearance = ClearancePolicy(settings.clearance, settings.config_dir)
    work = await contextlib.AsyncExitStack().enter_async_context(
        conversation_work(
            settings, pool, store, dispatcher, redactor, server_key(settings), limits.admit, metrics, clearance
        )
    )
    services = Services(
        settings,
        Rooms(dispatcher, room_means(settings, redactor.value), beside),
        store,
        ViewReader(pool),
        ExportReader(pool),
        hub,
        await store.log_id(),
        now,
        Bridges(store, settings.limits.run_requests),
        limits,
        attendance,
        metrics,
        work,
        clearance,
    )
    return create_app(services, verifier, Readiness(pool, []))


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
