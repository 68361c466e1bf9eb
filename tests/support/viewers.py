"""Many viewers and writers on one loop: raw sockets that come and go, and commands that are retried until answered."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from typing import Any

import httpx
import msgspec
from live_server import NO_TLS

RETRY_S = 0.1
COMMAND_S = 15.0
HASTY_S = 0.03
"""Longest wait of somebody who goes away before the answer."""

PAGE = 500


async def reached(check: Callable[[], bool], within_s: float = 30.0, what: str = "the condition") -> None:
    """Look every 20 ms until `check` holds."""
    deadline = time.monotonic() + within_s
    while True:
        if check():
            return
        assert time.monotonic() < deadline, f"{what} did not come within {within_s} s"
        await asyncio.sleep(0.02)


class StreamRefused(Exception):
    """The server answered something else than a stream; the status is its argument."""


async def frames_of(reader: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    """The frames of a chunked answer whose headers are read already; ends with the connection, however that ends."""
    buffer = b""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while size := int(await reader.readuntil(b"\r\n"), 16):
            buffer += (await reader.readexactly(size + 2))[:-2]
            *whole, buffer = buffer.split(b"\n\n")
            for frame in whole:
                yield frame


async def open_stream(
    url: str, room: str, token: str, cursor: int | None, *, extra: str = "", receive_buffer: int | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    """A stream's reader behind its headers, its writer, and the headers. receive_buffer: bytes that the kernel takes
    for somebody who does not read. Raises StreamRefused, OSError."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    sock = socket.socket()
    try:
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
        reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 20)
    except BaseException:
        sock.close()
        raise
    try:
        last = "" if cursor is None else f"last-event-id: {cursor}\r\n"
        request = f"GET /v1/rooms/{room}/stream HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n"
        writer.write(f"{request}{last}{extra}\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status = head.split(" ", 2)[1]
        if status != "200":
            raise StreamRefused(status)  # noqa: TRY301
    except asyncio.IncompleteReadError as error:
        writer.transport.abort()
        raise StreamRefused("cut off") from error
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer, head.lower()


class Viewer:
    """Somebody who joins one list of events over any number of connections. `seen` holds the data lines behind
    `first`; `delay_s` is the longest way of an event that was recorded while they were connected."""

    def __init__(self, url: Callable[[], str], room: str, token: str, first: int = 0) -> None:
        self._url = url
        self._room = room
        self._token = token
        self.first = first
        self.seen: list[bytes] = []
        self.connections = 0
        self.reasons: list[str] = []
        self.delay_s = 0.0
        self.faults: list[str] = []

    @property
    def cursor(self) -> int:
        """The id of the last event that they have."""
        return self.first + len(self.seen)

    async def watch(self, seconds: float) -> None:
        """One connection for at most so long; it is reset at its end."""
        reader, writer, _ = await open_stream(self._url(), self._room, self._token, self.cursor)
        self.connections += 1
        connected = time.time()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    async for frame in frames_of(reader):
                        self._take(frame, connected)
        finally:
            writer.transport.abort()

    def _take(self, frame: bytes, connected: float) -> None:
        if frame.startswith(b"id: "):
            head, _, data = frame.partition(b"\nevent: event\ndata: ")
            if int(head[4:]) != self.cursor + 1:
                self.faults.append(f"{head!r} after {self.cursor}")
            self.seen.append(data)
            stored = datetime.fromisoformat(msgspec.json.decode(data)["ts"]).timestamp()
            if stored > connected:
                self.delay_s = max(self.delay_s, time.time() - stored)
        elif frame.startswith((b"event: reconnect", b"event: error", b"event: reset", b"event: closed")):
            self.reasons.append(frame.decode())

    async def roam(self, is_done: Callable[[], bool], random_: random.Random, longest_s: float) -> None:
        """Connect for random times until `is_done`; what refuses is tried again."""
        while not is_done():
            try:
                await self.watch(random_.uniform(0.02, longest_s))
            except (OSError, StreamRefused):
                await asyncio.sleep(RETRY_S)

    async def finish(self, head: int, within_s: float = 30.0) -> None:
        """Stay until they have `head`."""
        deadline = time.monotonic() + within_s
        while self.cursor < head:
            assert time.monotonic() < deadline, f"{self.cursor} of {head} after {within_s} s"
            watching = asyncio.create_task(self.watch(within_s))
            try:
                await reached(lambda task=watching: self.cursor >= head or task.done(), within_s)
            finally:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError, StreamRefused):
                    await watching

    def assert_equals(self, log: list[dict[str, Any]]) -> None:
        """The joined list is the log from `first` on: no hole, no duplicate, in order, with the same contents."""
        assert not self.faults, self.faults[:5]
        assert [msgspec.json.decode(data) for data in self.seen] == log[self.first :]


class Writer:
    """Somebody whose messages carry idempotency keys and are sent again until they are answered. hasty: the part of the
    messages whose connection is cut before the answer can be there, drawn from `random_`."""

    def __init__(
        self,
        url: Callable[[], str],
        room: str,
        token: str,
        name: str,
        random_: random.Random | None = None,
        hasty: float = 0.0,
    ) -> None:
        self._url = url
        self._room = room
        self._headers = {"authorization": f"Bearer {token}"}
        self._client = httpx.AsyncClient(timeout=COMMAND_S, verify=NO_TLS)
        self._random = random_ or random.Random(0)  # noqa: S311
        self._hasty = hasty
        self.name = name
        self.acknowledged: dict[str, int] = {}
        self.retries = 0
        self.statuses: set[int] = set()

    async def say(self, number: int) -> int:
        """Post message `number` and answer its seq."""
        text = f"{self.name} {number}"
        headers = {**self._headers, "idempotency-key": text.replace(" ", "-")}
        while True:
            try:
                url = f"{self._url()}/v1/rooms/{self._room}/messages"
                waits_s = self._random.uniform(0.001, HASTY_S) if self._random.random() < self._hasty else COMMAND_S
                answer = await self._client.post(
                    url, json={"text": text}, headers=headers, timeout=httpx.Timeout(COMMAND_S, read=waits_s)
                )
            except httpx.TransportError:
                self.retries += 1
                await asyncio.sleep(RETRY_S)
                continue
            self.statuses.add(answer.status_code)
            if answer.status_code == 201:
                self.acknowledged[text] = answer.json()["seq"]
                return self.acknowledged[text]
            assert answer.status_code in (503, 504), answer.text
            self.retries += 1
            await asyncio.sleep(RETRY_S)

    async def talk(self, is_done: Callable[[], bool], pause_s: float = 0.0) -> None:
        """Post one after another until `is_done`; the last one is seen through."""
        number = 0
        while not is_done():
            number += 1
            await self.say(number)
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.aclose()


def log_of(client: httpx.Client, room: str) -> list[dict[str, Any]]:
    """The whole log of a room as that client may see it."""
    found: list[dict[str, Any]] = []
    while True:
        answer = client.get(f"/v1/rooms/{room}/events", params={"afterSeq": len(found), "limit": PAGE})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page["events"]
        if len(found) >= page["lastSeq"]:
            return found


def assert_once(log: list[dict[str, Any]], *writers: Writer) -> None:
    """The log is gapless, and each acknowledged message is in it once, at the seq that was answered."""
    assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
    texts = [event["payload"]["text"] for event in log if event["type"] == "message"]
    assert len(texts) == len(set(texts)), "a message is stored twice"
    for writer in writers:
        for text, seq in writer.acknowledged.items():
            assert log[seq - 1]["payload"].get("text") == text
