"""SIGTERM with open streams and work under way: gone in time, nothing half done (B31)."""

from __future__ import annotations

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from append_helpers import one
from fault_steps import Run
from live_server import LiveServer, open_room, post, until
from viewers import Viewer, Writer, assert_once, log_of, reached

EXIT_S = 10.0
BUSY = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE application_name = 'minutebook app' AND wait_event_type = 'Lock' AND query LIKE '%%minutebook.append%%'"
)


@pytest.fixture
def own(data_dir: Path) -> LiveServer:
    """A server of one's own, not yet started."""
    return LiveServer(data_dir)


def test_b31_a_command_that_gets_no_lock_does_not_hold_up_the_end(own: LiveServer) -> None:
    """Its room is locked for longer than the drain: it is answered with a refusal and not stored, then or later."""
    with own as server:
        alice = server.member("alice")
        room, other = open_room(alice), open_room(alice)
        with server.sql() as holder, server.sql() as look, ThreadPoolExecutor(1) as pool:
            holder.autocommit = False
            holder.execute("SELECT FROM minutebook.streams WHERE name = %s FOR UPDATE", (f"room:{room}",))
            url = f"/v1/rooms/{room}/messages"
            saying = pool.submit(server.member("alice").post, url, json={"text": "never"})
            until(lambda: one(look, BUSY) == 1, what="the append")
            began = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - began < EXIT_S
            answer = saying.result()
            assert answer.status_code == 503, answer.text
            assert "retry-after" in answer.headers
            assert one(look, BUSY) == 0
            holder.rollback()
        server.start()
        alice = server.member("alice")
        assert [event["seq"] for event in log_of(alice, room)] == [1]
        assert post(alice, room, "again")["seq"] == 2
        assert post(alice, other, "here")["seq"] == 2


def test_b31_writers_viewers_and_a_run_go_on_at_the_next_process(own: LiveServer) -> None:
    """Stopped twice under load: every acknowledged command is there once, no viewer has a hole, the run goes on."""
    with own as server:
        server.keep_port()
        run = Run(server, 3101)
        room, token = run.room, server.token("human:alice", "agents-member")

        async def body() -> tuple[list[Viewer], list[Writer]]:
            stopped = 0
            writers = [Writer(lambda: server.url, room, token, f"w{n}") for n in range(4)]
            viewers = [Viewer(lambda: server.url, room, token) for _ in range(20)]
            async with asyncio.TaskGroup() as group:
                for writer in writers:
                    group.create_task(writer.talk(lambda: stopped == 2, 0.01))
                for viewer in viewers:
                    group.create_task(viewer.roam(lambda: stopped == 2, random.Random(31), 3))  # noqa: S311
                for _ in range(2):
                    said = sum(len(writer.acknowledged) for writer in writers)
                    await reached(lambda said=said: sum(len(each.acknowledged) for each in writers) >= said + 100)
                    assert (await asyncio.to_thread(run.push, 3)).status_code == 200
                    began = time.monotonic()
                    assert await asyncio.to_thread(server.stop) == 0
                    assert time.monotonic() - began < EXIT_S
                    await asyncio.to_thread(server.start)
                    stopped += 1
            head = max(seq for writer in writers for seq in writer.acknowledged.values())
            await asyncio.gather(*(viewer.finish(head) for viewer in viewers))
            for writer in writers:
                await writer.close()
            return viewers, writers

        viewers, writers = asyncio.run(body())
        log = log_of(server.member("alice"), room)
        assert_once(log, *writers)
        for viewer in viewers:
            viewer.assert_equals(log[: viewer.cursor])
            assert any("server_stopping" in reason for reason in viewer.reasons)
        assert run.push(3).status_code == 200
        assert run.client.post("/v1/bridge/bye").status_code == 200
        assert "internal error" not in server.logs()
