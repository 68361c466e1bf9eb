"""Background turns over a real socket: one end, whichever way it is seen; nobody else's, and never for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from background import begin, caller, ended, forgotten, look, send, with_continuations
from live_server import LiveServer, until
from minutebook.commands.answers.continuations import KeyedContinuations
from minutebook.commands.answers.ports import Origin
from minutebook.domain.conversations.decide import envelope_id
from minutebook.domain.conversations.identity import identity_of
from minutebook.domain.linking.events import LinkedEnd
from talks import history, say, start, status
from ulid_transform import ulid_now

SLOW = "!slow 40 50"
NEVER = "!hang"


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    return server.member("alice")


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def events(server: LiveServer) -> int:
    with server.sql() as connection:
        found = connection.execute("SELECT count(*) FROM minutebook.events").fetchone()
        assert found is not None
        return found[0]


def wait_for(client: httpx.Client, token: str, wait: int = 30) -> Callable[[], tuple[httpx.Response, float]]:
    """Ask on another thread; what is given answers with the response and how long it took."""
    box: list[tuple[httpx.Response, float]] = []

    def ask() -> None:
        began = time.monotonic()
        answer = client.get(f"/v1/continuations/{token}", params={"wait": wait}, timeout=60)
        box.append((answer, time.monotonic() - began))

    thread = threading.Thread(target=ask)
    thread.start()

    def joined() -> tuple[httpx.Response, float]:
        thread.join(60)
        return box[0]

    return joined


def followed(server: LiveServer) -> None:
    """Return once somebody waits."""
    until(lambda: server.metric("conversation_followers") > 0, 10, "a waiter")


def test_background_polling(server: LiveServer, alice: httpx.Client) -> None:
    talk = start(alice)
    token = send(alice, talk, SLOW)
    until(lambda: look(alice, token)["status"] == "running", 10, "the turn to run")
    first = look(alice, token)
    assert set(first) == {"id", "status", "expiresAt", "turn"}
    assert first["turn"] == 1
    queued = send(alice, talk, "hello")
    assert look(alice, queued)["status"] == "queued"
    done = ended(alice, token)
    assert done["status"] == "completed"
    assert done["result"].split() == [f"w{n}" for n in range(1, 41)]
    assert done == look(alice, token), "an end stays as it is"
    waited = look(alice, queued, wait=30)
    assert waited["status"] == "completed"
    assert waited["result"] == "echo: hello"
    assert waited["id"] != done["id"]
    before = events(server)
    assert [look(alice, token, wait=5)["status"] for _ in range(3)] == ["completed"] * 3
    assert events(server) == before, "to look at it says nothing in the log"


def test_a_failure_and_a_rejection_say_why(server: LiveServer, alice: httpx.Client) -> None:
    talk = start(alice)
    failed = ended(alice, send(alice, talk, "!fail 400"))
    assert (failed["status"], failed["reason"], "result" in failed) == ("failed", "model-error", False)
    say(alice, talk, NEVER)
    waiting = send(alice, talk, "never to be asked")
    assert alice.post(f"/v1/conversations/{talk}/close").status_code == 200
    rejected = ended(alice, waiting)
    assert (rejected["status"], rejected["reason"], "turn" in rejected) == ("failed", "closed", False)


def test_background_cancel(server: LiveServer, alice: httpx.Client) -> None:
    talk = start(alice)
    token = send(alice, talk, NEVER)
    waiting = [send(alice, talk, f"number {n}") for n in range(3)]
    until(lambda: look(alice, token)["status"] == "running", 10, "the turn to run")
    answer = alice.delete(f"/v1/continuations/{waiting[1]}")
    assert (answer.status_code, set(answer.json())) == (202, {"seq", "chain", "id"}), answer.text
    before = events(server)
    assert alice.delete(f"/v1/continuations/{waiting[1]}").status_code == 202
    assert events(server) == before, "it is stopped already"
    assert alice.delete(f"/v1/continuations/{token}").status_code == 202
    assert ended(alice, token)["status"] == "cancelled"
    found = [ended(alice, each) for each in waiting]
    assert [each["status"] for each in found] == ["completed", "cancelled", "completed"]
    assert found[1]["result"] == "", "it never asked its model"
    for each in (token, *waiting):
        assert refused(alice.delete(f"/v1/continuations/{each}")) == (409, "already_ended")


def test_a_cancelled_turn_keeps_what_it_said(server: LiveServer, alice: httpx.Client) -> None:
    talk = start(alice)
    token = send(alice, talk, "!slow 1000 20")
    with alice.stream("GET", f"/v1/conversations/{talk}/events") as stream:
        assert any("event: delta" in line or "event: partial" in line for line in stream.iter_lines())
        key = {"idempotency-key": ulid_now()}
        first = alice.delete(f"/v1/continuations/{token}", headers=key)
    assert first.status_code == 202
    done = ended(alice, token)
    assert done["status"] == "cancelled"
    assert done["result"].startswith("w1 ")
    again = alice.delete(f"/v1/continuations/{token}", headers=key)
    assert (again.status_code, again.json(), again.headers["idempotency-replayed"]) == (202, first.json(), "true")


def test_another_s_token_an_unknown_one_and_a_purged_one_are_one_answer(
    server: LiveServer, alice: httpx.Client
) -> None:
    talk = start(alice)
    token = send(alice, talk, "hello")
    purged = send(alice, talk, "hello")
    ended(alice, purged)
    with server.sql() as connection:
        over = "UPDATE minutebook.continuations SET expires_at = clock_timestamp() WHERE id = %s"
        connection.execute(over, (look(alice, purged)["id"],))
    bob, elsewhere = server.member("bob"), server.member("alice", tenant="elsewhere")
    agent = server.client("human:alice", "agents-member", act="system:desk")
    tried = [
        *((who, token) for who in (bob, elsewhere, agent)),
        *((alice, each) for each in (purged, token[:-1], "x", "%C3%A4", token.swapcase())),
    ]
    for verb in ("get", "delete"):
        answers = [getattr(who, verb)(f"/v1/continuations/{each}") for who, each in tried]
        assert {answer.status_code for answer in answers} == {404}
        assert len({answer.content for answer in answers}) == 1, "the path says nothing either"
        assert token not in answers[0].text
    assert look(alice, token)["status"] == "completed"


def test_the_token_is_stored_and_said_nowhere(server: LiveServer, alice: httpx.Client) -> None:
    talk = start(alice)
    token = send(alice, talk, "hello")
    ended(alice, token)
    refusals = [
        alice.get(f"/v1/continuations/{token}", params={"wait": 31}),
        alice.post(f"/v1/continuations/{token}"),
        alice.get(f"/v1/continuations/{token}", headers={"accept": "text/html"}),
        alice.get(f"//v1//continuations//{token}", params={"wait": "x"}),
        server.client().get(f"/v1/continuations/{token}"),
        alice.delete(f"/v1/continuations/{token}"),
    ]
    assert [each.status_code for each in refusals] == [422, 405, 406, 404, 401, 409]
    for each in refusals:
        assert each.json()["instance"].endswith("/{token}"), each.json()
        assert token not in each.text
    assert token not in server.logs()
    assert token not in alice.get("/metrics").text
    with server.sql() as connection:
        for table in ("continuations", "events", "idempotency"):
            found = connection.execute(
                f"SELECT count(*) FROM minutebook.{table} t WHERE t::text LIKE %s",  # type: ignore[arg-type]
                (f"%{token}%",),
            ).fetchone()
            assert found == (0,), table


def test_the_same_request_gets_the_same_handle(server: LiveServer, alice: httpx.Client) -> None:
    talk, message_id = start(alice), ulid_now()
    first = begin(server, talk, message_id)
    say(alice, talk, "hello", messageId=message_id)
    done = ended(alice, first.token)
    again = begin(server, talk, message_id)
    assert again.token == first.token
    assert again.expires_at == done["expiresAt"]
    assert again.url == f"/v1/continuations/{first.token}"
    assert first.token not in repr(again)
    assert begin(server, talk, ulid_now()).token != first.token
    assert begin(server, start(alice), message_id).token != first.token


def test_who_waits_hears_of_the_end_at_once(server: LiveServer, alice: httpx.Client) -> None:
    talk = start(alice)
    token = send(alice, talk, NEVER)
    waits = [wait_for(alice, token) for _ in range(3)]
    followed(server)
    assert alice.post(f"/v1/conversations/{talk}/interrupt").status_code == 202
    for joined in waits:
        answer, took_s = joined()
        assert answer.json()["status"] == "cancelled"
        assert took_s < 15
    assert server.metric("conversation_followers") == 0


def test_a_wait_that_is_over_says_how_it_stands(server: LiveServer, alice: httpx.Client) -> None:
    talk = start(alice)
    token = send(alice, talk, NEVER)
    until(lambda: look(alice, token)["status"] == "running", 10, "the turn to run")
    answer, took_s = wait_for(alice, token, wait=1)()
    assert answer.json()["status"] == "running"
    assert took_s >= 1
    alice.post(f"/v1/conversations/{talk}/interrupt")


def test_who_is_taken_out_while_they_wait_hears_nothing(server: LiveServer, alice: httpx.Client) -> None:
    talk, bob = start(alice, mode="shared"), server.member("bob")
    alice.put(f"/v1/conversations/{talk}/participants/human:bob").raise_for_status()
    token = send(bob, talk, NEVER)
    joined = wait_for(bob, token)
    followed(server)
    alice.delete(f"/v1/conversations/{talk}/participants/human:bob").raise_for_status()
    answer, took_s = joined()
    assert refused(answer) == (404, "not_found")
    assert took_s < 15
    assert refused(bob.get(f"/v1/continuations/{token}")) == (404, "not_found")
    assert refused(bob.delete(f"/v1/continuations/{token}")) == (404, "not_found")
    assert refused(alice.get(f"/v1/continuations/{token}")) == (404, "not_found")


def test_background_expiry(server: LiveServer, alice: httpx.Client) -> None:
    talk = start(alice)
    token = send(alice, talk, NEVER)
    until(lambda: look(alice, token)["status"] == "running", 10, "the turn to run")
    late = "UPDATE minutebook.continuations SET expires_at = clock_timestamp() - interval '1 s' WHERE id = %s"
    id_ = look(alice, token)["id"]
    with server.sql() as connection:
        connection.execute(late, (id_,))
        assert look(alice, token)["status"] == "expired"
        assert refused(alice.delete(f"/v1/continuations/{token}")) == (409, "already_ended")
        assert alice.post(f"/v1/conversations/{talk}/interrupt").status_code == 202
        until(lambda: status(alice, talk).get("running") is None, 10, "the turn's end")
        assert look(alice, token)["status"] == "expired", "the first end stays"
        connection.execute(late, (id_,))
        assert refused(alice.get(f"/v1/continuations/{token}")) == (404, "not_found")

        assert forgotten(server) >= 1
        found = connection.execute("SELECT count(*) FROM minutebook.continuations WHERE id = %s", (id_,)).fetchone()
        assert found == (0,)


def test_an_unlinked_end_takes_its_handles_along(server: LiveServer, alice: httpx.Client) -> None:
    talk, end = start(alice), LinkedEnd("hook", "h:" + "0a" * 16)
    who = caller()

    def send_from(text: str, end: LinkedEnd) -> str:
        message_id = ulid_now()
        origin = Origin(who.tenant, "account", ulid_now(), end)
        made = with_continuations(
            server, lambda handles: handles.begin(who, talk, envelope_id(identity_of(who), message_id), origin)
        )
        say(alice, talk, text, messageId=message_id)
        return made.token

    done, running = send_from("hello", end), send_from(NEVER, end)
    other = send_from("later", LinkedEnd("hook", "h:" + "0b" * 16))
    ended(alice, done)
    assert with_continuations(server, lambda handles: handles.end_all("default", "account", end)) == 1
    assert with_continuations(server, lambda handles: handles.end_all("default", "account", end)) == 0
    found = look(alice, running)
    assert (found["status"], found["reason"]) == ("cancelled", "unlinked")
    assert "result" not in found
    assert refused(alice.get(f"/v1/continuations/{done}")) == (404, "not_found")
    assert look(alice, other)["status"] == "queued"
    alice.post(f"/v1/conversations/{talk}/interrupt")
    assert ended(alice, other)["status"] == "completed"
    assert look(alice, running) == found, "what the log says later changes nothing"


def test_a_purged_conversation_takes_them_along(server: LiveServer, alice: httpx.Client) -> None:
    talk = start(alice)
    token = send(alice, talk, "hello")
    ended(alice, token)
    with server.sql() as connection:
        name = f"conversation:{talk}"
        found = connection.execute(
            "SELECT confdeltype::text FROM pg_constraint WHERE conname = 'continuations_stream'"
        ).fetchone()
        assert found == ("c",)
        assert connection.execute(
            "SELECT count(*) FROM minutebook.continuations c JOIN minutebook.streams s ON s.id = c.stream_id"
            " WHERE s.name = %s",
            (name,),
        ).fetchone() == (1,)


def test_so_many_may_be_open(server: LiveServer) -> None:
    client = server.member("olive")
    talk = start(client)
    begin(server, talk, "m1", "olive")
    with server.sql() as connection:
        connection.execute(
            "INSERT INTO minutebook.continuations (id, tenant, handle, actor, on_behalf_of, stream_id, conversation_id,"
            " envelope_id, account, channel, native, ttl_s, expires_at) SELECT 'many' || n, tenant, 'many' || n, actor,"
            " on_behalf_of, stream_id, conversation_id, 'many' || n, account, channel, native, ttl_s, expires_at"
            " FROM minutebook.continuations, generate_series(1, 999) n WHERE actor = 'human:olive'"
        )
    with pytest.raises(Exception, match="1000 of your background turns"):
        begin(server, talk, "m2", "olive")
    assert begin(server, talk, "m1", "olive").token, "one that is known is answered all the same"


def test_background_survives_restart(own_data_dir: Path) -> None:
    with LiveServer(own_data_dir) as server:
        alice = server.member("alice")
        talk = start(alice)
        done = send(alice, talk, "hello")
        before = ended(alice, done)
        running = send(alice, talk, "!slow 40 50")
        cancelled = send(alice, talk, "never")
        until(lambda: look(alice, running)["status"] == "running", 10, "the turn to run")
        assert alice.delete(f"/v1/continuations/{cancelled}").status_code == 202
        server.kill()
        server.start()
        alice = server.member("alice")
        assert look(alice, done) == before
        assert ended(alice, running)["status"] == "completed"
        assert ended(alice, cancelled)["status"] == "cancelled"
        assert [entry["status"] for entry in history(alice, talk) if entry["role"] == "assistant"] == [
            *("completed", "completed", "interrupted")
        ]


def test_one_end_alone_counts_whoever_is_first(server: LiveServer, alice: httpx.Client) -> None:
    """The record, the unlinking and time race for the same handle: every look says the same."""
    talk, end, who = start(alice), LinkedEnd("hook", "h:" + "0c" * 16), caller()
    seen: dict[str, set[str]] = {}

    async def race(handles: KeyedContinuations) -> None:
        for _ in range(8):
            message_id = ulid_now()
            origin = Origin(who.tenant, "racer", ulid_now(), end)
            token = (await handles.begin(who, talk, envelope_id(identity_of(who), message_id), origin)).token
            say(alice, talk, "hello", messageId=message_id)
            await handles.end_all("default", "racer", end)
            seen[token] = set()

    with_continuations(server, race)
    looks: list[dict[str, Any]] = []
    for token in seen:
        first = alice.get(f"/v1/continuations/{token}")
        if first.status_code == 404:
            continue  # its end came first, and so it was forgotten
        looks.append(ended(alice, token))
    assert all((each["status"], each.get("reason")) == ("cancelled", "unlinked") for each in looks)
