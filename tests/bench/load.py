"""A small HTTP/1.1 load generator on raw asyncio streams, so that the client is not what is measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def one_connection(host: str, port: int, requests: Callable[[], bytes], until: float, counts: list[int]) -> None:
    """Send one request after another on one keep-alive connection until the clock passes `until`."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        while time.perf_counter() < until:
            writer.write(requests())
            head = await reader.readuntil(b"\r\n\r\n")
            lower = head.lower()
            at = lower.index(b"content-length:")
            length = int(lower[at + 15 : lower.index(b"\r\n", at)])
            await reader.readexactly(length)
            counts[0 if b" 2" in head[:12] else 1] += 1
    finally:
        writer.close()


async def run(
    host: str, port: int, requests: Callable[[], bytes], *, connections: int, seconds: float
) -> tuple[float, int]:
    """Successful requests a second over `connections`, and the failures."""
    counts = [0, 0]
    began = time.perf_counter()
    until = began + seconds
    await asyncio.gather(*(one_connection(host, port, requests, until, counts) for _ in range(connections)))
    return counts[0] / (time.perf_counter() - began), counts[1]


def request(method: str, path: str, token: str, body: bytes, host: str = "127.0.0.1") -> bytes:
    """The bytes of one request."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
