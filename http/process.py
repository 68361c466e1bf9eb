"""One process that serves HTTP: makes everything, serves, drains on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from typing import Any

import structlog
import uvicorn

from ..commands.attendance import Attendance
from ..commands.beside import Beside, Presence
from ..commands.dispatcher import Dispatcher, Fingerprints
from ..commands.rooms import Rooms
from ..infra.clearance import ClearancePolicy
from ..infra.database import Database
from ..infra.postgres.appender import Appender
from ..infra.postgres.census import CensusTaker
from ..infra.postgres.export_reader import ExportReader
from ..infra.postgres.forks import PostgresForks
from ..infra.postgres.holds import PostgresHolds
from ..infra.postgres.listen import Listener, Wake
from ..infra.postgres.pool import Pool, make_pool, verify_role
from ..infra.postgres.presence import PostgresPresence
from ..infra.postgres.readiness import Readiness
from ..infra.postgres.store import PostgresStore
from ..infra.postgres.view_reader import ViewReader
from ..infra.postgres.views import PROJECTIONS
from ..infra.redaction.setup import redactor_of
from ..infra.server_key import server_key
from ..infra.settings import Settings
from ..infra.tokens import TokenVerifier
from . import metrics_port
from .answer_services import requests_of
from .app import create_app
from .bounds import dispatcher_bounds, now, room_means
from .bridges import Bridges
from .census import CensusCollector
from .continuations import ContinuationDesk
from .conversation_services import conversing
from .delivery_services import operating_of
from .delta_hub import DeltaHub
from .inbound_services import Process, receiving_of
from .inbox_hub import InboxHub
from .inbox_services import inbox_of
from .limits import Limits
from .link_services import link_services_of
from .live import Hub
from .metrics import Metrics
from .redacted import RedactedEdge
from .services import Services
from .signals import signals_of

STOP_S = 10.0
"""The process is gone this long after SIGTERM, whatever its clients do."""

CUT_OFF_S = 1.0
"""This long before the end of the drain, commands that are not through are cancelled."""

MIN_POOL_FOR_TWO = 4
"""Connections from which on there are two writers of appends; with fewer, readers would have none left."""

IDLE_CONNECTION_S = 30

log = structlog.get_logger(__name__)


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, since the drain below owns them. `up` is set once it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def serve_http(
    settings: Settings, database: Database, sock: socket.socket, ready: Callable[[], None], stop: asyncio.Event
) -> None:
    """Serve until `stop` is set, then drain: streams get `reconnect`, commands under way their answer."""
    async with contextlib.AsyncExitStack() as stack:
        pool = await _pool(settings, database, stack)
        redactor = redactor_of(settings)
        metrics = Metrics(redactor.rule_ids)
        signals = stack.enter_context(signals_of(settings, metrics, "http"))
        # Each writer keeps a connection: most are for everybody else.
        writers = 2 if settings.database.pool_size >= MIN_POOL_FOR_TWO else 1
        appender = Appender(pool, writers=writers, told=metrics.append_took)
        appender.start()
        stack.push_async_callback(appender.close)
        store = PostgresStore(pool, appender)
        hub = Hub(store, metrics.fanned_out)
        hub.start()
        stack.push_async_callback(hub.close)
        bridges = Bridges(store, settings.limits.run_requests)
        bridges.start()
        stack.push_async_callback(bridges.close)
        clearance = ClearancePolicy(settings.clearance, settings.config_dir or settings.data_dir)
        verifier = TokenVerifier(settings)
        await verifier.start()
        stack.push_async_callback(verifier.close)
        key = server_key(settings)
        dispatcher = Dispatcher(store, Fingerprints(key), dispatcher_bounds(settings), metrics)
        limits = Limits(settings.limits)
        attendance = _attendance(settings, PostgresPresence(pool), stack)
        beside = Beside(store, PostgresForks(pool), PostgresHolds(pool), limits.admit, attendance.acted)
        conversations, runner = await stack.enter_async_context(
            conversing(
                settings,
                pool,
                store,
                dispatcher,
                redactor,
                key,
                metrics,
                verifier.verify,
                clearance,
                await requests_of(settings, database, stack),
            )
        )
        inbox = await stack.enter_async_context(inbox_of(settings, pool, store, conversations))
        listener = Listener(
            database.listen_url,
            _to_all(hub.wake, runner.wake, conversations.hub.wake),
            database.url("app"),
            wake_deltas=conversations.hub.wake_deltas,
            wake_turns=runner.look,
            wake_inboxes=inbox.hub.wake,
        )
        listener.start()
        stack.push_async_callback(listener.close)
        links = link_services_of(
            settings, pool, store, dispatcher, key, verifier, signals, limits.admit, stack, conversations.continuations
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
            bridges,
            limits,
            attendance,
            metrics,
            conversations,
            clearance,
            *await operating_of(settings, database, pool, store, dispatcher, limits.admit, signals, stack),
            (runs := ContinuationDesk(conversations)),
            await receiving_of(
                Process(
                    settings,
                    database,
                    pool,
                    store,
                    conversations.handlers,
                    conversations.intake,
                    redactor,
                    key,
                    signals,
                    links.linking,
                    links.snapshots,
                    links.unlinking,
                    runs,
                ),
                stack,
            ),
            inbox,
            links,
        )
        metrics.issuers(verifier.key_ages)
        metrics.gauges(_gauges(hub, conversations.hub, inbox.hub, dispatcher, listener, appender))
        metrics.census(CensusCollector(CensusTaker(pool, list(PROJECTIONS), settings.timeouts).take))
        own_port = metrics_port.of_http(settings.server)
        stack.enter_context(metrics_port.served(metrics, settings.server.host, own_port))
        app = create_app(services, verifier, Readiness(pool, list(PROJECTIONS)), serves_metrics=own_port is None)
        server = _server(RedactedEdge(app, redactor, key, metrics.refused), settings.server.drain_seconds)
        serving = asyncio.create_task(server.serve([sock]), name="http")
        await _until(server.up, serving)
        runner.start(lambda: listener.is_up)
        ready()
        await _until(stop, serving)
        for streams in (hub, conversations.hub, inbox.hub):
            streams.drain()
        server.should_exit = True
        await runner.close()
        await _drain(dispatcher, appender, settings.server.drain_seconds - CUT_OFF_S)
        await serving


async def _pool(settings: Settings, database: Database, stack: contextlib.AsyncExitStack) -> Pool:
    """The connections of the process, open until the stack is."""
    pool = make_pool(
        database.url("app"),
        "app",
        max_size=settings.database.pool_size,
        statement_timeout_ms=settings.database.statement_timeout_ms,
    )
    await verify_role(database.url("app"), "app")
    await pool.open(wait=True)
    stack.push_async_callback(pool.close)
    return pool


def _to_all(*wakes: Wake) -> Wake:
    """Who hears what the listener hears."""

    def wake(ids: frozenset[int] | None) -> None:
        for each in wakes:
            each(ids)

    return wake


async def _until(event: asyncio.Event, serving: asyncio.Task[None]) -> None:
    """Return once `event` is set, or the server has ended by itself."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def _server(app: Any, drain_s: int) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http="httptools",
            loop="uvloop",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            date_header=False,
            timeout_keep_alive=IDLE_CONNECTION_S,
            timeout_graceful_shutdown=drain_s,
        )
    )


def _gauges(
    hub: Hub, talks: DeltaHub, inbox: InboxHub, dispatcher: Dispatcher, listener: Listener, appender: Appender
) -> dict[str, tuple[str, Callable[[], float]]]:
    return {
        "streams": ("Open event streams.", lambda: hub.streams),
        "conversation_followers": ("Who follow a conversation, or wait for a background turn.", lambda: talks.streams),
        "inbox_streams": ("Open streams of inboxes.", lambda: inbox.streams),
        "followed_rooms": ("Rooms with a viewer in this process.", lambda: hub.followed),
        "log_reads": ("Pages of the log that were read for viewers.", lambda: hub.log_reads),
        "commands_in_flight": ("Commands that wait for their answer.", lambda: dispatcher.in_flight),
        "listener_up": ("Whether wake-ups are heard.", lambda: float(listener.is_up)),
        "listener_reconnects": ("Times the wake-up channel was lost.", lambda: listener.reconnects),
        "notification_queue_usage": (
            "How full PostgreSQL's notification queue is, 0 to 1; commits fail when it is full.",
            lambda: listener.queue_usage,
        ),
        "append_groups_waiting": ("Groups that wait for the next append.", lambda: appender.waiting),
    }


async def _drain(dispatcher: Dispatcher, appender: Appender, within_s: float) -> None:
    """Answer the commands under way; one that waits for a lock for longer is cancelled in the database, so that it is
    answered or not stored (fault B31)."""
    try:
        async with asyncio.timeout(within_s):
            await dispatcher.drain()
    except TimeoutError:
        log.warning("commands were cut off", commands=dispatcher.in_flight)
        await appender.abort()
        await dispatcher.drain()


def _attendance(settings: Settings, presence: Presence, stack: contextlib.AsyncExitStack) -> Attendance:
    attendance = Attendance(presence, now, settings.timeouts.presence_seconds)
    attendance.start()
    stack.push_async_callback(attendance.close)
    return attendance
