"""Rebuild while events come and go, killed at each step, twice at once (B77); a projector killed in mid-batch."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest
from append_helpers import append, creation, events, expire, item, one
from append_helpers import until as until_true
from fault_steps import Run, checked, folded, projector_of
from live_server import LiveServer, open_room, post, until
from minutebook.infra.postgres.rebuild import RebuildError, rebuild
from minutebook.infra.postgres.views import PROJECTIONS

KILL = """
import os, signal, sys
from minutebook.infra.postgres.rebuild import rebuild
from minutebook.infra.postgres.views import PROJECTIONS
url, name, step = sys.argv[1:]

def told(doing, done, total):
    if doing == step:
        os.kill(os.getpid(), signal.SIGKILL)

rebuild(url, PROJECTIONS[name], progress=told)
"""
"""A rebuild that dies as soon as it tells of a step."""

TABLES = ("room_list", "transcript")
TORN = """
SELECT count(*) FROM minutebook_views.checkpoints c
WHERE c.projection = 'transcript' AND c.seq <> coalesce(
        (SELECT max(v.seq) FROM minutebook_views.transcript v WHERE v.stream_id = c.stream_id), 0)
   OR c.projection = 'room_list' AND c.seq <> coalesce(
        (SELECT v.last_seq FROM minutebook_views.room_list v WHERE v.stream_id = c.stream_id), 0)
"""
"""Checkpoints that say another position than the rows: nobody may ever see one."""

LOCKED = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"


def strays(look: psycopg.Connection) -> int:
    """Rows of views whose stream is gone."""
    return sum(
        one(
            look,
            f"SELECT count(*) FROM minutebook_views.{table} v WHERE NOT EXISTS"
            " (SELECT FROM minutebook.streams s WHERE s.id = v.stream_id)",
        )
        for table in TABLES
    )


@contextlib.contextmanager
def load(server: LiveServer) -> Generator[None]:
    """Messages, new rooms, and rooms that close, expire and are purged, until the block ends."""
    stop = threading.Event()

    def write() -> None:
        writer = server.member("alice")
        rooms = [open_room(writer) for _ in range(3)]
        number = 0
        while not stop.is_set():
            number += 1
            post(writer, rooms[number % 3], f"{number}")
            if number % 20 == 0:
                rooms[number % 3] = open_room(writer)

    def purge() -> None:
        writer = server.member("alice")
        with server.sql() as superuser:
            while not stop.is_set():
                room = open_room(writer)
                for number in range(5):
                    post(writer, room, f"to be purged {number}")
                writer.post(f"/v1/rooms/{room}/close")
                expire(superuser, f"room:{room}")
                # A process of its own: the verbs' runner takes over the streams of this one.
                done = subprocess.run(
                    [sys.executable, "-m", "minutebook.infra.cli.main", "retention", "--data-dir", server.data_dir],
                    capture_output=True, text=True, check=False, env=environment(),
                )  # fmt: skip
                assert done.returncode == 0, done.stdout + done.stderr

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(write), pool.submit(purge)]
        try:
            yield
        finally:
            stop.set()
            for job in jobs:
                job.result()


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")}


def seen_whole(client: httpx.Client, room: str, head: int) -> None:
    """A reader gets the whole view of a room, never a half-built one."""
    lines = client.get(f"/v1/rooms/{room}/transcript", params={"limit": 500})
    assert lines.status_code == 200, lines.text
    assert [line["seq"] for line in lines.json()["lines"]] == list(range(1, head + 1))


def test_b77_rebuilds_under_load_and_retention_equal_a_fresh_build(server: LiveServer, alice: httpx.Client) -> None:
    """Both views three times over, each also started twice at once; readers see the whole of the old or the new."""
    room = open_room(alice)
    for number in range(2, 31):
        post(alice, room, f"{number}")
    url = server.database_url("projector")
    folded(alice, room, 30)
    stop = threading.Event()

    def read() -> int:
        reader, times = server.member("alice"), 0
        with server.sql() as look:
            while not stop.is_set():
                seen_whole(reader, room, 30)
                assert one(look, TORN) == 0
                times += 1
        return times

    with load(server), ThreadPoolExecutor(3) as pool:
        reading = pool.submit(read)
        try:
            for name in (*TABLES, *TABLES, *TABLES):
                both = [pool.submit(rebuild, url, PROJECTIONS[name]) for _ in range(2)]
                results: list[Any] = [job.exception() or job.result() for job in both]
                refused = [each for each in results if isinstance(each, Exception)]
                assert len(refused) <= 1
                assert all(isinstance(each, RebuildError) for each in refused), refused
                for each in results:
                    if not isinstance(each, Exception):
                        assert (each.differences, each.parked, each.is_swapped) == ([], [], True)
        finally:
            stop.set()
        assert reading.result() > 10
    checked(server)
    with server.sql() as look:
        assert strays(look) == 0


@pytest.mark.parametrize("step", ["folding", "catching up", "comparing", "swapping"])
def test_b77_killed_at_each_step_and_started_again(server: LiveServer, alice: httpx.Client, step: str) -> None:
    room = open_room(alice)
    for number in range(2, 12):
        post(alice, room, f"{number}")
    folded(alice, room, 11)
    with contextlib.ExitStack() as stack:
        if step == "catching up":
            stack.enter_context(load(server))
        arguments = [sys.executable, "-c", KILL, server.database_url("projector"), "transcript", step]
        died = None
        for _ in range(10):  # there is something to catch up only now and then
            died = subprocess.run(arguments, env=environment(), capture_output=True, text=True, check=False)
            assert died.returncode in (0, -9), died.stderr
            if died.returncode == -9:
                break
        assert died is not None
        assert died.returncode == -9
    seen_whole(alice, room, 11)
    assert post(alice, room, "meanwhile")["seq"] == 12
    folded(alice, room, 12)
    with server.sql() as look:
        until(lambda: one(look, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0, what="its end")
    again = rebuild(server.database_url("projector"), PROJECTIONS["transcript"])
    assert (again.differences, again.is_swapped) == ([], True)
    seen_whole(alice, room, 12)
    checked(server)


def held_fold(holder: psycopg.Connection, look: psycopg.Connection, server: LiveServer, name: str) -> int:
    """Let the projector's first fold of a new stream wait before its commit, for a row that `holder` has."""
    stream_id = one(look, "SELECT last_value FROM minutebook.streams_id_seq") + 1
    holder.autocommit = False
    holder.execute(
        "INSERT INTO minutebook_views.transcript (stream_id, seq, ts, type, actor, classes, heading, body)"
        " VALUES (%s, 1, now(), '', '', '{}', '', '')",
        (stream_id,),
    )
    with server.sql("app") as app:
        append(app, creation(*events(5), stream=name))
    assert one(look, "SELECT id FROM minutebook.streams WHERE name = %s", name) == stream_id
    until_true(look, LOCKED, '%INTO "minutebook_views"."transcript"%')
    return stream_id


def test_b77_a_fold_held_across_a_rebuild_counts_once(server: LiveServer) -> None:
    """It began before the rebuild and commits into the old table just before the swap, with an event more behind it."""
    with server.sql() as holder, server.sql() as look, ThreadPoolExecutor(1) as pool:
        stream_id = held_fold(holder, look, server, "room:helda234")
        building = pool.submit(rebuild, server.database_url("projector"), PROJECTIONS["transcript"])
        until_true(look, LOCKED, "LOCK TABLE minutebook_views.checkpoints%")
        with server.sql("app") as app:
            append(app, item(5, *events(1), stream="room:helda234"))
        holder.rollback()
        assert building.result(30).is_swapped
        assert one(look, TORN) == 0
        rows = (
            "SELECT array_agg(seq ORDER BY seq) = '{1,2,3,4,5,6}' FROM minutebook_views.transcript WHERE stream_id = %s"
        )
        until_true(look, rows, stream_id)
    checked(server)


def test_a_projector_killed_in_mid_batch_leaves_nothing_half(server: LiveServer) -> None:
    """Killed with its rows written and not committed; the next one folds all of it, once."""
    with server.sql() as holder, server.sql() as look:
        stream_id = held_fold(holder, look, server, "room:heldb234")
        projector_of(server).kill()
        holder.rollback()
        rows = (
            "SELECT (SELECT count(*) FROM minutebook_views.transcript t WHERE t.stream_id = c.stream_id) = 5"
            " FROM minutebook_views.checkpoints c"
            " WHERE c.stream_id = %s AND c.projection = 'transcript' AND c.seq = 5"
        )
        until(lambda: look.execute(rows, (stream_id,)).fetchone() == (True,), 20, "the next projector")
    until(lambda: "a worker died and is started again" in server.logs(), what="the log line")
    checked(server)


def test_a_swap_killed_before_its_commit_leaves_the_old_view(server: LiveServer) -> None:
    """The rebuild's session ends while it waits within the swap's transaction."""
    run = Run(server, 7701)
    assert run.push(20).status_code == 200
    with server.sql() as holder, server.sql() as look, ThreadPoolExecutor(1) as pool:
        held_fold(holder, look, server, "room:heldc234")
        building = pool.submit(rebuild, server.database_url("projector"), PROJECTIONS["transcript"])
        until_true(look, LOCKED, "LOCK TABLE minutebook_views.checkpoints%")
        look.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE 'LOCK TABLE minutebook_views.checkpoints%'"
        )
        with pytest.raises(psycopg.OperationalError):
            building.result(30)
        seen_whole(server.member("alice"), run.room, 23)
        holder.rollback()
    assert rebuild(server.database_url("projector"), PROJECTIONS["transcript"]).is_swapped
    checked(server)
