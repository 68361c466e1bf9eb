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
