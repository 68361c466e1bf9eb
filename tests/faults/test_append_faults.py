"""Appends that fail, race and shout: no holes, no strays, no queue behind the wake-ups (B04 B15 B18)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest
from append_helpers import append, creation, event, events, expire, item, one, outcomes, until_blocked
from append_helpers import until as until_true
from appender_helpers import create, row
from fault_steps import Run, checked, end_sessions
from live_server import LiveServer, follow, post
from minutebook.commands.ports import Append
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.pool import make_pool
from verbs import verb
from viewers import log_of

FAILURES = 50
APPENDS = 50
CALLERS = 10
LONG = (pytest.mark.soak, pytest.mark.timeout(900))


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


def insisting(send: Callable[[], httpx.Response]) -> httpx.Response:
    """The answer of a command that is sent again while it is told that too many others write."""
    while (answer := send()).status_code == 503:
        assert answer.json()["detail"].startswith("Others keep changing this room"), answer.text
    return answer


def race(run: Run, clients: list[httpx.Client], pool: ThreadPoolExecutor, by: str, after: int) -> tuple[int, int]:
    """Fifty appends of ten callers, and a closing once `after` of them are answered; how many were stored and refused.

    by: "run" lets the room's run push in the place of one caller.
    """
    start, answered = threading.Barrier(CALLERS + 1), threading.Semaphore(0)

    def append_five(place: int) -> list[httpx.Response]:
        start.wait()
        answers: list[httpx.Response] = []
        for number in range(APPENDS // CALLERS):
            if by == "run" and place == 0:
                answers.append(insisting(lambda: run.push(2)))
            else:
                url, text = f"/v1/rooms/{run.room}/messages", {"text": f"{place} {number}"}
                answers.append(insisting(lambda url=url, text=text: clients[place].post(url, json=text)))
            answered.release()
        return answers

    jobs = [pool.submit(append_five, place) for place in range(CALLERS)]
    start.wait()
    for _ in range(after):
        assert answered.acquire(timeout=20)
    closed = insisting(lambda: clients[CALLERS].post(f"/v1/rooms/{run.room}/close"))
    assert closed.status_code == 200, closed.text
    answers = [answer for job in jobs for answer in job.result()]
    log = log_of(clients[0], run.room)
    end = len(log)
    assert [each["seq"] for each in log] == list(range(1, end + 1))
    assert log[-1]["payload"]["phase"] == "closed"
    said = [answer for answer in answers if answer.status_code == 201]
    for answer in said:
        assert answer.json()["seq"] < end
    assert len([each for each in log if each["type"] == "message"]) == len(said)
    assert len([each for each in log if each["origin"] == "harness"]) == run.sent
    for answer in answers:
        assert answer.status_code in (200, 201, 403, 410), answer.text  # 403: the run is over
    stored = len([answer for answer in answers if answer.is_success])
    return stored, len(answers) - stored


@pytest.fixture(scope="module")
def other(server: LiveServer) -> Iterator[LiveServer]:
    """A second process on the same database, which knows of the first one's commands only by the log."""
    with LiveServer(server.data_dir, arguments=["--role", "http"]) as live:
        yield live


@pytest.mark.parametrize("by", ["api", "run"])
@pytest.mark.parametrize(("rounds", "history"), [(25, 0), pytest.param(200, 1000, marks=LONG)])
def test_b15_fifty_appends_race_with_the_closing(
    server: LiveServer, other: LiveServer, by: str, rounds: int, history: int
) -> None:
    """Each was stored before the closing, or refused with a 4xx that says why; half of them through another process."""
    random_ = random.Random(15)  # noqa: S311
    stored = refused = 0
    with ThreadPoolExecutor(CALLERS) as pool:
        clients = [(server, other)[place % 2].member("alice") for place in range(CALLERS + 1)]
        for number in range(rounds):
            run = Run(server, (15_000 if by == "api" else 16_000) + number)
            for _ in range(history // 500):
                assert run.push(500).status_code == 200
            counts = race(run, clients, pool, by, random_.randrange(APPENDS - CALLERS))
            stored, refused = stored + counts[0], refused + counts[1]
    assert min(stored, refused) > rounds * APPENDS / 20, (stored, refused)
    checked(server)


@pytest.mark.parametrize(("rounds", "history"), [(5, 300), pytest.param(200, 1000, marks=LONG)])
def test_b15_purging_races_with_appends_and_folds(server: LiveServer, rounds: int, history: int) -> None:
    """Rooms that expired go while others still try to write into them, one of them past the rules of rooms, and the
    projectors still fold them."""
    alice = server.member("alice")
    clients = [server.member("alice") for _ in range(5)]
    with server.sql() as superuser, server.sql("app") as app, ThreadPoolExecutor(6) as pool:
        for number in range(rounds):
            run = Run(server, 17_000 + number)
            while run.sent < history:
                assert run.push(min(500, history - run.sent)).status_code == 200
            alice.post(f"/v1/rooms/{run.room}/close")
            stream = f"room:{run.room}"
            head = one(superuser, "SELECT version FROM minutebook.streams WHERE name = %s", stream)
            stream_id = expire(superuser, stream)

            def say(client: httpx.Client, room: str = run.room) -> list[httpx.Response]:
                return [client.post(f"/v1/rooms/{room}/messages", json={"text": "late"}) for _ in range(8)]

            def force(stream: str = stream, head: int = head) -> set[str]:
                return {append(app, item(head, event(), stream=stream))[0].outcome for _ in range(10)}

            jobs = [pool.submit(say, client) for client in clients]
            forcing = pool.submit(force)
            done = verb("retention", "--json", "--data-dir", server.data_dir)
            assert done.code == 0, done
            for answer in (answer for job in jobs for answer in job.result()):
                assert answer.status_code in (404, 410), answer.text
            assert forcing.result() <= {"sealed", "conflict"}
            assert one(superuser, "SELECT count(*) FROM minutebook.streams WHERE id = %s", stream_id) == 0
            for table in ("minutebook.events", "minutebook_views.transcript", "minutebook_views.room_list"):
                assert one(superuser, f"SELECT count(*) FROM {table} WHERE stream_id = %s", stream_id) == 0, table
            assert run.client.get(f"/v1/rooms/{run.room}/stream", headers={"last-event-id": "1"}).status_code == 404
        strays = "SELECT count(*) FROM minutebook.events e LEFT JOIN minutebook.streams s ON s.id = e.stream_id"
        assert one(superuser, f"{strays} WHERE s.id IS NULL") == 0
    checked(server)


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


def compare(database: Any, callers: int, seconds: float, rounds: int) -> tuple[float, float, float]:
    """The rate with wake-ups as a part of the rate without, as the median over pairs one after the other; and the 99th
    percentile of a commit's wait with and without, in seconds, as the medians."""

    async def body() -> list[tuple[float, float, float]]:
        pairs: list[tuple[float, float, float]] = []
        for number in range(rounds):
            loud, loud_p99 = await rate(database, notify=True, callers=callers, seconds=seconds, tag=f"on{number}c")
            quiet, p99 = await rate(database, notify=False, callers=callers, seconds=seconds, tag=f"of{number}c")
            pairs.append((loud / quiet, loud_p99, p99))
        return pairs

    with contextlib.ExitStack() as stack:
        for _ in range(2):
            listening = stack.enter_context(database.connect("app"))
            listening.execute("LISTEN minutebook")
        ratios, with_, without = zip(*asyncio.run(body()), strict=True)
    return statistics.median(ratios), statistics.median(with_), statistics.median(without)


def test_b18_wake_ups_cost_little_with_32_writers(database: Any) -> None:
    ratio, *_ = compare(database, callers=32, seconds=1.0, rounds=3)
    assert ratio >= 0.7, ratio


@pytest.mark.soak
@pytest.mark.parametrize("callers", [1, 8, 32])
def test_b18_wake_ups_cost_little_for_half_a_minute(
    database: Any, callers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    ratio, with_, without = compare(database, callers=callers, seconds=10, rounds=3)
    with capsys.disabled():
        p99 = f"p99 of a commit {with_ * 1e3:.1f} ms with them, {without * 1e3:.1f} ms without"
        sys.stderr.write(f"\nwake-ups, {callers} writers: {ratio:.0%} of the rate without; {p99}\n")
    assert ratio >= (0.7 if callers == 32 else 0.5), ratio
