"""Viewers who come and go, resume, reset and idle: nothing lost, doubled or held (B23 B26 B28 B29 B32)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import socket
import struct
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fault_steps import Run, one
from live_server import LiveServer, follow, open_room, post, until
from verbs import verb
from viewers import Viewer, Writer, assert_once, log_of, open_stream

SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE usename = 'minutebook_app'"
    " AND application_name NOT LIKE '%%jobs%%' AND application_name NOT LIKE '%%deliveries%%'"
)
"""Of the app role, but those of the process of jobs."""

IN_TRANSACTION = f"{SESSIONS} AND state LIKE 'idle in transaction%%'"


async def crowd(server: LiveServer, room: str, *, viewers: int, seconds: float, per_s: float) -> tuple[Any, Any]:
    """Viewers at random positions who come and go while writers say about `per_s` messages a second."""
    random_ = random.Random(23)  # noqa: S311
    token = server.token("human:alice", "agents-member")
    writers = [Writer(lambda: server.url, room, token, f"w{n}") for n in range(4)]
    everybody = [Viewer(lambda: server.url, room, token, random_.randint(0, 40)) for _ in range(viewers)]
    deadline = time.monotonic() + seconds

    def is_done() -> bool:
        return time.monotonic() > deadline

    async with asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(writer.talk(is_done, len(writers) / per_s))
        for viewer in everybody:
            group.create_task(viewer.roam(is_done, random_, 2.0))
    head = max(seq for writer in writers for seq in writer.acknowledged.values())
    await asyncio.gather(*(viewer.finish(head) for viewer in everybody))
    for writer in writers:
        await writer.close()
    return writers, everybody


def check_crowd(server: LiveServer, *, viewers: int, seconds: float, per_s: float) -> None:
    alice = server.member("alice")
    room = open_room(alice)
    for number in range(2, 42):
        post(alice, room, f"before {number}")
    writers, everybody = asyncio.run(crowd(server, room, viewers=viewers, seconds=seconds, per_s=per_s))
    log = log_of(alice, room)
    assert_once(log, *writers)
    for viewer in everybody:
        viewer.assert_equals(log)
    assert len(log) > 41 + seconds * per_s / 20  # of what is asked for a busy machine may give a part
    assert sum(viewer.connections for viewer in everybody) > viewers * 3


def test_b23_viewers_who_come_and_go_miss_nothing(server: LiveServer) -> None:
    check_crowd(server, viewers=40, seconds=5, per_s=150)


@pytest.mark.soak
def test_b23_a_hundred_viewers_for_a_minute(server: LiveServer) -> None:
    check_crowd(server, viewers=100, seconds=60, per_s=200)


def test_b26_a_cursor_of_before_a_restore_is_reset_and_events_flow(data_dir: Path) -> None:
    """The copy is older than the client: its cursor is beyond the head, and after new events it is not any more."""
    copy = data_dir.with_name("copy")
    with LiveServer(data_dir) as server:
        room = open_room(server.member("alice"))
        seq = post(server.member("alice"), room, "in the copy")["seq"]
    # As docs/howto/backup-and-restore.md says: stopped, all of it, with its owners.
    subprocess.run(["cp", "-a", str(data_dir), str(copy)], check=True)
    with LiveServer(data_dir) as server:
        alice = server.member("alice")
        lost = [post(alice, room, f"lost {number}") for number in range(3)][-1]["seq"]
        with follow(alice, room) as stream:
            assert stream.events(lost)[-1]["seq"] == lost
        old = alice.get(f"/v1/rooms/{room}").json()["logId"]
    shutil.rmtree(data_dir)
    copy.rename(data_dir)
    done = verb("restored", "--json", "--data-dir", data_dir)
    assert done.code == 0, done
    with LiveServer(data_dir) as server:
        alice = server.member("alice")
        assert alice.get(f"/v1/rooms/{room}").json()["logId"] == done.json["after"] != old
        for cursor, log_id in ((lost, None), (seq + 1000, None), (lost, old), (seq, old), (1, old)):
            query = {} if log_id is None else {"logId": log_id}
            with follow(alice, room, str(cursor), **query) as stream:
                frames = stream.until("state")
                head = frames[-1].json["throughSeq"]
                assert [frame.event for frame in frames] == ["reset", "state"]
                assert frames[0].json == {"lastSeq": head, "logId": done.json["after"]}
                assert (frames[0].id, frames[1].json["fromSeq"]) == (None, head + 1)
                post(alice, room, "new")
                assert stream.events(head + 1)[0]["seq"] == head + 1
        # By now the head is beyond the cursor, which still means another event.
        assert head + 1 > lost
        with follow(alice, room, str(lost), logId=old) as stream:
            assert [frame.event for frame in stream.until("state")] == ["reset", "state"]
        with follow(alice, room, str(seq), logId=done.json["after"]) as stream:
            assert [frame.event for frame in stream.until("state")] == ["state"]
            assert [each["payload"]["text"] for each in stream.events(head + 1)] == ["new"] * 5


PHASES = ("before the headers", "after the headers", "in the history", "idle", "while events come")


def reset(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def reset_in(phase: str, server: LiveServer, room: str, token: str, number: int) -> None:
    """Open a stream and reset the connection in one phase of it."""
    request = f"GET /v1/rooms/{room}/stream HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n"
    text = f"{request}last-event-id: {0 if phase == 'in the history' else 1999}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close sends a reset
        if phase == "before the headers":
            sock.sendall(text if number % 2 else text[: len(text) // 2])
            return
        sock.sendall(text)
        data = sock.recv(1 if phase == "after the headers" else 1 << 16)
        wanted = {"idle": b"still here", "while events come": b"id: 200"}.get(phase, b"")
        assert phase == "after the headers" or data.startswith(b"HTTP/1.1 200"), data[:500]
        while wanted not in data:
            data += sock.recv(1 << 16)


def test_b28_three_hundred_resets_in_every_phase_leave_nothing_behind(server: LiveServer) -> None:
    run = Run(server, 2801)
    for _ in range(4):
        assert run.push(500, 200).status_code == 200
    alice, token = server.member("alice"), server.token("human:alice", "agents-member")
    until(lambda: server.metric("streams") == 0, what="an empty gauge")
    stop = threading.Event()

    def load() -> None:
        writer = server.member("alice")
        while not stop.wait(0.02):
            post(writer, run.room, "more")

    with server.sql() as connection, ThreadPoolExecutor(31) as pool:
        writing = pool.submit(load)
        try:
            idle_room = open_room(alice)
            jobs = [
                pool.submit(reset_in, phase, server, idle_room if phase == "idle" else run.room, token, number)
                for number in range(60)
                for phase in PHASES
            ]
            for job in jobs:
                job.result()
        finally:
            stop.set()
            writing.result()
        until(lambda: server.metric("streams") == 0, 5, "an empty gauge")
        until(lambda: server.metric("followed_rooms") == 0, 1, "no room followed")
        assert server.metric("commands_in_flight") == 0
        assert one(connection, IN_TRANSACTION) == 0
        assert one(connection, SESSIONS) <= 5 + 3  # the pool, and the listeners of server, projector and outbox
    with follow(alice, run.room, "2000") as stream:
        head = post(alice, run.room, "still there")["seq"]
        assert stream.events(head)[-1]["seq"] == head


def test_b29_forty_idle_streams_hold_nothing(server: LiveServer, alice: httpx.Client) -> None:
    rooms = [open_room(alice) for _ in range(8)]

    async def open_all(stack: contextlib.AsyncExitStack) -> None:
        token = server.token("human:alice", "agents-member")
        for number in range(40):
            reader, writer, _ = await open_stream(server.url, rooms[number % 8], token, None)
            stack.callback(reset, writer)
            await reader.readuntil(b"event: event\n")

    def command(number: int) -> float:
        with httpx.Client(base_url=server.url, headers=alice.headers, verify=False) as client:  # noqa: S501
            client.get("/healthz")
            began = time.monotonic()
            post(client, rooms[number % 8], f"{number}")
            return time.monotonic() - began

    async def body() -> None:
        async with contextlib.AsyncExitStack() as stack:
            await open_all(stack)
            with server.sql() as connection:
                busy = f"{SESSIONS} AND application_name = 'minutebook app' AND xact_start IS NOT NULL"
                await asyncio.to_thread(until, lambda: one(connection, busy) == 0, what="an idle moment")
                assert one(connection, f"{SESSIONS} AND application_name = 'minutebook app'") <= 5
                assert one(connection, IN_TRANSACTION) == 0
            assert server.metric("streams") == 40
            with ThreadPoolExecutor(5) as pool:
                took = sorted(await asyncio.to_thread(lambda: list(pool.map(command, range(50)))))
            assert took[int(len(took) * 0.99) - 1] < 0.5, took[-5:]

    asyncio.run(body())


def test_b32_headers_first_byte_and_comments_whatever_is_accepted(server: LiveServer, room: str) -> None:
    async def look(accepted: str) -> None:
        began = time.monotonic()
        token = server.token("human:alice", "agents-member")
        reader, writer, head = await open_stream(
            server.url, room, token, 1, extra=f"accept-encoding: {accepted}\r\n"
        )  # fmt: skip
        try:
            await reader.readexactly(1)
            assert time.monotonic() - began < 1
            assert "\r\ncontent-type: text/event-stream\r\n" in head
            assert "\r\ncache-control: no-store\r\n" in head
            assert "\r\nx-accel-buffering: no\r\n" in head
            assert "content-encoding" not in head
            assert "content-length" not in head
            await reader.readuntil(b": still here\n\n")
            for _ in range(2):
                began = time.monotonic()
                beat = await reader.readuntil(b": still here\n\n")
                assert time.monotonic() - began < 1 + 0.5  # heartbeatSeconds of this server
                assert b"id:" not in beat
                assert b"event:" not in beat
        finally:
            writer.transport.abort()

    async def body() -> None:
        await asyncio.gather(*(look(accepted) for accepted in ("gzip, br", "gzip;q=1.0, *;q=0.5", "br")))

    asyncio.run(body())
