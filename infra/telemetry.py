"""Traces by OpenTelemetry: all that comes of one inbound request is one trace, whatever process it happens in."""

from __future__ import annotations

import importlib.metadata
import logging
import re
import threading
import time
from typing import Protocol

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags
from ulid_transform import ulid_to_bytes

from ..commands.signals import Signal
from .settings_telemetry import TelemetrySettings

MAX_QUEUED = 2048
"""Spans that wait for the collector; more are dropped, and nobody waits for them."""

MAX_BATCH = 512
CLOSE_S = 3.0
"""How long an ending process waits for the collector."""

SPAN_BYTES = 8

_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.ASCII)


class Traces(Protocol):
    """Takes what happened as a span."""

    def note(self, signal: Signal, labels: dict[str, str], correlation_id: str, seconds: float) -> None:
        """Never raises, never waits."""
        ...

    def close(self) -> None:
        """Give the collector what it has not yet, for CLOSE_S at most."""
        ...


def parent_of(correlation_id: str) -> SpanContext | None:
    """The root that all spans of one correlation id hang under; None for what is no ULID.

    A ULID has as many bits as a trace id, so the trace of a correlation id is found without a look-up, and no process
    has to hand a context to another one.
    """
    if not _ULID.fullmatch(correlation_id):
        return None
    data = ulid_to_bytes(correlation_id)
    context = SpanContext(
        int.from_bytes(data), int.from_bytes(data[-SPAN_BYTES:]) or 1, is_remote=True, trace_flags=TraceFlags(1)
    )
    return context if context.is_valid else None


class OtlpTraces:
    """Traces, sent in batches by a thread of the SDK. Attributes are the labels of the counters, and nothing else."""

    def __init__(self, settings: TelemetrySettings, role: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - its extra

        for name in ("opentelemetry", "urllib3"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # they would log the collector's URL, on each failure
        resource = Resource(
            {
                "service.name": "minutebook",
                "service.version": importlib.metadata.version("minutebook"),
                "minutebook.role": role,
            }
        )
        headers = {} if settings.authorization is None else {"authorization": settings.authorization}
        exporter = OTLPSpanExporter(settings.otlp_url, headers=headers, timeout=settings.timeout_s)
        self._provider = TracerProvider(resource=resource, span_limits=SpanLimits(max_span_attributes=16))
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, max_queue_size=MAX_QUEUED, max_export_batch_size=MAX_BATCH)
        )
        self._tracer = self._provider.get_tracer("minutebook")

    def note(self, signal: Signal, labels: dict[str, str], correlation_id: str, seconds: float) -> None:
        """See Traces."""
        parent = parent_of(correlation_id)
        context = None if parent is None else trace.set_span_in_context(NonRecordingSpan(parent))
        ended_ns = time.time_ns()
        span = self._tracer.start_span(
            signal,
            context,
            kind=SpanKind.CLIENT if signal == "delivery_attempt" else SpanKind.INTERNAL,
            attributes={f"minutebook.{name}": value for name, value in labels.items() if value},
            start_time=ended_ns - int(seconds * 1e9),
        )
        span.end(ended_ns)

    def close(self) -> None:
        """See Traces."""
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(CLOSE_S)


def traces_of(settings: TelemetrySettings, role: str) -> Traces | None:
    """What takes spans, by the settings; None where nobody collects them. role: of this process, `http` or `jobs`."""
    return None if settings.otlp_url is None else OtlpTraces(settings, role)
