"""The OpenAPI document: what it says, and that the server keeps to it (schemathesis)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from live_server import LiveServer, open_room, post
from minutebook.domain.ids import short_id
from minutebook.http.problems import STATUS
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from talks import ask, start

TWO_GOOD = {"registerRun": ["200", "201"], "startConversation": ["200", "201"], "takeInbound": ["200", "202"]}
"""Operations that find or make, and the one whose answer is what a platform wants."""

METHODS = {"get", "put", "post", "patch", "delete"}


@pytest.fixture(scope="module")
def document(server: LiveServer) -> dict[str, Any]:
    """The document as it is served."""
    answer = server.member("alice").get("/v1/openapi.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert method in METHODS
            yield path, method, operation


def test_every_operation_documents_its_problems(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert document["security"] == [{"token": []}, {"session": []}]
    names: set[str] = set()
    for path, method, operation in operations(document):
        names.add(operation["operationId"])
        assert operation["summary"]
        if "operations" in operation["tags"]:
            assert operation["security"] == []
            continue
        assert operation.get("security") == ([] if "inbound" in operation["tags"] else None)
        wanted = {400, 401, 403, 404, 406, 422, 500, 503, 504}
        if method != "get":
            wanted |= {409, 410, 413, 415, 429}
        if _is_endless(path):
            wanted |= {429}
        for status in wanted:
            reference = operation["responses"][str(status)]["$ref"]
            described = document["components"]["responses"][reference.rpartition("/")[2]]
            assert list(described["content"]) == ["application/problem+json"]
            for code in (code for code, its in STATUS.items() if its == status):
                assert f"`{code}`" in described["description"]
        good = sorted(status for status in operation["responses"] if status.startswith("2"))
        assert good == TWO_GOOD.get(operation["operationId"], good[:1]), (path, method)
    assert len(names) == sum(1 for _ in operations(document))


def test_commands_document_their_body_and_their_key(document: dict[str, Any]) -> None:
    keyed = {
        operation["operationId"]
        for _, _, operation in operations(document)
        if any(parameter["name"] == "Idempotency-Key" for parameter in operation.get("parameters", ()))
    }
    unkeyed = {"noteSeen", "beginSession", "endSession", "hello", "pushEvents", "askApproval", "bye"}
    unkeyed |= {"takeInbound", "takeReceipts", "acknowledge", "reconcileDeliveries", "endContinuation"}
    assert (
        keyed
        == {operation["operationId"] for _, method, operation in operations(document) if method != "get"} - unkeyed
    )
    bodies = {
        operation["operationId"]: operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        for _, _, operation in operations(document)
        if "requestBody" in operation and "inbound" not in operation["tags"]
    }
    assert {name: reference.rpartition("/")[2] for name, reference in bodies.items()} == {
        "openRoom": "OpenRoom",
        "beginLink": "BeginLink",
        "presentLink": "PresentCode",
        "confirmLink": "ConfirmLink",
        "changePush": "ChangePush",
        "unlinkFor": "EndByOperator",
        "voidChallenge": "EndByOperator",
        "endContinuation": "EndByOperator",
        "postMessage": "PostMessage",
        "putMember": "MemberRole",
        "closeRoom": "CloseRoom",
        "putParticipant": "Participation",
        "deleteParticipant": "Participation",
        "setHold": "SetHold",
        "releaseHold": "ReleaseHold",
        "promoteQueued": "AtEpoch",
        "requestDriver": "RequestDriver",
        "giveDriver": "GiveDriver",
        "takeDriver": "TakeDriver",
        "interruptRun": "InterruptRun",
        "requestRun": "RequestRun",
        "registerRun": "Registration",
        "endRun": "EndRun",
        "revokeRun": "Revocation",
        "decideApproval": "ApprovalDecision",
        "forkRoom": "ForkRoom",
        "pushEvents": "Batch",
        "askApproval": "RequestApproval",
        "bye": "EndRun",
        "startConversation": "StartConversation",
        "sendTurn": "SendTurn",
        "interruptTurn": "InterruptTurn",
        "closeConversation": "CloseConversation",
        "noteSeen": "SeenTurn",
        "replayDelivery": "ReplayDelivery",
        "revokeDelivery": "RevokeDelivery",
        "purgeDelivery": "PurgeDelivery",
        "pauseChannel": "PauseChannel",
        "resumeChannel": "ResumeChannel",
        "planBulk": "PlanBulk",
        "reconcileDeliveries": "ReconcileDeliveries",
        "cancelContinuation": "CancelContinuation",
        "acknowledge": "Acknowledge",
    }
    schemas = document["components"]["schemas"]
    assert schemas["PostMessage"]["additionalProperties"] is False
    assert schemas["PostMessage"]["required"] == ["text"]
    assert schemas["Envelope"]["properties"]["payload"]["type"] == "object"
    assert "default" not in schemas["Envelope"]["properties"]["payload"]


def test_every_reference_resolves_and_nothing_leaks(server: LiveServer, document: dict[str, Any]) -> None:
    text = json.dumps(document)
    for reference in set(re.findall(r'"#/components/(\w+)/(\w+)"', text)):
        assert reference[1] in document["components"][reference[0]]
    assert '"example' not in text
    assert str(server.data_dir) not in text
    assert "struct:" not in text
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def _asking(class_: str) -> dict[str, Any]:
    return {"eventId": class_, "callId": "c1", "class": class_, "action": {"command": "git push"}}


def test_answers_are_what_the_document_says(server: LiveServer, document: dict[str, Any]) -> None:
    """By hand for what generated requests do not reach: rooms that exist."""
    alice = server.member("alice")
    room = open_room(alice, title="Described")
    post(alice, room, "hello")
    run = short_id(9401)
    bridge = server.client(f"agent:{run}", room=room)
    hello = bridge.post("/v1/bridge/hello")
    checks: list[tuple[str, httpx.Response]] = [
        ("Snapshot", alice.get(f"/v1/rooms/{room}")),
        ("EventPage", alice.get(f"/v1/rooms/{room}/events")),
        ("EventPage", alice.get(f"/v1/rooms/{room}/events", params={"type": "message", "limit": 1})),
        ("TranscriptPage", alice.get(f"/v1/rooms/{room}/transcript", params={"minSeq": 2, "limit": 2})),
        ("RoomPage", alice.get("/v1/rooms", params={"limit": 1})),
        ("Explanation", alice.get(f"/v1/rooms/{room}/explain", params={"action": "read"})),
        ("Hello", hello),
        ("Cursors", bridge.post("/v1/bridge/events", json={"items": []})),
        ("Asked", bridge.post("/v1/bridge/approvals", json=_asking("forge.pr"))),
        ("Asked", bridge.post("/v1/bridge/approvals", json=_asking("forge.push"))),
        ("CommandAnswer", alice.put(f"/v1/rooms/{room}/members/human:bob", json={"role": "watcher"})),
        ("ApprovalPage", alice.get(f"/v1/rooms/{room}/approvals")),
        ("Snapshot", alice.get(f"/v1/rooms/{room}")),
        ("CommandAnswer", alice.post(f"/v1/rooms/{room}/interrupt", json={"driverEpoch": 1})),
        ("DriverAnswer", alice.post(f"/v1/rooms/{room}/driver/request", json={})),
        ("RunState", alice.get(f"/v1/runs/{run}")),
        ("CommandAnswer", bridge.post("/v1/bridge/bye")),
        ("RunState", alice.get(f"/v1/runs/{run}")),
        ("RequestedRun", alice.post(f"/v1/rooms/{room}/runs", json={"role": "tester"})),
        ("RunAnswer", alice.put(f"/v1/runs/{short_id(9402)}", json={"roomId": room, "role": "tester"})),
        ("RunAnswer", alice.put(f"/v1/runs/{short_id(9402)}", json={"roomId": room, "role": "tester"})),
        ("ForkAnswer", alice.post(f"/v1/rooms/{room}/fork", json={"seq": 1, "role": "tester"})),
        ("CommandAnswer", alice.post(f"/v1/rooms/{room}/hold", json={"reason": "lawsuit"})),
        ("CommandAnswer", alice.post(f"/v1/rooms/{room}/close")),
        ("Problem", alice.post(f"/v1/rooms/{room}/close")),
        ("Problem", alice.post("/v1/rooms", json={})),
        *_of_conversations(alice),
    ]
    for name, answer in checks:
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema_rs.Draft202012Validator(schema).validate(answer.json())
        properties = document["components"]["schemas"][name]["properties"]
        assert set(answer.json()) <= set(properties), name


def _of_conversations(alice: httpx.Client) -> list[tuple[str, httpx.Response]]:
    talk = _talk(alice)
    url = f"/v1/conversations/{talk}"
    return [
        ("CommandAnswer", alice.post("/v1/conversations", json={"agent": "echo", "id": "described"})),
        ("CommandAnswer", alice.post("/v1/conversations", json={"agent": "echo", "id": "described"})),
        ("ConversationPage", alice.get("/v1/conversations", params={"limit": 1})),
        ("ConversationStatus", alice.get(url)),
        ("HistoryPage", alice.get(f"{url}/history")),
        ("Ledger", alice.get(f"{url}/turns/1/context")),
        ("Noted", alice.post(f"{url}/turns/1/seen", json={"offset": 1})),
        ("CommandAnswer", alice.post(f"{url}/turns", json={"text": "!hang"})),
        ("ConversationStatus", alice.get(url)),
        ("CommandAnswer", alice.post(f"{url}/interrupt")),
        ("CommandAnswer", alice.post(f"{url}/close")),
        ("Problem", alice.post(f"{url}/close")),
    ]


CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


FUZZED = "^/(v1/(rooms|runs|bridge|conversations)|readyz|healthz)"
"""Paths of the operations that get generated requests."""


@pytest.mark.parametrize("examples", [10, pytest.param(60, marks=(pytest.mark.soak, pytest.mark.timeout(900)))])
def test_the_server_keeps_to_the_document(server: LiveServer, examples: int) -> None:
    """Generated requests, well-formed ones, so many to every operation; the room in the path exists, and is open."""
    alice = server.member("alice")
    headers = _bearer(server.token("human:alice", "agents-member"))
    schema = schemathesis.openapi.from_url(f"{server.url}/v1/openapi.json", headers=headers)
    tried: set[str] = set()
    for found in schema.include(path_regex=FUZZED).get_all_operations():
        operation = found.ok()
        assert operation is not None
        tried.add(operation.definition.raw["operationId"])
        _fuzz(operation, alice, headers, examples)
    described = operations(msgspec.json.decode(alice.get("/v1/openapi.json").content))
    assert len(tried) == sum(1 for path, _, _ in described if re.search(FUZZED, path)) > 30


def _fuzz(operation: Any, alice: httpx.Client, headers: dict[str, str], examples: int) -> None:
    room, talk = _open(alice), _talk(alice)

    @given(case=operation.as_strategy())
    @settings(
        max_examples=examples,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    def try_(case: Any) -> None:
        nonlocal room, talk
        if "room_id" in case.path_parameters:
            case.path_parameters["room_id"] = room
        # Its answer for what never comes is a 504, after 5 s.
        (case.query or {}).pop("minSeq", None)
        if "conversation_id" in case.path_parameters:
            case.path_parameters["conversation_id"] = talk
        if _is_endless(operation.path):
            # A stream has no end, so only its head is asked for.
            given_id = {name: value for name, value in (case.headers or {}).items() if name == "Last-Event-ID"}
            answer = alice.head(case.formatted_path, params=case.query, headers=given_id)
            assert str(answer.status_code) in operation.definition.raw["responses"]
            return
        answer = case.call_and_validate(checks=CHECKS, headers={**(case.headers or {}), **headers})
        if operation.path.endswith("/close") and answer.status_code == 200:
            room, talk = _open(alice), _talk(alice)

    try_()


def _talk(alice: httpx.Client) -> str:
    talk = start(alice)
    ask(alice, talk, "to be read")
    return talk


def _is_endless(path: str) -> bool:
    return path.endswith("/stream") or path == "/v1/conversations/{conversation_id}/events"


def _open(alice: httpx.Client) -> str:
    room = open_room(alice)
    post(alice, room, "to be read")
    return room


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_every_code_of_the_errors_is_in_the_table() -> None:
    from minutebook.domain import errors

    codes = {
        error.code
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.MinutebookError)
    }
    assert codes <= set(STATUS)
    assert msgspec.json.encode(sorted(codes))
