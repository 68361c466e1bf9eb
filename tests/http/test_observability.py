"""An operator follows a request to its attempts by its correlation id alone, and nowhere sees who spoke or what."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from google.protobuf.json_format import MessageToDict
from inbound_scenes import Desk, inbound_desk
from live_server import until
from minutebook.infra.telemetry import parent_of
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from outside import Outside, Reply, serving

WORDS = "zanzibar7text"
NATIVE = "zanzibar7native"
NAME = "Zanzibar7name"
CLAIM = "zanzibar7claim@acme.example"
CANARY = "zanzibar7"

MORE = f"""
[channels.post]
kind = "email"
tenant = "acme"
inboundSecret = "another-relay-token"
authservId = "mx.example"
allowlist = {{{{ claim = "email", values = ["{CLAIM}"] }}}}
responseTarget = "none"
agent = "echo"

[telemetry]
otlpUrl = "{{collector}}/v1/traces"
allowLoopback = true

[server]
logLevel = "debug"
"""

ROUTES = ("deliveries", "channels", "links", "challenges", "continuations")


class Scene(NamedTuple):
    """What was done, and who listens."""

    desk: Desk
    collector: Outside
    operator: httpx.Client
    asked: dict[str, Any]


@pytest.fixture(scope="module")
def scene(new_data_dir: Callable[[], Path]) -> Iterator[Scene]:
    """One answered message of each kind of sender, a link that waits, and a canary in all of them."""

    with (
        serving(Outside(lambda _request: Reply(200, b"", {"content-type": "application/x-protobuf"}))) as collector,
        inbound_desk(new_data_dir(), more=MORE.replace("{collector}", collector.url)) as desk,
    ):
        answer = desk.hook(WORDS, sender=NATIVE)
        assert answer.json()["outcome"] == "accepted", answer.text
        desk.platforms.told(NATIVE, WORDS)
        desk.hook(None, sender=NATIVE, command="/link")
        desk.platforms.told(NATIVE, "Your code is")
        desk.telegram(WORDS, 7, **{"from": {"id": 7, "is_bot": False, "first_name": NAME}})
        desk.platforms.told("7", WORDS)
        post(desk)
        desk.hook(WORDS, sender=NATIVE, conversation="b" * 26)
        until(lambda: desk.newest("post")["outcome"] == "accepted", 20, "the mail")
        yield Scene(desk, collector, desk.server.client("human:op", "agents-operator", tenant="acme"), answer.json())


def test_observability_a_request_leads_to_its_attempts_by_its_id_alone(scene: Scene) -> None:
    correlation_id = scene.asked["id"]

    def settled() -> bool:
        return [each["state"] for each in listed(scene, correlation_id)] == ["accepted"]

    until(settled, 20, "the delivery")
    (delivery,) = listed(scene, correlation_id)
    one = scene.operator.get(f"/v1/ops/deliveries/{delivery['id']}").json()
    assert [each["outcome"] for each in one["attempts"]] == ["accepted"]
    parent = parent_of(correlation_id)
    assert parent is not None
    names = {"authz_decision", "delivery_scheduled", "delivery_attempt"}

    def seen() -> bool:
        return names <= {each["name"] for each in spans(scene) if int(each["traceIdHex"], 16) == parent.trace_id}

    until(seen, 20, "the spans of the trace")
    lines = [json.loads(line) for line in scene.desk.server.logs().splitlines() if correlation_id in line]
    assert names <= {line["event"] for line in lines}


def test_observability_a_canary_is_nowhere(scene: Scene) -> None:
    shown = [scene.operator.get(f"/v1/ops/{route}") for route in ROUTES]
    assert {each.status_code for each in shown} == {200}
    answers = "".join(each.text for each in shown)
    assert '"channel"' in answers
    metrics = httpx.get(f"{scene.desk.server.url}/metrics").text
    assert "minutebook_authz_decision_total" in metrics
    until(lambda: bool(scene.collector.requests), 20, "spans")
    said = b"".join(request.body for request in scene.collector.requests).decode(errors="replace")
    elsewhere = scene.desk.rows(
        "SELECT e.payload::text FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
        " WHERE s.kind NOT IN ('conversation', 'turn')"
    )
    log = "".join(row[0] for row in elsewhere)
    assert "inbound_decided" in scene.desk.rows("SELECT string_agg(DISTINCT type, ' ') FROM minutebook.events")[0][0]
    jobs = "".join(
        str(row)
        for row in scene.desk.rows("SELECT args::text, lock, queueing_lock FROM minutebook_jobs.procrastinate_jobs")
    )
    for place in (answers, metrics, said, log, jobs, scene.desk.server.logs()):
        assert CANARY not in place.lower()
        assert "another-relay-token" not in place


def post(desk: Desk) -> None:
    """A mail whose author the channel verifies."""
    lines = (
        "Authentication-Results: mx.example; dmarc=pass header.from=acme.example",
        f"From: {CLAIM}",
        f"Message-ID: <{CANARY}@acme.example>",
        "Content-Type: text/plain; charset=utf-8",
        "",
        WORDS,
    )
    headers = {"authorization": "Bearer another-relay-token", "content-type": "message/rfc822"}
    assert desk.post("post", "\r\n".join(lines).encode(), headers).status_code < 300


def listed(scene: Scene, correlation_id: str) -> list[dict[str, Any]]:
    """What was sent because of one request."""
    found = scene.operator.get("/v1/ops/deliveries", params={"correlation": correlation_id})
    assert found.status_code == 200, found.text
    return found.json()["deliveries"]


def spans(scene: Scene) -> list[dict[str, Any]]:
    """All that the collector got."""
    found: list[dict[str, Any]] = []
    for request in list(scene.collector.requests):
        for each in ExportTraceServiceRequest.FromString(request.body).resource_spans:
            for scope in each.scope_spans:
                found += [{**MessageToDict(span), "traceIdHex": span.trace_id.hex()} for span in scope.spans]
    return found
