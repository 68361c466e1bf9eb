"""Appends that fail, race and shout: no holes, no strays, no queue behind the wake-ups (B04 B15 B18)."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest
from append_helpers import append, creation, event, events, expire, item, one, outcomes, until_blocked
from append_helpers import until as until_true
from appender_helpers import create, row
from fault_steps import Run, end_sessions
from live_server import LiveServer, follow, post
from minutebook.commands.ports import Append
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.pool import make_pool
from verbs import verb

FAILURES = 50


def fail(server: LiveServer, stream: str, head: int, kind: str) -> None:
    """One append that took its number, in a session of its own, and is gone."""
    with server.sql("app") as app, server.sql() as superuser:
        match kind:
            case "conflict":
                assert outcomes(append(app, item(head - 1, event(), stream=stream))) == ["conflict"]
            case "constraint":
                with pytest.raises(psycopg.Error):
                    append(app, item(head, event(), event(None, p=None), stream=stream))
            case "rolled back":
                app.autocommit = False
                assert outcomes(append(app, item(head, *events(3), stream=stream))) == ["appended"]
                app.rollback()
            case "statement timeout":
                app.execute("SET statement_timeout = '30ms'")
                with superuser.transaction():
                    superuser.execute("SELECT FROM minutebook.streams WHERE name = %s FOR UPDATE", (stream,))
                    with pytest.raises(psycopg.errors.QueryCanceled):
                        append(app, item(head, event(), stream=stream))
            case _:
                app.autocommit = False
                assert outcomes(append(app, item(head, event(), stream=stream))) == ["appended"]
                assert end_sessions(superuser, f"pid = {app.info.backend_pid}") == 1
                with pytest.raises(psycopg.OperationalError):
                    app.execute("SELECT 1")


def test_b04_fifty_appends_that_failed_leave_no_hole(server: LiveServer, alice: httpx.Client, room: str) -> None:
    kinds = ("conflict", "constraint", "rolled back", "statement timeout", "killed")
    stream = f"room:{room}"
    with follow(alice, room) as viewer:
        viewer.events(1)
        for number in range(FAILURES):
            fail(server, stream, 1, kinds[number % len(kinds)])
        began = time.monotonic()
        assert post(alice, room, "a good one")["seq"] == 2
        assert viewer.events(2)[-1]["payload"]["text"] == "a good one"
        lines = alice.get(f"/v1/rooms/{room}/transcript", params={"minSeq": 2}).json()["lines"]
        assert [line["seq"] for line in lines] == [1, 2]
        rebuilt = verb("rebuild", "transcript", "--json", "--data-dir", server.data_dir)
        assert rebuilt.code == 0, rebuilt
        assert time.monotonic() - began < 5
    lines = alice.get(f"/v1/rooms/{room}/transcript", params={"minSeq": 2}).json()["lines"]
    assert [line["seq"] for line in lines] == [1, 2]
    assert verb("verify", room, "--data-dir", server.data_dir).code == 0


@pytest.mark.parametrize("by", ["api", "run"])
def test_b15_fifty_appends_race_with_the_closing(server: LiveServer, by: str) -> None:
    """Each was stored before the closing, or refused with a 4xx that says why."""
    with ThreadPoolExecutor(13) as pool:
        clients = [server.member("alice") for _ in range(12)]
        for number in range(6):
            run = Run(server, 1500 + number + (50 if by == "run" else 0))
            barrier = threading.Barrier(13)

            def say(place: int, room: str = run.room, barrier: threading.Barrier = barrier) -> list[httpx.Response]:
                barrier.wait()
                url = f"/v1/rooms/{room}/messages"
                return [clients[place].post(url, json={"text": f"{place} {n}"}) for n in range(4)]

            def push(run: Run = run, barrier: threading.Barrier = barrier) -> list[httpx.Response]:
                barrier.wait()
                return [run.push(2) for _ in range(4)]

            jobs = [pool.submit(say, place) for place in range(1, 12)]
            jobs.append(pool.submit(push) if by == "run" else pool.submit(say, 0))
            barrier.wait()
            closed = clients[0].post(f"/v1/rooms/{run.room}/close")
            assert closed.status_code == 200, closed.text
            answers = [answer for job in jobs for answer in job.result()]
            log = clients[0].get(f"/v1/rooms/{run.room}/events", params={"limit": 500}).json()["events"]
            end = log[-1]["seq"]
            assert [each["seq"] for each in log] == list(range(1, end + 1))
            assert log[-1]["payload"]["phase"] == "closed"
            stored = [each["payload"]["text"] for each in log if each["type"] == "message"]
            said = [answer for answer in answers if answer.status_code == 201]
            assert len(stored) == len(said)
            for answer in said:
                assert answer.json()["seq"] < end
            for answer in answers:
                assert answer.status_code in (200, 201, 403, 409, 410), answer.text  # 403: the run is over


def test_b15_purging_races_with_appends_and_folds(server: LiveServer) -> None:
    """Rooms that expired go while others still try to write into them and the projectors still fold them."""
    alice = server.member("alice")
    with server.sql() as superuser, ThreadPoolExecutor(8) as pool:
        for number in range(5):
            run = Run(server, 1600 + number)
            assert run.push(300).status_code == 200
            alice.post(f"/v1/rooms/{run.room}/close")
            stream_id = expire(superuser, f"room:{run.room}")
            clients = [server.member("alice") for _ in range(7)]

            def say(client: httpx.Client, room: str = run.room) -> list[httpx.Response]:
                return [client.post(f"/v1/rooms/{room}/messages", json={"text": "late"}) for _ in range(7)]

            jobs = [pool.submit(say, client) for client in clients]
            done = verb("retention", "--json", "--data-dir", server.data_dir)
            assert done.code == 0, done
            for answer in (answer for job in jobs for answer in job.result()):
                assert answer.status_code in (404, 409, 410), answer.text
            assert one(superuser, "SELECT count(*) FROM minutebook.streams WHERE id = %s", stream_id) == 0
            for table in ("minutebook.events", "minutebook_views.transcript", "minutebook_views.room_list"):
                assert one(superuser, f"SELECT count(*) FROM {table} WHERE stream_id = %s", stream_id) == 0, table
        strays = "SELECT count(*) FROM minutebook.events e LEFT JOIN minutebook.streams s ON s.id = e.stream_id"
        assert one(superuser, f"{strays} WHERE s.id IS NULL") == 0


def test_b15_a_purge_waits_for_a_first_fold_under_way(server: LiveServer, alice: httpx.Client) -> None:
    """The projector has never seen the stream and stands before its commit; the purge must take its rows along."""
    with server.sql() as holder, server.sql() as look, ThreadPoolExecutor(1) as pool:
        holder.autocommit = False
        with server.sql("app") as app:
            next_id = one(look, "SELECT last_value FROM minutebook.streams_id_seq") + 1
            # The row that the fold will write is held by somebody else, so that the fold waits before its commit.
            holder.execute(
                "INSERT INTO minutebook_views.transcript (stream_id, seq, ts, type, actor, classes, heading, body)"
                " VALUES (%s, 1, now(), '', '', '{}', '', '')",
                (next_id,),
            )
            held = "room:heldheld"
            assert outcomes(append(app, creation(*events(2), stream=held))) == ["appended"]
            assert one(look, "SELECT id FROM minutebook.streams WHERE name = %s", held) == next_id
            assert outcomes(append(app, item(2, stream=held, seal=True))) == ["appended"]
        folding = (
            "SELECT count(*) > 0 FROM pg_stat_activity"
            " WHERE application_name = 'minutebook projector' AND wait_event_type = 'Lock'"
        )
        until_true(look, folding)
        expire(look, held)
        with server.sql("retention") as retention:
            purge = pool.submit(one, retention, "SELECT minutebook.purge_stream_v1(%s)", next_id)
            until_blocked(look, retention.info.backend_pid)
            holder.rollback()
            assert purge.result(timeout=20) == 2
        for table in ("transcript", "checkpoints", "room_list"):
            strays = one(look, f"SELECT count(*) FROM minutebook_views.{table} WHERE stream_id = %s", next_id)
            assert strays == 0, table


async def rate(database: Any, *, notify: bool, callers: int, seconds: float, tag: str) -> tuple[float, float]:
    """Appends a second of callers who each write to a room of their own, and the 99th percentile of their waits."""
    pool = make_pool(database.url(), "app", max_size=2, min_size=2, statement_timeout_ms=20_000)
    await pool.open(wait=True)
    appender = Appender(pool, notify=notify)
    appender.start()
    took: list[float] = []
    deadline = time.monotonic() + seconds

    async def call(number: int) -> None:
        name = f"room:{tag}{number:03}"
        assert (await appender.append([create(name)]))[0].kind == "appended"
        seq = 1
        while (began := time.monotonic()) < deadline:
            (outcome,) = await appender.append([Append(name, seq, [row()])])
            assert outcome.kind == "appended"
            seq += 1
            took.append(time.monotonic() - began)

    try:
        await asyncio.gather(*(call(number) for number in range(callers)))
    finally:
        await appender.close()
        await pool.close()
    return len(took) / seconds, sorted(took)[int(len(took) * 0.99)]


def compare(database: Any, callers: int, seconds: float, rounds: int) -> float:
    """The rate with wake-ups as a part of the rate without, as the median over pairs one after the other."""

    async def body() -> list[float]:
        ratios: list[float] = []
        for number in range(rounds):
            loud, _ = await rate(database, notify=True, callers=callers, seconds=seconds, tag=f"on{number}c")
            quiet, _ = await rate(database, notify=False, callers=callers, seconds=seconds, tag=f"of{number}c")
            ratios.append(loud / quiet)
        return ratios

    with contextlib.ExitStack() as stack:
        for _ in range(2):
            listening = stack.enter_context(database.connect("app"))
            listening.execute("LISTEN minutebook")
        return statistics.median(asyncio.run(body()))


def test_b18_wake_ups_cost_little_with_32_writers(database: Any) -> None:
    ratio = compare(database, callers=32, seconds=1.0, rounds=3)
    assert ratio >= 0.7, ratio


@pytest.mark.bench
@pytest.mark.parametrize("callers", [1, 8, 32])
def test_b18_wake_ups_cost_little_for_long(database: Any, callers: int) -> None:
    ratio = compare(database, callers=callers, seconds=10, rounds=3)
    assert ratio >= (0.7 if callers == 32 else 0.5), ratio
