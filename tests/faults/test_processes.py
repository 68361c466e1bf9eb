"""Several processes and other people's transactions: lost answers, a hot stream shared, half batches, held locks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from append_helpers import append, events, item, one
from fault_steps import Run, behind_a_wire, folded
from live_server import LiveServer, follow, open_room, post, until
from minutebook.infra.postgres import doctor as doctor_module
from verbs import verb
from viewers import Writer, assert_once, log_of

APPENDING = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'minutebook app' AND query LIKE '%%minutebook.append%%'"
)


def texts(client: httpx.Client, room: str) -> list[str]:
    return [event["payload"]["text"] for event in log_of(client, room) if event["type"] == "message"]


def test_a_lost_answer_is_no_conflict_and_no_second_message(data_dir: Path) -> None:
    """Without an idempotency key: the commit's answer is lost on the wire, and somebody else appends before the server
    looks again. The caller gets a 201 with their own message's seq; a genuine conflict is decided anew."""
    with behind_a_wire(data_dir) as (server, wire):
        alice = server.member("alice")
        room = open_room(alice)
        assert post(alice, room, "first")["seq"] == 2

        def others() -> None:
            with server.sql("app") as app:
                assert append(app, item(3, *events(2), stream=f"room:{room}"))[0].outcome == "appended"

        wire.lose("the unlucky one", others)
        answer = post(alice, room, "the unlucky one")
        assert wire.lost == 1
        log = log_of(alice, room)
        assert [event["seq"] for event in log] == [1, 2, 3, 4, 5]
        assert (answer["seq"], answer["id"]) == (3, log[2]["id"])
        assert texts(alice, room).count("the unlucky one") == 1
        # Somebody else was first, and nothing was lost: that is a conflict, which costs the caller nothing.
        with server.sql("app") as app:
            append(app, item(5, *events(1), stream=f"room:{room}"))
        assert post(alice, room, "after a conflict")["seq"] == 7
        run = Run(server, 9101, room)
        batch = run.batch(3, 10)
        wire.lose("harness_event")
        assert run.push(3, 10).status_code == 200
        assert wire.lost == 2
        again = run.client.post("/v1/bridge/events", json=batch)
        assert again.json()["afterHarnessSeq"] == 3
        assert len([event for event in log_of(alice, room) if event["origin"] == "harness"]) == 3
        assert verb("verify", room, "--data-dir", data_dir).code == 0


def test_two_processes_on_one_hot_stream_both_make_progress(data_dir: Path) -> None:
    """Each has eight callers for one room; conflicts cost rounds, but no caller more than a few answers of 503."""
    with LiveServer(data_dir) as first, LiveServer(data_dir, arguments=["--role", "http"]) as second:
        room = open_room(first.member("alice"))
        token = first.token("human:alice", "agents-member")

        async def body() -> list[list[Writer]]:
            deadline = time.monotonic() + 2
            sides = [
                [Writer(lambda server=server: server.url, room, token, f"{name}{n}") for n in range(8)]
                for server, name in ((first, "a"), (second, "b"))
            ]
            async with asyncio.TaskGroup() as group:
                for writer in (writer for side in sides for writer in side):
                    group.create_task(writer.talk(lambda: time.monotonic() > deadline))
            for writer in (writer for side in sides for writer in side):
                await writer.close()
            return sides

        sides = asyncio.run(body())
        assert_once(log_of(first.member("alice"), room), *sides[0], *sides[1])
        counts = [[len(writer.acknowledged) for writer in side] for side in sides]
        assert min(min(side) for side in counts) > 10, counts
        assert min(map(sum, counts)) > max(map(sum, counts)) / 20, counts
        retries = sum(writer.retries for side in sides for writer in side)
        assert retries < sum(map(sum, counts)) / 20, (retries, counts)


def test_two_processes_on_one_hot_stream_store_each_command_once(data_dir: Path) -> None:
    """Without idempotency keys: an answer of 201 is in the log once, at its seq; what was refused is not in it."""
    with LiveServer(data_dir) as first, LiveServer(data_dir, arguments=["--role", "http"]) as second:
        room = open_room(first.member("alice"))
        callers = [(first, second)[place % 2].member("alice") for place in range(16)]

        def say(place: int) -> dict[str, httpx.Response]:
            url = f"/v1/rooms/{room}/messages"
            return {f"{place} {n}": callers[place].post(url, json={"text": f"{place} {n}"}) for n in range(30)}

        with ThreadPoolExecutor(len(callers)) as pool:
            answers = {text: answer for each in pool.map(say, range(len(callers))) for text, answer in each.items()}
        log = log_of(callers[0], room)
        said = {text: answer.json()["seq"] for text, answer in answers.items() if answer.status_code == 201}
        assert {answer.status_code for answer in answers.values()} <= {201, 503}
        assert len(said) > len(answers) * 0.9
        assert {event["payload"]["text"]: event["seq"] for event in log[1:]} == said
        assert len(log) == 1 + len(said)


@pytest.mark.parametrize("moment", ["while the batch is sent", "while it waits for a lock"])
def test_a_process_that_stops_in_mid_batch_leaves_no_half_batch(data_dir: Path, moment: str) -> None:
    """Stopped, then killed. What the database had whole is stored whole, what it had in part is not stored at all."""
    with LiveServer(data_dir) as server:
        run = Run(server, 9201)
        with server.sql() as holder, server.sql() as look, ThreadPoolExecutor(1) as pool:
            if moment == "while it waits for a lock":
                holder.autocommit = False
                holder.execute("SELECT FROM minutebook.streams WHERE name = %s FOR UPDATE", (f"room:{run.room}",))
                pushing = pool.submit(attempt, run, 100, 2_000)
                until(lambda: bool(look.execute(APPENDING + " AND wait_event_type = 'Lock'").fetchall()))
                server.process.send_signal(signal.SIGSTOP)
                server.process.kill()
                holder.rollback()
                expected = {3, 103}
            else:
                # Its sessions do not read on, so that the batch is larger than what fits between the two.
                sessions = look.execute(
                    "SELECT pid FROM pg_stat_activity WHERE application_name = 'minutebook app'"
                ).fetchall()
                for (pid,) in sessions:
                    os.kill(pid, signal.SIGSTOP)
                try:
                    pushing = pool.submit(attempt, run, 100, 15_000)
                    until(lambda: server.metric("commands_in_flight") == 1, what="the batch")
                    server.process.send_signal(signal.SIGSTOP)
                    server.process.kill()
                    server.process.wait(15)
                finally:
                    for (pid,) in sessions:
                        os.kill(pid, signal.SIGCONT)
                expected = {3}
            assert pushing.result() is None
            server.kill()
            gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'minutebook app'"
            until(lambda: one(look, gone) == 0, what="the end of its sessions")
            version = one(look, "SELECT version FROM minutebook.streams WHERE name = %s", f"room:{run.room}")
            assert version in expected
        server.start()
        owner = server.member("alice")
        assert [event["seq"] for event in log_of(owner, run.room)] == list(range(1, version + 1))
        bridge = rejoined(server, run)
        again = bridge.post("/v1/bridge/events", json=run.batch(100, 2_000 if 103 in expected else 15_000))
        assert again.status_code == 200, again.text
        assert len(log_of(owner, run.room)) == 103
        assert verb("verify", run.room, "--data-dir", data_dir).code == 0


def attempt(run: Run, count: int, filler: int) -> httpx.Response | None:
    """A push whose server may be gone before it answers."""
    with contextlib.suppress(httpx.TransportError):
        return run.client.post("/v1/bridge/events", json=run.batch(count, filler))
    return None


def rejoined(server: LiveServer, run: Run) -> httpx.Client:
    """The same run's bridge at the next process."""
    client = server.client()
    client.headers["authorization"] = run.client.headers["authorization"]
    hello = client.post("/v1/bridge/hello")
    assert hello.status_code == 200, hello.text
    run.lease = hello.json()["lease"]
    return client


def test_law_2_a_transaction_held_open_by_others_delays_only_the_audit_feed(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote somewhere else and is not ended; doctor names it, and the feed goes on when it is gone."""
    monkeypatch.setattr(doctor_module, "OLD_S", 0)
    with LiveServer(data_dir, config="[database]\nauditFeed = true\n") as server:
        alice = server.member("alice")
        room = open_room(alice)
        with server.sql() as stranger, server.sql("app") as app, follow(alice, room) as stream:
            stream.events(1)
            fed = "SELECT minutebook.feed_advance_v1()"
            until(lambda: one(app, fed) == 1, what="the feed")
            folded(alice, room, 1)
            stranger.autocommit = False
            stranger.execute("CREATE TABLE public.somebody_elses (n integer)")
            pid = stranger.info.backend_pid
            took: list[float] = []
            for seq in range(2, 22):
                began = time.monotonic()
                post(alice, room, f"{seq}")
                assert stream.events(seq)[-1]["seq"] == seq
                lines = alice.get(f"/v1/rooms/{room}/transcript", params={"minSeq": seq, "limit": 1})
                assert lines.status_code == 200
                took.append(time.monotonic() - began)
            assert sorted(took)[len(took) // 2] < 0.25, took
            assert one(app, fed) == 1
            done = verb("doctor", "--json", "--data-dir", data_dir)
            checks: dict[str, Any] = {check["name"]: check for check in done.json["checks"]}
            assert not checks["transactions"]["ok"]
            assert f"pid {pid} " in checks["transactions"]["detail"]
            stranger.rollback()
            until(lambda: one(app, fed) == 21, what="the feed")


def test_one_of_two_processes_killed_holds_up_nobody(data_dir: Path) -> None:
    """The other one's viewers and commands go on at once, also on the room that the dead one was writing to."""
    with LiveServer(data_dir) as first, LiveServer(data_dir, arguments=["--role", "http"]) as second:
        room = open_room(first.member("alice"))
        alice = second.member("alice")
        with follow(alice, room) as stream, ThreadPoolExecutor(4) as pool:
            stream.events(1)
            writer = first.member("alice")
            jobs = [pool.submit(say_until_gone, writer, room, n) for n in range(4)]
            until(lambda: alice.get(f"/v1/rooms/{room}").json()["throughSeq"] > 40, what="some messages")
            first.process.kill()
            said = [text for job in jobs for text in job.result()]
            began = time.monotonic()
            head = post(alice, room, "still here")["seq"]
            stream.events(head)
            assert time.monotonic() - began < 2
        stored = texts(alice, room)
        assert len(stored) == len(set(stored))
        assert set(said) <= set(stored)
        assert psutil.pid_exists(second.process.pid)


def say_until_gone(client: httpx.Client, room: str, name: int) -> list[str]:
    """Messages that were acknowledged before the server went."""
    said: list[str] = []
    with contextlib.suppress(httpx.TransportError):
        while True:
            post(client, room, f"{name} {len(said)}")
            said.append(f"{name} {len(said)}")
    return said
