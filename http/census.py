"""The deployment in numbers, for Prometheus: looked up in the database when somebody scrapes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import get_args

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ..domain.errors import MinutebookError
from ..infra.postgres.census import Census
from ..projections.room_list import Phase

KEPT_S = 1.0
"""A look is answered from for so long, however many scrape."""

LOOK_S = 3.0
"""Longest look; after it the figures of the one before are shown. Below the 10 s that Prometheus waits for a scrape."""


class CensusCollector(Collector):
    """The newest census of one process; every process of a deployment shows the same. Made on the loop that looks.

    A scrape on the loop calls `look` first; one on another thread, of a port of its own, has it called by `collect`.
    """

    def __init__(self, take: Callable[[], Awaitable[Census]]) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._lock = asyncio.Lock()
        self._tried_at = float("-inf")
        self._taken_at = float("-inf")
        self._census: Census | None = None

    async def look(self) -> None:
        """Take a census, unless the last try is younger than KEPT_S. A database that does not answer changes nothing
        but the age."""
        async with self._lock:
            if time.monotonic() - self._tried_at < KEPT_S:
                return
            with contextlib.suppress(MinutebookError, TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    self._census = await self._take()
                    self._taken_at = time.monotonic()
            self._tried_at = time.monotonic()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See prometheus_client."""
        if threading.get_ident() != self._thread:
            with contextlib.suppress(RuntimeError, TimeoutError):  # the loop is closed, or has no time
                asyncio.run_coroutine_threadsafe(self.look(), self._loop).result(LOOK_S + KEPT_S)
        yield _gauge(
            "census_age_seconds",
            "Since the figures of the whole deployment were last looked up; infinite before the first time.",
            time.monotonic() - self._taken_at,
        )
        if self._census is not None:
            yield from _families(self._census)


def _families(census: Census) -> Iterator[GaugeMetricFamily]:
    rooms = {each: census.rooms.get(each, 0) for each in get_args(Phase)}
    yield _gauges("rooms", "Rooms, by phase.", "phase", rooms)
    participants = {"human": census.people, "agent": census.runs}
    yield _gauges("participants", "People in a room, once for each, and running runs.", "kind", participants)
    yield _gauge("approvals_pending", "Requests for approval that wait.", census.approvals)
    yield _gauge(
        "oldest_approval_seconds", "How long the oldest pending request has waited; 0: none.", census.oldest_approval_s
    )
    yield _gauges(
        "view_lag_seconds",
        "Age of the oldest event that a read model has not folded; 0: none.",
        "view",
        census.view_lags_s,
    )
    parked = {**dict.fromkeys(census.view_lags_s, 0), **census.parked}
    yield _gauges("parked_streams", "Streams with an event that a read model cannot fold.", "view", parked)
    yield _gauge("jobs_waiting", "Jobs that could run and wait for a worker.", census.jobs)
    yield _gauge("oldest_job_seconds", "How long the oldest waiting job has waited; 0: none.", census.oldest_job_s)
    yield _gauge("jobs_failed", "Jobs that ended badly and are kept for an operator.", census.failed_jobs)
    yield _gauges(
        "sweep_last_success_timestamp_seconds",
        "When a sweep last came to its end, in Unix seconds.",
        "sweep",
        {name: done_at for name, (done_at, _) in census.sweeps.items()},
    )
    yield _gauges(
        "sweep_interval_seconds",
        "How often a sweep is meant to run.",
        "sweep",
        {name: every_s for name, (_, every_s) in census.sweeps.items()},
    )


def _gauge(name: str, words: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"minutebook_{name}", words, value=value)


def _gauges(name: str, words: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"minutebook_{name}", words, labels=[label])
    for value, figure in values.items():
        family.add_metric([value], figure)
    return family
