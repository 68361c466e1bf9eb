"""Where the metrics of a process are: a route of its main port, or a port of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import structlog
from prometheus_client import start_http_server

from ..infra.settings import ServerSettings, is_loopback
from .metrics import Metrics

METRICS_PORT = 9464
"""Where /metrics is when the server is not on loopback and server.metricsPort is not set."""

JOBS_METRICS_PORT = 9465
"""The same for the process of jobs, and server.jobsMetricsPort."""

log = structlog.get_logger(__name__)


def is_on_main_port(server: ServerSettings) -> bool:
    """Whether /metrics is on the main port: on loopback, where no port of its own is set."""
    return server.metrics_port is None and is_loopback(server.host)


def of_http(server: ServerSettings) -> int | None:
    """The port of its own that an HTTP process serves its metrics on; None where they are on the main port."""
    return None if is_on_main_port(server) else server.metrics_port or METRICS_PORT


def of_jobs(server: ServerSettings) -> int | None:
    """The port of the process of jobs; None on loopback, unless one is set."""
    if server.jobs_metrics_port is None and is_loopback(server.host):
        return None
    return server.jobs_metrics_port or JOBS_METRICS_PORT


@contextlib.contextmanager
def served(metrics: Metrics, host: str, port: int | None) -> Generator[None]:
    """Prometheus' own server for /metrics, unless `port` is None. Of several worker processes the first one has it."""
    if port is None:
        yield
        return
    try:
        server, thread = start_http_server(port, host, metrics.registry)
    except OSError as error:
        log.warning("metrics are not served: the port is taken", port=port, error=type(error).__name__)
        yield
        return
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
