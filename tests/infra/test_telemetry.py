"""Traces reach a real collector: one correlation id is one trace of all processes, and a span says its labels alone."""

from __future__ import annotations

import socket
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from minutebook.http.metrics import MAX_SERIES, OTHER, Metrics
from minutebook.http.signals import ToldSignals, signals_of
from minutebook.infra.settings import Settings, SettingsError
from minutebook.infra.settings_load import load
from minutebook.infra.settings_telemetry import TelemetrySettings
from minutebook.infra.telemetry import CLOSE_S, OtlpTraces, parent_of
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from outside import Outside, Reply, Request, serving
from prometheus_client import generate_latest

ONE = "01J9ZQ0000000000000000000A"
OTHER_ID = "01J9ZQ0000000000000000000B"


class Collector(Outside):
    """Takes traces by OTLP."""

    def __init__(self) -> None:
        super().__init__(lambda _request: Reply(200, b"", {"content-type": "application/x-protobuf"}))

    def spans(self) -> list[dict[str, object]]:
        """All that came."""
        found: list[dict[str, object]] = []
        for request in self.requests:
            body = ExportTraceServiceRequest.FromString(_unzipped(request))
            found += [
                MessageToDict(span)
                for each in body.resource_spans
                for scope in each.scope_spans
                for span in scope.spans
            ]
        return found


def _unzipped(request: Request) -> bytes:
    assert request.headers.get("content-encoding") in (None, "identity")
    return request.body


@pytest.fixture
def collector() -> Generator[Collector]:
    """Where traces go."""
    with serving(Collector()) as made:
        yield made


def test_what_comes_of_one_request_is_one_trace_of_two_processes(collector: Collector) -> None:
    telemetry = TelemetrySettings(otlp_url=f"{collector.url}/v1/traces", authorization="Bearer collect")
    settings = Settings(data_dir=Path(), telemetry=telemetry)
    for role, signal in (("http", "authz_decision"), ("jobs", "delivery_attempt")):
        with signals_of(settings, Metrics(), role) as signals:
            signals.tell(signal, "hook", "accepted", "ok", correlation_id=ONE, seconds=0.25)  # pyright: ignore[reportArgumentType]
            signals.tell("retry", "hook", "retry", correlation_id=OTHER_ID)
    spans = collector.spans()
    parent = parent_of(ONE)
    assert parent is not None
    of_one = [each for each in spans if each["name"] != "retry"]
    assert [each["name"] for each in of_one] == ["authz_decision", "delivery_attempt"]
    assert len({each["traceId"] for each in of_one}) == 1
    assert len({each["traceId"] for each in spans}) == 2
    said = {each["key"]: each["value"]["stringValue"] for each in of_one[0]["attributes"]}  # pyright: ignore[reportGeneralTypeIssues,reportIndexIssue,reportUnknownVariableType]
    assert said == {"minutebook.channel": "hook", "minutebook.outcome": "accepted", "minutebook.reason": "ok"}
    lasted_ns = int(str(of_one[0]["endTimeUnixNano"])) - int(str(of_one[0]["startTimeUnixNano"]))
    assert lasted_ns == 250_000_000
    assert {request.headers["authorization"] for request in collector.requests} == {"Bearer collect"}


def test_what_is_no_ulid_is_a_trace_of_its_own() -> None:
    for text in ("", "x", "0" * 26, "!" * 26, "01J9ZQ0000000000000000000"):
        assert parent_of(text) is None


def test_a_collector_that_never_answers_holds_up_no_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1/traces"
        traces = OtlpTraces(TelemetrySettings(otlp_url=url), "http")
        traces.note("retry", {"channel": "hook"}, ONE, 0)
        began = time.monotonic()
        traces.close()
        assert time.monotonic() - began < CLOSE_S + 2


def test_a_counter_has_so_many_series_and_no_more() -> None:
    metrics = Metrics()
    signals = ToldSignals(metrics, None)
    for number in range(MAX_SERIES + 5):
        signals.tell("delivery_attempt", "hook", "retry", f"http_{number}")
    text = [
        f'minutebook_delivery_attempt_total{{channel="{OTHER}",outcome="{OTHER}",reason="{OTHER}"}} 5.0',
        'minutebook_delivery_attempt_total{channel="hook",outcome="retry",reason="http_7"} 1.0',
    ]
    found = _scraped(metrics)
    assert all(line in found for line in text)
    assert f"http_{MAX_SERIES}" not in "".join(found)


def _scraped(metrics: Metrics) -> list[str]:
    return generate_latest(metrics.registry).decode().splitlines()


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ('otlpUrl = "http://collector.example/v1/traces"', "telemetry.otlpUrl"),
        ('otlpUrl = "https://127.0.0.1/v1/traces"', "telemetry.otlpUrl"),
        ('authorization = "Bearer x"', "telemetry.authorization"),
        ('otlpUrl = "https://collector.example/v1/traces"\nauthorization = "a\\nb"', "telemetry.authorization"),
        ('otlpUrl = "https://collector.example/v1/traces"\ntimeout = "30s"', "telemetry.timeout"),
    ],
)
def test_settings_that_cannot_work_stop_the_start(tmp_path: Path, lines: str, key: str) -> None:
    (tmp_path / "minutebook.toml").write_text(f"[telemetry]\n{lines}\n")
    with pytest.raises(SettingsError, match=key):
        load(tmp_path, {})
