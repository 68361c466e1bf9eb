"""Who gets a room's lease, who is turned away, and what a displaced bridge can still do: nothing (rooms.md, Runs)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from append_helpers import one
from bridges import Bridge, code, frames, item, new_run_id
from live_server import LiveServer, open_room, until

LIMIT = {"kind": "limit", "limit": "concurrent_run"}


def age(server: LiveServer, bridge: Bridge, seconds: int) -> None:
    """Let time pass for the lease of a room: the stored moment is moved, never the clock."""
    with server.sql() as superuser:
        superuser.execute(
            "UPDATE minutebook.leases l SET seen_at = seen_at - make_interval(secs => %s)"
            " FROM minutebook.streams s WHERE s.id = l.stream_id AND s.name = %s",
            (seconds, f"room:{bridge.room}"),
        )


def kinds(bridge: Bridge) -> list[Any]:
    """What the log says, in a word or two an event."""
    words = [("kind", "phase", "reason", "change", "limit")] * 100
    return [
        " ".join(str(event["payload"][name]) for name in names if name in event["payload"])
        for names, event in zip(words, bridge.log(), strict=False)
    ]


def test_the_first_hello_makes_the_run_the_running_one_and_later_ones_only_take_the_lease(server: LiveServer) -> None:
    bridge = Bridge(server, role="tester").hello()
    first = bridge.lease
    assert bridge.push(item(1), item(2), item(1, stream="status")).status_code == 200
    answer = bridge.client.post("/v1/bridge/hello").json()
    assert (answer["roomId"], answer["afterHarnessSeq"], answer["afterStatusSeq"]) == (bridge.room, 2, 1)
    assert int(answer["lease"]) > int(first)
    log = bridge.log()
    assert [event["type"] for event in log[1:3]] == ["participant", "state_changed"]
    assert log[1]["payload"]["role"] == "tester"
    assert len(log) == 6


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, {"forge.pr": "human", "forge.push": "allow", "mcp.write": "human"}),
        ({"profile": "unattended"}, {"forge.pr": "allow", "forge.other": "deny", "mcp.write": "deny"}),
        ({"profile": "attended", "overrides": {"shell.high": "deny"}}, {"shell.high": "deny", "forge.pr": "human"}),
    ],
)
def test_hello_says_what_each_class_comes_to_in_this_room(server: LiveServer, policy: Any, expected: Any) -> None:
    room = open_room(server.member("alice"), **({"approvals": policy} if policy else {}))
    answer = Bridge(server, room).client.post("/v1/bridge/hello").json()["approvals"]
    assert answer["profile"] == policy.get("profile", "attended")
    assert len(answer["classes"]) == 5
    assert answer["classes"] | expected == answer["classes"]


def test_each_contender_is_turned_away_with_one_event_however_often_it_tries(server: LiveServer) -> None:
    first = Bridge(server).hello()
    contenders = [Bridge(server, first.room), Bridge(server, first.room)]
    for _ in range(3):
        for contender in contenders:
            answer = contender.client.post("/v1/bridge/hello")
            assert code(answer) == (409, "room_busy")
            assert answer.json()["holder"] == f"agent:{first.run_id}"
    turned_away = [event["payload"] for event in first.log() if event["payload"].get("kind") == "limit"]
    assert turned_away == [{**LIMIT, "runId": contender.run_id} for contender in contenders]
    assert first.push(item(1)).status_code == 200
    assert code(contenders[0].push(item(1), lease="1")) == (403, "run_not_live")


def test_a_bye_lets_the_next_one_in_at_once(server: LiveServer) -> None:
    first = Bridge(server).hello()
    second = Bridge(server, first.room)
    assert code(second.client.post("/v1/bridge/hello")) == (409, "room_busy")
    assert first.bye("stuck").status_code == 200
    second.hello()
    assert code(first.bye()) == (409, "already_ended")
    assert code(first.client.post("/v1/bridge/hello")) == (403, "run_not_live")
    assert "run_phase ended stuck" in kinds(first)


@pytest.mark.parametrize("how", ["end", "revoke"])
def test_a_run_that_others_ended_does_not_hold_the_room_though_its_lease_is_young(server: LiveServer, how: str) -> None:
    first = Bridge(server).hello()
    answer = first.alice.post(f"/v1/runs/{first.run_id}/{how}", json={} if how == "revoke" else {"reason": "stuck"})
    assert answer.status_code == 200, answer.text
    second = Bridge(server, first.room).hello()
    assert second.push(item(1)).status_code == 200
    for attempt in (first.push(item(1)), first.client.post("/v1/bridge/hello"), first.ask("e1")):
        assert code(attempt) == (403, "run_not_live")
    assert not [word for word in kinds(first) if word.startswith("limit")]


def test_a_dead_holder_blocks_for_two_minutes_and_is_lost_then(server: LiveServer) -> None:
    first = Bridge(server).hello()
    started = {"runId": first.run_id, "turnId": "t1", "phase": "started"}
    assert first.push(item(1, "turn", started)).status_code == 200
    second = Bridge(server, first.room)
    age(server, first, 110)
    assert code(second.client.post("/v1/bridge/hello")) == (409, "room_busy")
    age(server, first, 110)
    second.hello()
    said = kinds(first)
    assert said[-5:] == ["failed", "run_phase ended lost", "left", "joined", "run_phase running"]
    assert code(first.push(item(2))) == (403, "run_not_live")


def test_every_batch_and_every_empty_one_renews_the_lease(server: LiveServer) -> None:
    first = Bridge(server).hello()
    second = Bridge(server, first.room)
    for items in ((), (item(1),)):
        age(server, first, 110)
        assert first.push(*items).status_code == 200
        age(server, first, 15)
        assert code(second.client.post("/v1/bridge/hello")) == (409, "room_busy")


def test_law_25_a_displaced_bridge_of_the_same_run_appends_nothing_in_any_way(server: LiveServer) -> None:
    zombie = Bridge(server).hello()
    assert zombie.push(item(1)).status_code == 200
    with zombie.stream() as stream:
        newest = Bridge(server, zombie.room, zombie.run_id).hello()
        began = time.monotonic()
        assert frames(stream, 1) == [("closed", {"reason": "lease_lost"})]
        assert time.monotonic() - began < 2
        assert list(stream.rest()) == []
    before = len(zombie.log())
    attempts: list[httpx.Response] = [
        zombie.push(item(2)),
        zombie.push(),
        zombie.ask("e1"),
        zombie.bye(),
        zombie.client.get("/v1/bridge/stream", params={"lease": zombie.lease}),
    ]
    assert [code(attempt) for attempt in attempts] == [(409, "lease_lost")] * 5
    assert len(zombie.log()) == before
    assert newest.push(item(2)).status_code == 200


def test_a_lease_that_is_lost_while_a_batch_waits_refuses_the_batch(server: LiveServer) -> None:
    """The batch was decided under the old lease and stands behind the hello that takes it: the append tells."""
    old = Bridge(server).hello()
    new = Bridge(server, old.room, old.run_id)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND usename = 'minutebook_app'"
    with server.sql() as holder, server.sql() as look, ThreadPoolExecutor(2) as pool:
        holder.autocommit = False
        holder.execute("SELECT FROM minutebook.streams WHERE name = %s FOR UPDATE", (f"room:{old.room}",))
        taking = pool.submit(new.hello)
        until(lambda: one(look, waiting) == 1, what="the hello")
        pushing = pool.submit(old.push, *[item(n) for n in range(1, 51)])
        until(lambda: one(look, waiting) == 2, what="the batch")
        holder.rollback()
        assert code(pushing.result()) == (409, "lease_lost")
        taking.result()
    assert len(old.log()) == 3
    pushed = new.push(*[item(n) for n in range(1, 51)]).json()
    assert (pushed["afterHarnessSeq"], pushed["afterStatusSeq"]) == (50, 0)


def test_a_lease_that_is_none_is_named(server: LiveServer) -> None:
    bridge = Bridge(server).hello()
    for lease in ("0", "x", "-1", "1 "):
        answer = bridge.client.post("/v1/bridge/bye", json={}, params={"lease": lease})
        assert code(answer) == (422, "invalid")
        assert answer.json()["errors"][0]["path"] == "lease"


def test_a_run_says_hello_in_its_own_room_only(server: LiveServer) -> None:
    bridge = Bridge(server).hello()
    elsewhere = Bridge(server, open_room(bridge.alice), bridge.run_id)
    assert code(elsewhere.client.post("/v1/bridge/hello")) == (403, "run_not_live")
    assert len(elsewhere.log()) == 1
    assert bridge.push(item(1)).status_code == 200


def test_a_closed_room_takes_no_run(server: LiveServer) -> None:
    bridge = Bridge(server)
    assert bridge.alice.post(f"/v1/rooms/{bridge.room}/close").status_code == 200
    assert code(bridge.client.post("/v1/bridge/hello")) == (410, "sealed")


def test_ten_requests_of_a_run_may_be_under_way(server: LiveServer) -> None:
    bridge = Bridge(server, run_id=new_run_id()).hello()
    streams = [bridge.stream() for _ in range(10)]
    opened = [stream.__enter__() for stream in streams]
    try:
        for stream in opened:
            assert stream.next().event == "retry"
        for answer in (bridge.push(item(1)), bridge.client.get("/v1/bridge/stream")):
            assert code(answer) == (429, "rate_limited")
            assert answer.headers["retry-after"] == "1"
        Bridge(server).hello()
    finally:
        for stream in streams:
            stream.__exit__(None, None, None)
