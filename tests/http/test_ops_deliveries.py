"""Operators of deliveries over HTTP: what they see and mend of their tenant, and that nobody else does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
from bad_input import refused
from delivery_office import CANARY, CHANNEL, Office, office_of
from live_server import LiveServer

ALL = "/v1/ops/deliveries"
CONVERSATION = "conv" * 6 + "bb"


@pytest.fixture(scope="module")
def office(server: LiveServer) -> Iterator[Office]:
    """See office_of."""
    with office_of(server) as made:
        yield made


@pytest.fixture(scope="module")
def operator(server: LiveServer) -> httpx.Client:
    """An operator of the tenant."""
    return server.client("human:olaf", "agents-operator", tenant="acme")


def shown(client: httpx.Client, delivery_id: str) -> dict[str, Any]:
    """One delivery with its attempts."""
    answer = client.get(f"{ALL}/{delivery_id}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert CANARY not in answer.text
    return answer.json()


def listed(client: httpx.Client, **params: Any) -> dict[str, Any]:
    """A page of the list."""
    answer = client.get(ALL, params=params)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert CANARY not in answer.text
    return answer.json()


def test_a_list_has_pages_and_filters(office: Office, operator: httpx.Client) -> None:
    ids = office.plan(5, conversation=CONVERSATION, run_id="run-of-5")
    first = listed(operator, conversation=CONVERSATION, limit=3)
    second = listed(operator, conversation=CONVERSATION, limit=3, cursor=first["nextCursor"])
    assert "nextCursor" not in second
    rows = [*first["deliveries"], *second["deliveries"]]
    assert {row["id"] for row in rows} == set(ids)
    one = rows[0]
    assert set(one) == {
        *("id", "channel", "destination", "state", "attempts", "expiresAt", "correlationId", "codec", "version"),
        *("runId", "conversationId", "nextAttemptAt"),
    }
    assert one["destination"].startswith("h:")
    for wish in ({"state": "planned"}, {"channel": CHANNEL}, {"destination": one["destination"]}, {"run": "run-of-5"}):
        assert set(ids) <= {row["id"] for row in listed(operator, limit=100, **wish)["deliveries"]}, wish
    assert [row["id"] for row in listed(operator, correlation=one["correlationId"])["deliveries"]] == [one["id"]]
    for wish in ({"state": "dead"}, {"channel": "another"}, {"run": "another"}, {"destination": "another"}):
        found = listed(operator, limit=100, **wish)["deliveries"]
        assert not set(ids) & {row["id"] for row in found}, wish


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"state": "none"}, "invalid"),
        ({"state": "lost"}, "invalid"),
        ({"limit": "0"}, "invalid"),
        ({"limit": "101"}, "invalid"),
        ({"channel": "x" * 257}, "invalid"),
        ({"cursor": "007"}, "invalid_cursor"),
        ({"cursor": "-1"}, "invalid_cursor"),
        ({"cursor": "9" * 40}, "invalid_cursor"),
    ],
)
def test_a_question_that_is_none_is_refused(operator: httpx.Client, params: dict[str, str], code: str) -> None:
    refused(operator.get(ALL, params=params), 422 if code == "invalid" else 400, code)


def test_a_dead_letter_is_replayed_once_for_one_key(office: Office, operator: httpx.Client) -> None:
    delivery_id = office.dead()
    found = shown(operator, delivery_id)
    assert (found["delivery"]["state"], found["delivery"]["reason"]) == ("dead", "gone")
    assert [(each["n"], each["key"], each["outcome"]) for each in found["attempts"]] == [
        (1, f"{delivery_id}.1", "permanent")
    ]
    url, body, key = f"{ALL}/{delivery_id}/replay", {"reason": "mended"}, {"idempotency-key": f"r-{delivery_id}"}
    with office.waking():
        answer = operator.post(url, json=body, headers=key)
        assert (answer.status_code, answer.json()["state"]) == (202, "planned")
    office.receiver.troubles = lambda _request: False
    office.send()
    assert office.receiver.took[f"{delivery_id}.1"] == 1
    again = operator.post(url, json=body, headers=key)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert again.json() == answer.json(), "the first answer, although it was sent meanwhile"
    refused(operator.post(url, json={"reason": "another"}, headers=key), 422, "idempotency_key_reused")
    cause = operator.post(url, json=body)
    refused(cause, 409, "not_replayable")
    assert cause.json()["cause"] == "accepted"
    assert shown(operator, delivery_id)["delivery"]["state"] == "accepted"
    refused(operator.post(f"{ALL}/{delivery_id}/revoke", json=body), 409, "already_ended")


def test_answers_are_what_the_document_says(office: Office, operator: httpx.Client) -> None:
    (planned,) = office.plan()
    dead = office.dead()
    document = operator.get("/v1/openapi.json").json()
    for name, answer in (
        ("DeliveryList", operator.get(ALL, params={"limit": 1})),
        ("ChannelsShown", operator.get("/v1/ops/channels")),
        ("DeliveryShown", operator.get(f"{ALL}/{dead}")),
        ("DeliveryAnswer", operator.post(f"{ALL}/{dead}/replay", json={"reason": "mended"})),
        ("DeliveryAnswer", operator.post(f"{ALL}/{planned}/purge", json={"reason": "wrong"})),
        ("Problem", operator.post(f"{ALL}/{planned}/replay", json={"reason": "mended"})),
    ):
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema_rs.Draft202012Validator(schema).validate(answer.json())
        assert set(answer.json()) <= {*document["components"]["schemas"][name]["properties"], "cause"}, name


def test_what_is_revoked_or_purged_goes_nowhere(office: Office, operator: httpx.Client) -> None:
    revoked, purged = office.plan(2)
    for delivery_id, verb, left in ((revoked, "revoke", 1), (purged, "purge", 0)):
        for _ in range(2):
            answer = operator.post(f"{ALL}/{delivery_id}/{verb}", json={"reason": "wrong_person"})
            assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
        assert office.payloads(delivery_id) == left
        assert shown(operator, delivery_id)["delivery"]["reason"] == "wrong_person"
    office.send()
    assert not {f"{revoked}.1", f"{purged}.1"} & set(office.receiver.took)
    for delivery_id, cause in ((revoked, "revoked"), (purged, "purge")):
        answer = operator.post(f"{ALL}/{delivery_id}/replay", json={"reason": "please", "resendUnknown": True})
        refused(answer, 409, "not_replayable")
        assert answer.json()["cause"] == cause


def test_deliveries_are_for_operators_of_the_own_tenant_alone(
    office: Office, server: LiveServer, operator: httpx.Client
) -> None:
    (delivery_id,) = office.plan()
    foreign = server.client("human:olaf", "agents-operator", tenant="elsewhere")
    assert listed(foreign, limit=100)["deliveries"] == []
    missing = [foreign.get(f"{ALL}/{each}") for each in (delivery_id, "deli" * 6 + "aa", "no-id", "%C3%A4")]
    for verb in ("replay", "revoke", "purge"):
        missing += [foreign.post(f"{ALL}/{delivery_id}/{verb}", json={"reason": "mine"})]
        missing += [operator.post(f"{ALL}/{'deli' * 6}aa/{verb}", json={"reason": "mine"})]
    for answer in missing:
        refused(answer, 404, "not_found")
    for group in ("agents-admin", "agents-auditor", "agents-member", "agents-relay"):
        other = server.client("human:olaf", group, tenant="acme")
        refused(other.get(ALL), 403, "forbidden")
        for each in (delivery_id, "deli" * 6 + "aa"):
            refused(other.get(f"{ALL}/{each}"), 403, "forbidden")
            refused(other.post(f"{ALL}/{each}/purge", json={"reason": "mine"}), 403, "forbidden")
    assert shown(operator, delivery_id)["delivery"]["state"] == "planned"
    assert office.payloads(delivery_id) == 1


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "  "}, {"reason": "x" * 501}, {"reason": "x", "y": 1}])
def test_a_command_needs_a_reason(office: Office, operator: httpx.Client, body: dict[str, Any]) -> None:
    (delivery_id,) = office.plan()
    for verb in ("replay", "revoke", "purge"):
        refused(operator.post(f"{ALL}/{delivery_id}/{verb}", json=body), 422, "invalid")
    assert shown(operator, delivery_id)["delivery"]["state"] == "planned"
    assert office.payloads(delivery_id) == 1


def test_a_channel_shows_what_waits_there_to_its_own_tenant(
    office: Office, server: LiveServer, operator: httpx.Client
) -> None:
    (delivery_id,) = office.plan()
    answer = operator.get("/v1/ops/channels")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    (channel,) = [each for each in answer.json()["channels"] if each["name"] == CHANNEL]
    assert channel["waiting"] >= 1
    assert channel["oldest"]
    assert channel["breaker"] == {"shut": 0}
    office.send()
    assert shown(operator, delivery_id)["delivery"]["state"] == "accepted"
    after = operator.get("/v1/ops/channels").json()["channels"]
    assert [each for each in after if each["name"] == CHANNEL] == [], "nothing waits, and no setting names it"
    foreign = server.client("human:olaf", "agents-operator", tenant="elsewhere")
    office.plan()
    assert foreign.get("/v1/ops/channels").json() == {"channels": []}
    refused(server.client("human:olaf", "agents-admin", tenant="acme").get("/v1/ops/channels"), 403, "forbidden")
