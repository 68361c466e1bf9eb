"""Viewers: from append to socket, memory of idle streams, and fan-out against bare TCP."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_http import open_rooms
from figures import Figure, log
from serving import Server, resident_kib, serving

ROOMS = 20
VIEWERS = 200
RATE = 200
SECONDS = 6.0
LAST_FRAME_S = 10.0
MANY = 1_000
POSTS = 20
SETTINGS = "[limits]\nstreamsPerProcess = 5000\n"

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def follow(server: Server, room: str) -> Stream:
    """An open stream, past its snapshot."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(server.get(f"/v1/rooms/{room}/stream?tail=0"))
    await reader.readuntil(b"event: state")
    await reader.readuntil(b"\n\n")
    return reader, writer


async def until_true(is_true: Callable[[], bool], moved: asyncio.Event) -> None:
    """Return when it is; looked at each time that something moved."""
    while not is_true():
        moved.clear()
        await moved.wait()


async def latency(server: Server) -> float:
    """p99 in ms from the answer-less send of a POST to the frame at a viewer, RATE appends a second in all."""
    rooms = await open_rooms(server, ROOMS)
    streams = [(n % ROOMS, await follow(server, rooms[n % ROOMS])) for n in range(VIEWERS)]
    sent: dict[bytes, float] = {}
    found: list[float] = []
    moved = asyncio.Event()

    async def view(reader: asyncio.StreamReader) -> None:
        while True:
            frame = await reader.readuntil(b"\n\n")
            at = frame.find(b"<m")
            if at >= 0:
                found.append((time.perf_counter() - sent[frame[at : frame.index(b">", at)]]) * 1000)
                moved.set()

    tasks = [asyncio.create_task(view(reader)) for _, (reader, _) in streams]
    writers = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(8)]

    refused: list[bytes] = []

    async def drain(reader: asyncio.StreamReader) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            if b" 201 " not in head[:14]:
                refused.append(body)

    drains = [asyncio.create_task(drain(reader)) for reader, _ in writers]
    began = time.perf_counter()
    n = 0
    while (now := time.perf_counter()) - began < SECONDS:
        while n < (now - began) * RATE:
            mark = b"<m%d" % n
            sent[mark] = time.perf_counter()
            writers[n % 8][1].write(server.post(f"/v1/rooms/{rooms[n % ROOMS]}/messages", b'{"text":"%b>"}' % mark))
            n += 1
        await asyncio.sleep(0.002)
    expected = n * VIEWERS // ROOMS
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(until_true(lambda: len(found) == expected, moved), LAST_FRAME_S)
    for task in (*tasks, *drains):
        task.cancel()
    for _, (_, writer) in streams:
        writer.close()
    assert not refused, refused[0]
    assert len(found) == expected, f"{len(found)} of {expected} frames came"
    return sorted(found)[int(len(found) * 0.99)]


async def many(server: Server) -> tuple[float, float]:
    """KiB of memory for each of MANY idle streams, and median ms from a POST to the last of them."""
    room = (await open_rooms(server, 1))[0]
    before = resident_kib(server.pid)
    streams = [await follow(server, room) for _ in range(MANY)]
    await asyncio.sleep(1.0)
    each = (resident_kib(server.pid) - before) / MANY
    times: list[float] = []
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for n in range(POSTS):
        mark = b"<p%d>" % n
        began = time.perf_counter()
        writer.write(server.post(f"/v1/rooms/{room}/messages", b'{"text":"%b"}' % mark))
        await asyncio.gather(*(reader.readuntil(mark) for reader, _ in streams))
        times.append((time.perf_counter() - began) * 1000)
    for _, stream in streams:
        stream.close()
    return each, statistics.median(times)


BARE = """
import asyncio
clients = set()
async def serve(reader, writer):
    line = await reader.readline()
    if line == b"send\\n":
        while data := await reader.readline():
            for each in clients:
                each.write(data)
    else:
        clients.add(writer)
        writer.write(b"ok\\n")
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
import uvloop
uvloop.run(main())
"""


async def bare(port: int) -> float:
    """The same fan-out over bare TCP: a frame of the same size to MANY sockets of one asyncio server."""
    streams = []
    for _ in range(MANY):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"follow\n")
        await reader.readline()
        streams.append((reader, writer))
    _, sender = await asyncio.open_connection("127.0.0.1", port)
    sender.write(b"send\n")
    times: list[float] = []
    for n in range(POSTS):
        data = (b"<p%d>" % n).ljust(400, b"x") + b"\n"
        began = time.perf_counter()
        sender.write(data)
        await asyncio.gather(*(reader.readline() for reader, _ in streams))
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def figures(_server: Any, _database: str, folder: Path) -> list[Figure]:
    """The stream figures of issue 3."""
    with serving(folder / "streams", SETTINGS) as server:
        log("streams, 200 viewers of 20 rooms")
        p99 = statistics.median(asyncio.run(latency(server)) for _ in range(3))
        log("streams, 1 000 viewers of one room")
        each, fan = asyncio.run(many(server))
    child = subprocess.Popen([sys.executable, "-c", BARE], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    reference = asyncio.run(bare(int(child.stdout.readline())))
    child.kill()
    child.wait()
    return [
        Figure.at_most("append_to_viewer_p99", p99, "ms", 100.0),
        Figure.at_most("idle_stream_memory", each, "KiB", 60.0),
        Figure.at_most("fan_out_1000", fan, "ms", 3.0, reference),
    ]
