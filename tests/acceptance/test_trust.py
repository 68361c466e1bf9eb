"""SC-7, SC-9, SC-10: a fork is what its source was, a run is of its room, the log stands (rooms.md, Done means)."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest
from append_helpers import expire
from bridges import Bridge, code, item
from live_server import LiveServer, follow, open_room, post
from verbs import verb

KEPT = ("seq", "runId", "actor", "type", "causedBy", "origin", "ts", "redactions", "payload")
"""What a copy keeps of its entry."""

SECRET = "ghp_" + "0123456789abcdefghij0123456789abcdef"
AT = 200
"""Where forks begin that race with others."""


def hashes(client: httpx.Client, room: str, through: int) -> list[str]:
    """SHA-256 over what a copy keeps, of the first entries of a room."""
    params = {"limit": 500, "beforeSeq": through + 1}
    events = client.get(f"/v1/rooms/{room}/events", params=params).json()["events"]
    kept = [{name: event.get(name) for name in KEPT} for event in events]
    return [hashlib.sha256(json.dumps(each, sort_keys=True).encode()).hexdigest() for each in kept]


def test_sc_7_the_hashes_of_a_fork_are_its_sources(server: LiveServer, other: LiveServer) -> None:
    bridge = Bridge(server).hello()
    assert bridge.push(*(item(number) for number in range(1, 21))).status_code == 200
    caused = {**item(21, "message", {"text": f"it was {SECRET}"}), "causedBy": 1}
    assert bridge.push(caused).status_code == 200
    last = post(bridge.alice, bridge.room, "as far as here")
    post(bridge.alice, bridge.room, "not this one")
    bridge.bye()
    alice = other.client("human:alice", "agents-member", "sec")
    made = alice.post(f"/v1/rooms/{bridge.room}/fork", json={"seq": last["seq"]})
    assert made.status_code == 201, made.text
    copy, through = made.json()["id"], last["seq"]
    assert made.json()["forkedFrom"] == {"room": bridge.room, "seq": through, "chain": last["chain"]}
    source = hashes(bridge.alice, bridge.room, through)
    assert len(source) == through
    (said,) = [event for event in bridge.log() if event.get("causedBy") == 1]
    assert said["redactions"], "what a copy keeps is there to be kept"
    assert hashes(alice, copy, through) == source
    (forked,) = [event for event in alice.get(f"/v1/rooms/{copy}/events").json()["events"] if event["seq"] > through]
    assert (forked["payload"]["kind"], forked["payload"]["chain"]) == ("forked_from", last["chain"])
    for room in (bridge.room, copy):
        assert verb("verify", room, "--data-dir", server.data_dir).code == 0


def test_forks_while_the_source_is_written_and_while_it_is_purged(server: LiveServer, other: LiveServer) -> None:
    """By both processes: each fork is whole, or there is none; those that were made stand when the source is gone."""
    bridge = Bridge(server).hello()
    assert bridge.push(*(item(number) for number in range(1, 301))).status_code == 200
    alice = [place.client("human:alice", "agents-member", "sec") for place in (server, other)]
    source, forks = hashes(alice[0], bridge.room, AT), list[str]()

    def fork(place: int) -> httpx.Response:
        return alice[place % 2].post(f"/v1/rooms/{bridge.room}/fork", json={"seq": AT})

    with ThreadPoolExecutor(4) as pool:
        writing = pool.submit(lambda: [bridge.push(item(number)).status_code for number in range(301, 321)])
        for answer in pool.map(fork, range(4)):
            assert answer.status_code == 201, answer.text
            forks.append(answer.json()["id"])
        assert set(writing.result()) == {200}
        closed = alice[0].post(f"/v1/rooms/{bridge.room}/close", json={})
        assert closed.status_code == 200, closed.text
        with server.sql() as superuser:
            expire(superuser, f"room:{bridge.room}")
        making = [pool.submit(fork, place) for place in range(8)]
        purged = verb("retention", "--data-dir", server.data_dir, "--json")
    assert (purged.code, purged.json["ok"]) == (0, True), purged.said
    for answer in (each.result() for each in making):
        assert answer.status_code == 201 or code(answer) == (404, "not_found"), answer.text
        forks += [answer.json()["id"]] if answer.is_success else []
    assert code(fork(0)) == code(fork(1)) == (404, "not_found")
    for place, copy in enumerate(forks):
        assert hashes(alice[place % 2], copy, AT) == source
    assert verb("verify", "--data-dir", server.data_dir).code == 0


def test_sc_9_a_run_is_of_its_room_alone_and_cut_when_it_is_revoked(server: LiveServer, other: LiveServer) -> None:
    foreign = open_room(server.member("alice"))
    bridge = Bridge(server).hello()
    for place in (bridge, bridge.elsewhere(other)):
        url = f"/v1/rooms/{foreign}"
        assert code(place.client.get(url)) == (404, "not_found")
        assert code(place.client.get(f"{url}/events")) == (404, "not_found")
        assert code(place.client.get(f"{url}/stream")) == (404, "not_found")
        assert code(place.client.post(f"{url}/messages", json={"text": "hello"})) == (404, "not_found")
        claimed = server.token(f"agent:{bridge.run_id}", room=foreign, role="implementer")
        hello = place.client.post("/v1/bridge/hello", headers={"authorization": f"Bearer {claimed}"})
        assert hello.status_code in (403, 404, 409), hello.text
    far = bridge.elsewhere(other)
    with far.stream() as down, follow(far.client, bridge.room, tail=0) as stream:
        stream.until("state")
        revoked = bridge.alice.post(f"/v1/runs/{bridge.run_id}/revoke", json={"reason": "it went strange"})
        assert revoked.status_code == 200, revoked.text
        assert stream.rest()[-1].event == "closed"
        assert down.rest()[-1].event == "closed"
    for place in (bridge, far):
        assert code(place.push(item(1))) == (403, "run_not_live")
        assert code(place.ask("e1")) == (403, "run_not_live")
        assert code(place.client.post("/v1/bridge/hello")) == (403, "run_not_live")
    assert server.member("alice").get(f"/v1/rooms/{foreign}").json()["throughSeq"] == 1
    ended = [event["payload"] for event in bridge.log() if event["payload"].get("phase") == "ended"]
    assert [each["reason"] for each in ended] == ["revoked"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE minutebook.events SET payload = '{}'",
        "DELETE FROM minutebook.events",
        "TRUNCATE minutebook.events CASCADE",
        "INSERT INTO minutebook.events SELECT * FROM minutebook.events LIMIT 1",
    ],
)
def test_sc_10_the_servers_role_may_not_change_the_log(server: LiveServer, statement: Any) -> None:
    room = open_room(server.member("alice"))
    with server.sql("app") as app, pytest.raises(psycopg.errors.InsufficientPrivilege) as refusal:
        app.execute(statement)
    assert "permission denied" in str(refusal.value)
    assert server.member("alice").get(f"/v1/rooms/{room}").json()["throughSeq"] == 1
