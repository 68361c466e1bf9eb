"""One client that never reads: it costs bounded memory, is cut off with a reason, and resumes without a hole (B30)."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path

import msgspec
import psutil
import pytest
from fault_steps import Run
from live_server import LiveServer
from viewers import Viewer, open_stream, reached

EVENT_BYTES = 4096
BATCH = 400
MAX_GROWTH = 48 << 20
"""Less than the events have, and about twice what the server takes for its pages and answers."""

CONFIG = "[limits]\nroomBytes = 1073741824\nroomEvents = 1000000\nstreamBacklogBytes = 1048576\n"
EVENT = re.compile(rb"id: ([0-9]+)\nevent: event\ndata: [^\n]*\n\n")
END = b"\r\n0\r\n\r\n"
SEND_TIMEOUT_S = 20.0
SOCKET_BYTES = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
MORE_THAN_BUFFERS = (SOCKET_BYTES + (2 << 20)) // EVENT_BYTES
"""Events that fill all that lies between the server and somebody who does not read."""

WARM_UP = 800
"""Events before the memory is measured for the first time."""

MORE_THAN_BACKLOG = 600
"""Events beyond streamBacklogBytes."""


def resident(server: LiveServer) -> int:
    """Resident bytes of the serving process."""
    return psutil.Process(server.process.pid).memory_info().rss


async def drain(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read to the end (or the cut) what there was for somebody who slept: the last whole event's id, and the tail."""
    last, tail = 0, b""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(1 << 16):
            tail += chunk
            for found in EVENT.finditer(tail):
                last = int(found[1])
            tail = tail[-3 * EVENT_BYTES :]
            if tail.endswith(END):
                break
    return last, tail


async def push(run: Run, count: int, before: int, server: LiveServer) -> int:
    """Push so many more items; the largest growth of the serving process meanwhile, in bytes."""
    worst, end = 0, run.sent + count
    while run.sent < end:
        answer = await asyncio.to_thread(run.push, min(BATCH, end - run.sent), EVENT_BYTES)
        assert answer.status_code == 200, answer.text
        worst = max(worst, resident(server) - before)
    return worst


async def at_rest(server: LiveServer) -> None:
    """Return once nobody is read for any more."""
    while True:
        reads = await asyncio.to_thread(server.metric, "log_reads")
        await asyncio.sleep(0.3)  # a page is read and sent in a fraction of it
        if await asyncio.to_thread(server.metric, "log_reads") == reads:
            return


async def scene(server: LiveServer, total: int) -> None:
    run = await asyncio.to_thread(Run, server, 3001)
    await push(run, WARM_UP, 0, server)
    token = server.token("human:alice", "agents-member")
    nine = [Viewer(lambda: server.url, run.room, token) for _ in range(9)]
    sleeper, hold, _ = await open_stream(server.url, run.room, token, 0, receive_buffer=1 << 16)
    _, dead, _ = await open_stream(server.url, run.room, token, 0, receive_buffer=1 << 16)
    for writer in (hold, dead):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
    everybody = [asyncio.create_task(viewer.finish(total, within_s=300)) for viewer in nine]
    await reached(lambda: all(viewer.connections for viewer in nine))
    before = resident(server)
    # The server is stuck in a send to the slow ones, and everybody else has all; then what it keeps for them grows.
    worst = await push(run, MORE_THAN_BUFFERS, before, server)
    await reached(lambda: all(viewer.cursor >= run.sent for viewer in nine))
    await at_rest(server)
    worst = max(worst, await push(run, MORE_THAN_BACKLOG, before, server))
    # Wakes up before the send gives up.
    hold.transport.resume_reading()  # type: ignore[attr-defined]
    async with asyncio.timeout(60):
        last, tail = await drain(sleeper)
    hold.transport.abort()
    assert 0 < last < MORE_THAN_BUFFERS + MORE_THAN_BACKLOG
    told = msgspec.json.decode(tail.partition(b"event: reconnect\ndata: ")[2].partition(b"\n")[0])
    assert told == {"cursor": str(last), "reason": "slow_consumer"}
    worst = max(worst, await push(run, total - run.sent, before, server))
    head = server.member("alice").get(f"/v1/rooms/{run.room}").json()["throughSeq"]
    await asyncio.gather(*everybody)
    worst = max(worst, resident(server) - before)
    assert worst < MAX_GROWTH, f"{worst >> 20} MiB"
    late = Viewer(lambda: server.url, run.room, token, first=last)
    await late.finish(head, within_s=60)
    for viewer in (late, *nine):
        assert not viewer.faults, viewer.faults[:3]
        assert viewer.cursor == head
    assert late.seen == nine[0].seen[last:]
    # The one that goes on not reading is given up, though its socket is still open.
    await reached(lambda: server.metric("streams") == 0, SEND_TIMEOUT_S + 5, "an empty gauge")
    dead.transport.abort()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("events", [14_000, pytest.param(20_000, marks=pytest.mark.soak)])
def test_b30_a_client_that_never_reads_costs_bounded_memory(data_dir: Path, events: int) -> None:
    """14,000 events of 4 KiB are 55 MiB, and twice that for two who do not read."""
    with LiveServer(data_dir, config=CONFIG) as server:
        asyncio.run(scene(server, events))
