"""Signals of this process: a counter, a line of the log and, where the settings say so, a span for each."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import structlog

from ..commands.signals import Signal
from ..infra.settings import Settings
from ..infra.telemetry import Traces, traces_of
from .metrics import Metrics

QUIET: frozenset[Signal] = frozenset({"delivery_attempt", "delivery_scheduled"})
"""Said in the log at debug level alone: there are hundreds a second, and each is in the log of its delivery."""

log = structlog.get_logger(__name__)


class ToldSignals:
    """Signals of commands/signals.py."""

    def __init__(self, metrics: Metrics, traces: Traces | None) -> None:
        self._metrics = metrics
        self._traces = traces

    def tell(
        self,
        signal: Signal,
        channel: str,
        outcome: str,
        reason: str = "",
        *,
        correlation_id: str = "",
        seconds: float = 0.0,
    ) -> None:
        """See Signals."""
        self._metrics.signal(signal, channel, outcome, reason)
        labels = {"channel": channel, "outcome": outcome, "reason": reason}
        say = log.debug if signal in QUIET else log.info
        say(signal, **labels, correlation=correlation_id)
        if self._traces is not None:
            self._traces.note(signal, labels, correlation_id, seconds)


@contextlib.contextmanager
def signals_of(settings: Settings, metrics: Metrics, role: str) -> Generator[ToldSignals]:
    """Those of a process; what was not sent yet is at its end. role: `http` or `jobs`."""
    traces = traces_of(settings.telemetry, role)
    try:
        yield ToldSignals(metrics, traces)
    finally:
        if traces is not None:
            traces.close()
