"""Operators at many deliveries, and at whole channels, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
from bad_input import refused
from delivery_office import CANARY, CHANNEL, Office, office_of
from live_server import LiveServer

ALL = "/v1/ops/bulk"
CHANNELS = "/v1/ops/channels"


@pytest.fixture(scope="module")
def office(server: LiveServer) -> Iterator[Office]:
    """See office_of."""
    with office_of(server) as made:
        yield made


@pytest.fixture(scope="module")
def operator(server: LiveServer) -> httpx.Client:
    """An operator of the tenant."""
    return server.client("human:olaf", "agents-operator", tenant="acme")


def plan(run: str, action: str = "revoke", **fields: Any) -> dict[str, Any]:
    """A plan's body."""
    return {"action": action, "filter": {"run": run}, "reason": "wrong_person", "ratePerSecond": 50, **fields}


def test_a_plan_is_made_seen_run_and_stopped(office: Office, operator: httpx.Client) -> None:
    office.plan(3, run_id="bulk-1")
    key = {"idempotency-key": "plan-bulk-1"}
    made = operator.post(ALL, json=plan("bulk-1"), headers=key)
    assert made.status_code == 201, made.text
    body = made.json()
    assert body["counts"] == {
        "safe": 3,
        **dict.fromkeys(("unknown_outcome", "would_duplicate", "revoked", "expired", "redacted"), 0),
    }
    again = operator.post(ALL, json=plan("bulk-1"), headers=key)
    assert (again.json(), again.headers["idempotency-replayed"]) == (body, "true")
    refused(operator.post(ALL, json=plan("bulk-2"), headers=key), 422, "idempotency_key_reused")
    one = f"{ALL}/{body['planId']}"
    for seq in (2, 2):
        answer = operator.post(f"{one}/run", json={})
        assert (answer.status_code, answer.json()["seq"]) == (202, seq)
    shown = operator.get(one)
    assert (shown.status_code, shown.headers["cache-control"]) == (200, "no-store")
    assert (shown.json()["state"], shown.json()["progress"]["left"]) == ("running", 3)
    assert CANARY not in shown.text + made.text
    document = operator.get("/v1/openapi.json").json()
    for name, value in (("PlanAnswer", body), ("BulkView", shown.json())):
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema_rs.Draft202012Validator(schema).validate(value)
    assert operator.delete(one).status_code == 202
    assert operator.get(one).json()["state"] == "stopped"
    refused(operator.post(f"{one}/run", json={}), 409, "already_ended")


@pytest.mark.parametrize(
    "change",
    [
        {"filter": {}},
        {"filter": {"tenant": "other"}},
        {"filter": {"run": ""}},
        {"filter": {"state": "lost"}},
        {"action": "resend"},
        {"reason": " "},
        {"ratePerSecond": 0},
        {"ratePerSecond": 101},
    ],
)
def test_a_plan_that_is_none_is_refused(operator: httpx.Client, change: dict[str, Any]) -> None:
    refused(operator.post(ALL, json={**plan("none"), **change}), 422, "invalid")


def test_plans_are_of_the_own_tenant(office: Office, server: LiveServer, operator: httpx.Client) -> None:
    office.plan(1, run_id="bulk-3")
    made = operator.post(ALL, json=plan("bulk-3")).json()
    foreign = server.client("human:olaf", "agents-operator", tenant="elsewhere")
    assert sum(foreign.post(ALL, json=plan("bulk-3")).json()["counts"].values()) == 0
    one = f"{ALL}/{made['planId']}"
    for answer in (foreign.get(one), foreign.delete(one), foreign.post(f"{one}/run", json={})):
        refused(answer, 404, "not_found")
    assert operator.get(one).json()["state"] == "planned"


def test_a_channel_is_paused_and_resumed_by_its_own_tenant(
    office: Office, server: LiveServer, operator: httpx.Client
) -> None:
    (delivery_id,) = office.plan()
    until = {"reason": "maintenance", "until": "2036-12-24T08:00:00+01:00"}
    key = {"idempotency-key": "pause-1"}
    paused = operator.post(f"{CHANNELS}/{CHANNEL}/pause", json=until, headers=key)
    assert paused.status_code == 200, paused.text
    again = operator.post(f"{CHANNELS}/{CHANNEL}/pause", json=until, headers=key)
    assert (again.json(), again.headers["idempotency-replayed"]) == (paused.json(), "true")
    assert operator.post(f"{CHANNELS}/{CHANNEL}/pause", json=until).json()["seq"] == paused.json()["seq"]
    (shown,) = [each for each in operator.get(CHANNELS).json()["channels"] if each["name"] == CHANNEL]
    assert shown["paused"] is True
    assert (shown["reason"], shown["until"]) == ("maintenance", "2036-12-24T07:00:00.000000Z")
    foreign = server.client("human:olaf", "agents-operator", tenant="elsewhere")
    refused(foreign.post(f"{CHANNELS}/{CHANNEL}/resume", json={"reason": "mine"}), 404, "not_found")
    office.send()
    state = operator.get(f"/v1/ops/deliveries/{delivery_id}").json()["delivery"]["state"]
    assert state == "planned"
    with office.waking():
        resumed = operator.post(f"{CHANNELS}/{CHANNEL}/resume", json={"reason": "mended"})
        assert (resumed.status_code, resumed.json()["seq"]) == (200, paused.json()["seq"] + 1)
    office.send()
    assert operator.get(f"/v1/ops/deliveries/{delivery_id}").json()["delivery"]["state"] == "accepted"
    office.sleep()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"reason": ""},
        {"reason": "x", "until": "tomorrow"},
        {"reason": "x", "until": "2020-01-01T00:00:00Z"},
        {"reason": "x", "until": "2036-01-01T00:00:00"},
    ],
)
def test_a_pause_needs_a_reason_and_an_end_that_is_to_come(
    office: Office, operator: httpx.Client, body: dict[str, Any]
) -> None:
    office.plan()
    refused(operator.post(f"{CHANNELS}/{CHANNEL}/pause", json=body), 422, "invalid")


def test_what_nobody_can_prove_is_counted(office: Office, operator: httpx.Client) -> None:
    answer = operator.post("/v1/ops/reconcile", json={"channel": CHANNEL})
    assert answer.status_code == 202, answer.text
    assert set(answer.json()) == {"examined", "proven", "absent", "lapsed", "left"}
    assert operator.post("/v1/ops/reconcile", json={"repair": True}).status_code == 202
    refused(operator.post("/v1/ops/reconcile", json={"cursor": "007"}), 400, "invalid_cursor")
    refused(operator.post("/v1/ops/reconcile", json={"channel": 7}), 422, "invalid")
