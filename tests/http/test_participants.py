"""Shared conversations over HTTP: who takes part, who may say so, and what becomes of who is taken out."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest
from bad_input import refused
from live_server import LiveServer, until
from talks import ask, frame, history, listen, reply, say, start, status


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the conversations of these tests."""
    return server.member("alice")


@pytest.fixture(scope="module")
def bob(server: LiveServer) -> httpx.Client:
    """Who takes part in them, once alice says so."""
    return server.member("bob")


def url(talk: str, name: str = "human:bob") -> str:
    """The place of a participant."""
    return f"/v1/conversations/{talk}/participants/{quote(name, safe=':')}"


def shared(owner: httpx.Client, *names: str, **said: object) -> str:
    """A new shared conversation with those people in it."""
    talk = start(owner, mode="shared", **said)
    for name in names:
        answer = owner.put(url(talk, f"human:{name}"))
        assert answer.status_code == 200, answer.text
    return talk


def people(client: httpx.Client, talk: str) -> list[str]:
    """Who takes part."""
    answer = client.get(f"/v1/conversations/{talk}/participants")
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()["participants"]


def test_the_owner_names_who_takes_part(alice: httpx.Client, bob: httpx.Client) -> None:
    talk = shared(alice)
    assert people(alice, talk) == ["human:alice"]
    refused(bob.get(f"/v1/conversations/{talk}"), 404, "not_found")
    answer = alice.put(url(talk), json={})
    assert (answer.status_code, answer.json()["seq"]) == (200, 2)
    assert alice.put(url(talk)).json()["seq"] == 2, "one who takes part changes nothing"
    assert alice.put(url(talk, "human:alice")).json()["seq"] == 2
    assert people(bob, talk) == ["human:alice", "human:bob"]
    assert ask(bob, talk, "hello")["asker"]["actor"] == "human:bob"
    assert [entry["asker"]["actor"] for entry in history(bob, talk)] == ["human:bob"] * 2
    assert alice.delete(url(talk)).status_code == 200
    for path in ("", "/history", "/events", "/participants", "/turns/1/context"):
        refused(bob.get(f"/v1/conversations/{talk}{path}"), 404, "not_found")
    refused(bob.post(f"/v1/conversations/{talk}/turns", json={"text": "hello"}), 404, "not_found")
    seq = alice.delete(url(talk)).json()["seq"]
    assert alice.delete(url(talk, "human:nobody")).json()["seq"] == seq, "removing who is none changes nothing"


def test_a_participant_may_see_who_takes_part_and_not_say_so(alice: httpx.Client, bob: httpx.Client) -> None:
    talk = shared(alice, "bob")
    for answer in (bob.put(url(talk, "human:carol")), bob.delete(url(talk)), bob.delete(url(talk, "human:alice"))):
        refused(answer, 403, "forbidden")
    refused(bob.post(f"/v1/conversations/{talk}/close", json={}), 404, "not_found")
    assert people(bob, talk) == ["human:alice", "human:bob"]


def test_a_removal_ends_the_stream_at_its_place(alice: httpx.Client, bob: httpx.Client) -> None:
    talk = shared(alice, "bob")
    ask(alice, talk, "one")
    with listen(bob, talk) as stream:
        assert [frame(stream, "status", "message").event for _ in range(3)] == ["status", "message", "message"]
        assert alice.delete(url(talk)).status_code == 200
        ask(alice, talk, "two")
        assert [each.event for each in stream.rest()] == ["error", "closed"]
    until(lambda: status(alice, talk)["turns"] == 2, what="the second turn")
    say(alice, talk, "three")
    assert reply(alice, talk, 3)["text"] == "echo: three"


@pytest.mark.parametrize(
    "name",
    ["system:conversations", "system:ci", "agent:abcdefgh", "bob", "human:", "human:%20bob", "human:bo%E2%80%8Bb"],
)
def test_only_people_are_participants(alice: httpx.Client, name: str) -> None:
    talk = shared(alice)
    for send in (alice.put, alice.delete):
        refused(send(f"/v1/conversations/{talk}/participants/{name}"), 422, "invalid", "principal")
    assert people(alice, talk) == ["human:alice"]


def test_a_name_is_what_its_path_says(server: LiveServer, alice: httpx.Client) -> None:
    talk = shared(alice)
    name = "human:grün/er %41 bob"
    assert alice.put(url(talk, name)).status_code == 200
    assert people(server.client(name), talk) == ["human:alice", name]


def test_what_the_owner_may_not(alice: httpx.Client) -> None:
    alone, talk = start(alice), shared(alice, "bob")
    refused(alice.put(url(alone)), 409, "conflict")
    refused(alice.delete(url(talk, "human:alice")), 409, "conflict")
    refused(alice.put(url(talk), json={"role": "owner"}), 422, "invalid", "$.role")
    assert people(alice, alone) == ["human:alice"]
    assert alice.post(f"/v1/conversations/{talk}/close", json={}).status_code == 200
    refused(alice.put(url(talk, "human:carol")), 410, "sealed")
    refused(alice.delete(url(talk)), 410, "sealed")


def test_a_retry_gets_the_first_answer_and_a_stranger_none(alice: httpx.Client, bob: httpx.Client) -> None:
    talk = shared(alice)
    headers = {"idempotency-key": f"add-{talk}"}
    first, again = (alice.put(url(talk), headers=headers) for _ in range(2))
    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
    refused(alice.put(url(talk, "human:carol"), headers=headers), 422, "idempotency_key_reused")
    assert alice.delete(url(talk)).status_code == 200
    sent = {"text": "hello", "messageId": "m-1"}
    for body in (sent, {"text": "x", "messageId": "m-1"}):
        refused(bob.post(f"/v1/conversations/{talk}/turns", json=body), 404, "not_found")
    refused(bob.put(url(talk), headers=headers), 404, "not_found")


def test_a_list_has_what_one_takes_part_in_and_the_handle_is_its_owners(
    server: LiveServer, alice: httpx.Client
) -> None:
    lea = server.member("lea")
    own = start(lea)
    talk, other = shared(alice, "lea", id="incident-7"), shared(alice)

    def listed(client: httpx.Client) -> dict[str, dict[str, str]]:
        lines = client.get("/v1/conversations", params={"limit": 200}).json()["conversations"]
        return {line["id"]: line for line in lines}

    assert list(listed(lea)) == [talk, own]
    assert listed(lea)[talk]["mode"] == "shared"
    assert "handle" not in listed(lea)[talk]
    assert listed(alice)[talk]["handle"] == "incident-7"
    page = lea.get("/v1/conversations", params={"limit": 1}).json()
    assert page["nextCursor"] == talk
    refused(lea.get("/v1/conversations", params={"cursor": other}), 400, "invalid_cursor")
    assert alice.delete(url(talk, "human:lea")).status_code == 200
    assert list(listed(lea)) == [own]
    refused(lea.get("/v1/conversations", params={"cursor": talk}), 400, "invalid_cursor")


def test_a_token_that_acts_for_somebody_takes_part_in_none(server: LiveServer, alice: httpx.Client) -> None:
    desk = server.client("human:alice", "agents-member", act="system:desk")
    answer = desk.post("/v1/conversations", json={"agent": "echo", "mode": "shared"})
    refused(answer, 403, "forbidden")
    assert "conversations.delegates" in answer.json()["detail"]
    talk = shared(alice)
    refused(desk.get(f"/v1/conversations/{talk}"), 404, "not_found")
    refused(desk.put(url(talk)), 404, "not_found")
    assert desk.post("/v1/conversations", json={"agent": "echo"}).status_code == 201
