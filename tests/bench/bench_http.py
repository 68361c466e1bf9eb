"""POST of a message over HTTP against the same server's no-op POST with the same body and token check."""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path
from typing import Any

import msgspec
from figures import Figure, log
from load import run
from serving import Server, serving

ROUNDS = 3
SECONDS = 4.0
CONNECTIONS = 32
BODY = b'{"text":"' + b"x" * 270 + b'"}'


async def _json(server: Server, raw: bytes) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(raw)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    body = await reader.readexactly(length)
    writer.close()
    return msgspec.json.decode(body)


async def open_rooms(server: Server, count: int) -> list[str]:
    """Ids of new rooms."""
    raw = server.post("/v1/rooms", b'{"dataClass":"internal"}')
    return [(await _json(server, raw))["id"] for _ in range(count)]


def figures(_server: Any, _database: str, folder: Path) -> list[Figure]:
    """post_message as a ratio to the no-op."""
    noops: list[float] = []
    posts: list[float] = []
    with serving(folder / "http", "[server]\nbenchRoutes = true\n") as server:
        rooms = asyncio.run(open_rooms(server, 64))
        turn = 0

        def post() -> bytes:
            nonlocal turn
            turn += 1
            return server.post(f"/v1/rooms/{rooms[turn % len(rooms)]}/messages", BODY)

        noop = server.post("/v1/bench/noop", BODY)
        for n in range(ROUNDS):
            log(f"http, round {n + 1} of {ROUNDS}")
            rate, failed = asyncio.run(
                run("127.0.0.1", server.port, lambda: noop, connections=CONNECTIONS, seconds=SECONDS)
            )
            assert failed == 0
            noops.append(rate)
            rate, failed = asyncio.run(run("127.0.0.1", server.port, post, connections=CONNECTIONS, seconds=SECONDS))
            assert failed == 0
            posts.append(rate)
    return [Figure.ratio_of("http_post_message", statistics.median(posts), "requests/s", statistics.median(noops), 0.5)]
