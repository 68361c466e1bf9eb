"""Conversations over HTTP: starting, saying, reading page by page, and who is told what first (http.md)."""

from __future__ import annotations

import statistics
import time
from typing import Any

import httpx
import pytest
from bad_input import JSON, refused
from live_server import LiveServer, until
from talks import ask, history, replies, reply, say, start, status

KEYS = {"cursor", "ord", "turn", "role", "status", "text", "asker", "ts", "classes"}


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the conversations of these tests."""
    return server.member("alice")


@pytest.fixture(scope="module")
def long(alice: httpx.Client) -> str:
    """A conversation of seven turns: 14 records."""
    talk = start(alice)
    for number in range(1, 8):
        say(alice, talk, f"word {number}")
    reply(alice, talk, 7)
    return talk


def page(client: httpx.Client, talk: str, **query: Any) -> dict[str, Any]:
    """A page of the history, as it is by default."""
    answer = client.get(f"/v1/conversations/{talk}/history", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_it_starts_answers_and_says_how_it_stands(alice: httpx.Client) -> None:
    answer = alice.post("/v1/conversations", json={"agent": "echo"})
    assert answer.status_code == 201
    assert set(answer.json()) == {"id", "seq", "chain"}
    talk = answer.json()["id"]
    assert status(alice, talk) == {
        "id": talk, "mode": "owner", "state": "open", "turns": 0, "queued": 0, "generation": 1, "agent": "echo",
        "bargeIn": "queue",
    }  # fmt: skip
    sent = say(alice, talk, "hello, world", messageId="m1")
    said = reply(alice, talk, 1)
    assert (said["status"], said["text"], said["cursor"]) == ("completed", "echo: hello, world", "1.2")
    question = history(alice, talk)[0]
    assert (question["id"], question["messageId"]) == (sent["id"], "m1")
    assert question["asker"] == {"actor": "human:alice", "tenant": "default"}
    assert set(question) == KEYS | {"id", "messageId"}
    assert set(said) == KEYS
    assert status(alice, talk)["turns"] == 1


def test_what_runs_and_what_waits_is_counted(alice: httpx.Client) -> None:
    talk = start(alice)
    for text in ("!hang", "one", "two"):
        say(alice, talk, text)
    until(lambda: status(alice, talk).get("running") == {"turn": 1}, what="the turn")
    assert status(alice, talk)["queued"] == 2
    assert alice.post(f"/v1/conversations/{talk}/interrupt", json={}).status_code == 202
    assert reply(alice, talk, 1)["status"] == "interrupted"
    assert reply(alice, talk, 3)["text"] == "echo: two"
    assert (status(alice, talk)["queued"], "running" in status(alice, talk)) == (0, False)


def test_a_handle_is_one_conversation_of_its_owner_for_ever(server: LiveServer, alice: httpx.Client) -> None:
    body = {"agent": "echo", "id": "notes"}
    first, again = (alice.post("/v1/conversations", json=body) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    for other in (server.member("bob"), server.member("alice", tenant="elsewhere")):
        theirs = other.post("/v1/conversations", json=body)
        assert theirs.status_code == 201
        assert theirs.json()["id"] != first.json()["id"]
    assert first.json()["id"] != start(alice)


def test_one_lists_what_one_started_newest_first(server: LiveServer) -> None:
    carol = server.member("carol")
    assert carol.get("/v1/conversations").json() == {"conversations": []}
    talks = [start(carol, id=f"n{number}") for number in range(5)][::-1]
    assert carol.post(f"/v1/conversations/{talks[0]}/close", json={}).status_code == 200
    until(lambda: status(carol, talks[0])["state"] == "closed", what="the close")
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        answer = carol.get("/v1/conversations", params=query).json()
        found += answer["conversations"]
        if "nextCursor" not in answer:
            break
        query["cursor"] = answer["nextCursor"]
    assert [line["id"] for line in found] == talks
    assert [line["handle"] for line in found] == ["n4", "n3", "n2", "n1", "n0"]
    assert [line["state"] for line in found] == ["closed", *["open"] * 4]
    dave = server.member("dave")
    for cursor in (talks[0], talks[0][::-1], "zzz", ""):
        refused(dave.get("/v1/conversations", params={"cursor": cursor}), 400, "invalid_cursor")


def test_pages_go_back_from_the_newest_and_forward_from_the_first(alice: httpx.Client, long: str) -> None:
    whole = page(alice, long)
    assert [entry["ord"] for entry in whole["entries"]] == list(range(14, 0, -1))
    assert (whole["done"], whole["nextCursor"]) == (True, "1.1")
    for direction, expected in (("backward", list(range(14, 0, -1))), ("forward", list(range(1, 15)))):
        ords: list[int] = []
        query: dict[str, Any] = {"direction": direction, "limit": 4}
        while True:
            answer = page(alice, long, **query)
            ords += [entry["ord"] for entry in answer["entries"]]
            if answer["done"]:
                break
            assert answer["nextCursor"] == answer["entries"][-1]["cursor"]
            query["cursor"] = answer["nextCursor"]
        assert ords == expected
    end = page(alice, long, direction="forward", cursor="1.14")
    assert end == {"entries": [], "nextCursor": "1.14", "done": True}
    assert page(alice, start(alice)) == {"entries": [], "nextCursor": "1.0", "done": True}


@pytest.mark.parametrize("cursor", ["999999999.0", "1.15", "2.1", "0.0", "1.9999999999999999"])
def test_a_cursor_beyond_the_end_is_the_end(alice: httpx.Client, long: str, cursor: str) -> None:
    assert page(alice, long, cursor=cursor, direction="forward") == {"entries": [], "nextCursor": "1.14", "done": True}
    assert [entry["ord"] for entry in page(alice, long, cursor=cursor, limit=2)["entries"]] == [14, 13]


@pytest.mark.parametrize(
    "cursor",
    ["", "1", "1.", ".1", "01.1", "1.01", "1.1.1", "-1.1", "1.-1", "+1.1", "1.1\n", "1.1 ", "a.b", "1.1e3", "१.१"],
)
def test_a_malformed_cursor_is_refused(alice: httpx.Client, long: str, cursor: str) -> None:
    for path in ("history", "events"):
        answer = alice.get(f"/v1/conversations/{long}/{path}", params={"cursor": cursor})
        refused(answer, 400, "invalid_cursor")
    if cursor.isascii() and cursor == cursor.strip():
        answer = alice.get(f"/v1/conversations/{long}/events", headers={"last-event-id": cursor})
        refused(answer, 400, "invalid_cursor")


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("history", {"limit": 0}),
        ("history", {"limit": 201}),
        ("history", {"direction": "sideways"}),
        ("history", {"viewer": "bob"}),
        ("history", {"viewer": ""}),
        ("events", {"tail": 201}),
        ("events", {"tail": -1}),
    ],
)
def test_what_a_read_does_not_take(alice: httpx.Client, long: str, path: str, query: dict[str, Any]) -> None:
    refused(alice.get(f"/v1/conversations/{long}/{path}", params=query), 422, "invalid")


STARTS: list[tuple[dict[str, Any], str]] = [
    ({}, "$.agent"),
    ({"agent": "nobody"}, "$.agent"),
    ({"agent": "Echo"}, "$.agent"),
    ({"agent": "echo", "mode": "group"}, "$.mode"),
    ({"agent": "echo", "bargeIn": "always"}, "$.bargeIn"),
    ({"agent": "echo", "id": ""}, "$.id"),
    ({"agent": "echo", "id": "a\n"}, "$.id"),
    ({"agent": "echo", "id": "-a"}, "$.id"),
    ({"agent": "echo", "participants": []}, "$.participants"),
]


@pytest.mark.parametrize(("body", "path"), STARTS)
def test_conversations_that_cannot_be_started(alice: httpx.Client, body: dict[str, Any], path: str) -> None:
    refused(alice.post("/v1/conversations", json=body), 422, "invalid", path)


TURNS: list[tuple[str, Any, int, str, str | None]] = [
    ("white space", {"text": " \t\n\u2003"}, 422, "invalid", "$.text"),
    ("combining marks", {"text": "\u0301\u0301"}, 422, "invalid", "$.text"),
    ("no text", {}, 422, "invalid", "$.text"),
    ("empty", {"text": ""}, 422, "invalid", "$.text"),
    ("32001 characters", {"text": "x" * 32_001}, 422, "invalid", "$.text"),
    ("a number", {"text": 1}, 422, "invalid", "$.text"),
    ("background", {"text": "a", "background": 1}, 422, "invalid", "$.background"),
    ("responseTarget", {"text": "a", "responseTarget": {}}, 422, "invalid", "$.responseTarget.kind"),
    ("bargeIn", {"text": "a", "bargeIn": "interrupt"}, 422, "invalid", "$.bargeIn"),
    ("edit of a word", {"text": "a", "editOf": "1"}, 422, "invalid", "$.editOf"),
    ("edit of 0", {"text": "a", "editOf": 0}, 422, "invalid", "$.editOf"),
    ("messageId with a space", {"text": "a", "messageId": "a b"}, 422, "invalid", "$.messageId"),
    ("messageId of 256", {"text": "a", "messageId": "m" * 256}, 422, "invalid", "$.messageId"),
    ("17 classes", {"text": "a", "classes": ["c"] * 17}, 422, "invalid", "$.classes"),
    ("64 KiB", {"text": "é" * 32_768}, 413, "payload_too_large", None),
]


@pytest.mark.parametrize(("body", "status_", "code", "path"), [row[1:] for row in TURNS], ids=[row[0] for row in TURNS])
def test_turns_that_cannot_be_sent(
    alice: httpx.Client, long: str, body: Any, status_: int, code: str, path: str | None
) -> None:
    refused(alice.post(f"/v1/conversations/{long}/turns", json=body), status_, code, path)
    assert status(alice, long)["turns"] == 7


@pytest.mark.parametrize(
    "text", ["x" * 32_000, "e\u0301\u0301", "\U0001f468\u200d\U0001f469", "\nevent: error\ndata: {}\n\n", " a "]
)
def test_any_other_text_is_a_turn_and_comes_back_as_it_was(alice: httpx.Client, text: str) -> None:
    talk = start(alice)
    assert ask(alice, talk, text)["status"] == "completed"
    assert history(alice, talk)[0]["text"] == text


def test_a_body_is_json_and_at_most_64_kib(alice: httpx.Client, long: str) -> None:
    url = f"/v1/conversations/{long}/turns"
    refused(
        alice.post(url, content=b'{"text":"a"}', headers={"content-type": "text/plain"}), 415, "unsupported_media_type"
    )
    refused(alice.post(url, content=b'{"text":"' + b"x" * 65_536 + b'"}', headers=JSON), 413, "payload_too_large")
    refused(alice.post(url, content=b'{"text":"a","text":"b"}', headers=JSON), 400, "malformed")
    refused(alice.post(url, content=b"", headers=JSON), 400, "malformed")
    chunked = (b" " * 1024 for _ in range(100))
    refused(alice.post(url, content=chunked, headers=JSON), 413, "payload_too_large")


def test_a_message_sent_again_is_one_turn_with_the_first_answer(server: LiveServer, alice: httpx.Client) -> None:
    talk = start(alice)
    url, body = f"/v1/conversations/{talk}/turns", {"text": "once", "messageId": "m1"}
    first = alice.post(url, json=body)
    reply(alice, talk, 1)
    for headers in ({}, {"idempotency-key": "m1"}):
        again = alice.post(url, json=body, headers=headers)
        assert (again.status_code, again.json()) == (202, first.json())
        assert again.headers["idempotency-replayed"] == "true"
    keyed = alice.post(url, json={"text": "once"}, headers={"idempotency-key": "m1"})
    assert keyed.json() == first.json()
    refused(alice.post(url, json={**body, "text": "twice"}), 422, "idempotency_key_reused")
    refused(alice.post(url, json=body, headers={"idempotency-key": "m2"}), 422, "invalid", "$.messageId")
    assert alice.post(f"/v1/conversations/{talk}/close", json={}).status_code == 200
    until(lambda: status(alice, talk)["state"] == "closed", what="the close")
    assert alice.post(url, json=body).json() == first.json()
    refused(alice.post(url, json={"text": "more"}), 410, "sealed")
    assert len(history(alice, talk)) == 2


@pytest.mark.parametrize(
    ("path", "body", "other"),
    [("/v1/conversations", {"agent": "echo"}, {"agent": "echo", "bargeIn": "interrupt"}),
     ("interrupt", {}, {"seen": 3}), ("close", {}, None)],
)  # fmt: skip
def test_keyed_commands_have_one_effect(alice: httpx.Client, path: str, body: Any, other: Any) -> None:
    talk = start(alice)
    say(alice, talk, "!hang")
    url = path if path.startswith("/") else f"/v1/conversations/{talk}/{path}"
    headers = {"idempotency-key": f"key-{path[-5:]}"}
    first, again = (alice.post(url, json=body, headers=headers) for _ in range(2))
    assert first.status_code in (200, 201, 202), first.text
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    if other is not None:
        refused(alice.post(url, json=other, headers=headers), 422, "idempotency_key_reused")
    if path != "close":
        alice.post(f"/v1/conversations/{talk}/close", json={})


def test_what_was_received_of_an_interrupted_reply_is_recorded(alice: httpx.Client) -> None:
    talk = start(alice)
    say(alice, talk, "!slow 2000 10")
    until(lambda: status(alice, talk).get("running") == {"turn": 1}, what="the turn")
    url = f"/v1/conversations/{talk}/turns"
    for offset, expected in ((2, 200), (1, 200)):
        assert alice.post(f"{url}/1/seen", json={"offset": offset}).status_code == expected
    for turn in ("2", "0", "01", "x", "-1", "9" * 20):
        refused(alice.post(f"{url}/{turn}/seen", json={"offset": 1}), 404, "not_found")
    refused(alice.post(f"{url}/1/seen", json={"offset": -1}), 422, "invalid", "$.offset")
    time.sleep(0)
    assert alice.post(f"/v1/conversations/{talk}/interrupt", json={"turn": 1}).status_code == 202
    said = reply(alice, talk, 1)
    assert said["status"] == "interrupted"
    assert said["seen"] == min(2, len(said["text"]))
    assert alice.post(f"{url}/1/seen", json={"offset": 9999}).status_code == 200
    assert replies(alice, talk) == [said]


def test_the_context_ledger_says_what_the_model_saw(alice: httpx.Client, long: str) -> None:
    ledger = alice.get(f"/v1/conversations/{long}/turns/3/context").json()
    assert (ledger["turn"], ledger["ord"]) == (3, 5)
    assert [each["ord"] for each in ledger["kept"]] == [1, 3]
    assert (ledger["evicted"], ledger["changed"]) == ([], [])
    assert ledger["tokens"] >= sum(each["tokens"] for each in ledger["kept"])
    assert "word" not in str(ledger)
    for turn in ("8", "0", "x"):
        refused(alice.get(f"/v1/conversations/{long}/turns/{turn}/context"), 404, "not_found")


def test_pages_of_other_sites_reach_nothing(server: LiveServer, alice: httpx.Client, long: str) -> None:
    for origin in ("https://evil.example", "null", server.url, ""):
        answer = alice.get(f"/v1/conversations/{long}", headers={"origin": origin})
        refused(answer, 403, "bad_origin")
        answer = server.client().get(f"{server.url}//v1//conversations/{long}", headers={"origin": origin})
        refused(answer, 403, "bad_origin")
    refused(alice.get(f"/v1/conversations/{long}", headers={"host": "evil.example"}), 400, "malformed")
    refused(
        alice.options(
            f"/v1/conversations/{long}/turns",
            headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
        ),
        403,
        "bad_origin",
    )
    for answer in (
        alice.get(f"/v1/conversations/{long}"),
        server.client().get("/v1/conversations"),
        alice.get("/v1/conversations/x"),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_whoever_probes_learns_nothing_from_limits_and_replays(server: LiveServer, alice: httpx.Client) -> None:
    """Of what the owner would hear 429, 422 or a replay, a stranger hears 404."""
    talk = start(alice, id="probed")
    say(alice, talk, "!hang", messageId="m1")
    for number in range(64):
        say(alice, talk, f"waits {number}")
    refused(alice.post(f"/v1/conversations/{talk}/turns", json={"text": "one more"}), 429, "queue_full")
    mallory = server.member("mallory")
    url = f"/v1/conversations/{talk}"
    body = {"text": "!hang", "messageId": "m1"}
    for answer in (
        mallory.post(f"{url}/turns", json=body),
        mallory.post(f"{url}/turns", json=body, headers={"idempotency-key": "m1"}),
        mallory.post(f"{url}/interrupt", json={"turn": 1}),
        mallory.post(f"{url}/close", json={}),
        mallory.get(f"{url}/history", params={"cursor": "x"}),
        mallory.get(f"{url}/events", headers={"last-event-id": "x"}),
        mallory.get(f"{url}/history", params={"asOf": "1.1"}),
        mallory.get(f"/v1/conversations/{'a' * 26}/history", params={"cursor": "x"}),
    ):
        refused(answer, 404, "not_found")
    assert mallory.post("/v1/conversations", json={"agent": "echo", "id": "probed"}).status_code == 201
    assert alice.post(f"{url}/close", json={}).status_code == 200


def test_a_conversation_that_is_not_yours_takes_as_long_as_one_that_is_not_there(
    server: LiveServer, alice: httpx.Client, long: str
) -> None:
    mallory = server.client("human:mallory")
    shared = start(alice, mode="shared")
    times: dict[str, list[float]] = {long: [], shared: [], long[::-1]: []}
    for _ in range(60):
        for talk, taken in times.items():
            began = time.perf_counter()
            assert mallory.get(f"/v1/conversations/{talk}").status_code == 404
            taken.append(time.perf_counter() - began)
    *others, missing = (statistics.median(taken) for taken in times.values())
    assert all(0.5 < theirs / missing < 2 for theirs in others), (others, missing)
