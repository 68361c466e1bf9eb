"""`minutebook serve`: HTTP, projectors, jobs and the embedded database in one process group."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

import structlog
import typer

from ..database import Database
from ..settings import LogLevel, Settings, SettingsError
from .common import UNAVAILABLE, DataDir, fail, guarded, settings_of

ORPHAN_S = 2.0
"""A process whose parent died is gone this long after its drain."""

RESTART_S = (0.2, 1.0, 5.0)
"""Waits before a worker that died is started again; the last one repeats."""

HEALTHY_S = 30.0
"""A worker that lived this long starts counting its restarts anew."""

Role = Literal["all", "http", "projector", "jobs"]

log = structlog.get_logger(__name__)


def serve(
    data_dir: DataDir = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default=False)] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 picks one.", show_default=False)] = None,
    workers: Annotated[int | None, typer.Option(help="HTTP processes.", show_default=False)] = None,
    role: Annotated[str, typer.Option(help="all, http, projector or jobs: split them over machines.")] = "all",
    require_database_url: Annotated[
        bool, typer.Option("--require-database-url", help="Never fall back to the embedded database.")
    ] = False,
    fd: Annotated[int | None, typer.Option(hidden=True)] = None,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve until SIGTERM; prints `listening on http://HOST:PORT` once it does."""
    with guarded():
        if role not in get_args(Role):
            raise SettingsError("--role must be all, http, projector or jobs.")
        settings = settings_of(data_dir, server__host=host, server__port=port, server__workers=workers)
        if require_database_url and settings.database.url is None:
            raise SettingsError("database.url is not set: set MINUTEBOOK_DATABASE_URL to a migrated PostgreSQL.")
        _log_to_stderr(settings.server.log_level)
        sock = None
        if role in ("all", "http"):
            sock = socket.socket(fileno=fd) if fd is not None else _bind(settings)
        database = Database(settings).open()
        try:
            _http("worker").run(_Group(settings, database, sock, role, parent, is_child=fd is not None).run())
        finally:
            database.close()


def _bind(settings: Settings) -> socket.socket:
    try:
        return _http("worker").bind(settings.server.host, settings.server.port)
    except OSError as error:
        where = f"{settings.server.host}:{settings.server.port}"
        fail(f"server.port: cannot listen on {where} ({error.strerror}); choose another port.", UNAVAILABLE)


def _http(name: str) -> Any:
    """A module of http/. The command line is the place where the house is put together, so it alone looks up to http.

    Each process of a group takes only its own: what serves HTTP needs more than a second to import.
    """
    return importlib.import_module(f"minutebook.http.{name}")


class _Group:
    """The process that was started, and the ones that it starts beside itself."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        sock: socket.socket | None,
        role: str,
        parent: int | None,
        *,
        is_child: bool,
    ) -> None:
        self._settings = settings
        self._database = database
        self._sock = sock
        self._role = role
        self._parent = parent
        self._is_child = is_child
        self._children: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        self._held: tuple[int, int] | None = None

    async def run(self) -> None:
        self._stop = _http("worker").stop_on_signals()
        watching = asyncio.create_task(self._watch_parent())
        self._start_children()
        try:
            if self._role == "jobs":
                await _http("jobs").run_jobs(self._settings, self._database, self._stop)
            elif self._sock is None:
                async with _http("worker").projectors(self._settings, self._database):
                    await self._stop.wait()
            else:
                serve_http = _http("process").serve_http
                await serve_http(self._settings, self._database, self._sock, self._say_ready, self._stop)
        finally:
            self._stop.set()
            watching.cancel()
            await asyncio.gather(*self._children, return_exceptions=True)

    def _say_ready(self) -> None:
        if self._is_child or self._sock is None:
            return
        host, port = self._sock.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        sys.stdout.write(f"listening on http://{shown}:{port}\n")
        sys.stdout.flush()

    def _start_children(self) -> None:
        if self._is_child:
            return
        # A pipe whose other end only this process holds: a child reads its end, and ends when it is closed, however
        # this process died.
        self._held = os.pipe()
        common = ["--parent", str(self._held[0]), "--data-dir", str(self._settings.data_dir)]
        if self._sock is not None:
            self._sock.listen(2048)
            for _ in range(self._settings.server.workers - 1):
                self._add_child([*common, "--role", "http", "--fd", str(self._sock.fileno())], self._sock.fileno())
        if self._role == "all":
            self._add_child([*common, "--role", "projector"], None)
            self._add_child([*common, "--role", "jobs"], None)

    def _add_child(self, arguments: Sequence[str], fd: int | None) -> None:
        self._children.append(asyncio.create_task(self._keep(arguments, fd)))

    async def _keep(self, arguments: Sequence[str], fd: int | None) -> None:
        """Run a child for as long as this process serves; start it again when it dies."""
        assert self._held is not None  # noqa: S101 - made before any child
        loop = asyncio.get_running_loop()
        tries = 0
        host = ["--host", self._settings.server.host, "--port", str(self._settings.server.port)]
        while not self._stop.is_set():
            began = loop.time()
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "minutebook.infra.cli.main", "serve", *host, *arguments,
                pass_fds=[each for each in (self._held[0], fd) if each is not None],
                stdin=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            ended = asyncio.create_task(child.wait())
            stopping = asyncio.create_task(self._stop.wait())
            await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if self._stop.is_set():
                await _end(child, ended, self._settings.server.drain_seconds)
                return
            tries = 0 if loop.time() - began > HEALTHY_S else tries + 1
            log.error("a worker died and is started again", role=arguments[-1], code=child.returncode)
            await asyncio.sleep(RESTART_S[min(tries, len(RESTART_S) - 1)])

    async def _watch_parent(self) -> None:
        if self._parent is None:
            return
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(self._parent, gone.set)
        await gone.wait()
        # Its end stays readable: a reader that is left there would be called without a pause.
        loop.remove_reader(self._parent)
        self._stop.set()
        await asyncio.sleep(self._settings.server.drain_seconds + ORPHAN_S)
        os._exit(1)  # something that it waits for went with its parent


async def _end(child: asyncio.subprocess.Process, ended: asyncio.Task[int], within_s: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(within_s + 1):
            await asyncio.shield(ended)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await ended


def _log_to_stderr(level: LogLevel) -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
