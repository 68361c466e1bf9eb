"""What filtering costs: a history page and a stream where half of the records are restricted, beside an owner-only
conversation; and 100 participants who stream one conversation."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from figures import Figure, log
from load import request
from minutebook.infra.postgres.embedded import EmbeddedPostgres
from serving import Server, serving

SETTINGS = """
[clearance]
groups = { "sec" = ["secret"], "ops" = ["internal", "restricted"] }
claims = { "dept" = { "law" = ["privileged"] } }
[conversations]
postsPerMinute = 1000000
streams = 10000
streamsPerPrincipal = 10000
"""

TURNS = 100
"""Of each conversation: two records each, and a page holds them all. """

WORDS = "a few words as people say them, again and again, so that a record is as long as most are " * 4
ROUNDS = 60
PARTICIPANTS = 100
LIVE_TURNS = 40

COST = 1.1
LATE_MS = 250.0


def figures(server: EmbeddedPostgres, database: str, folder: Path) -> list[Figure]:
    """All of them."""
    with serving(folder / "one", SETTINGS) as one:
        return [*asyncio.run(_reading(one)), asyncio.run(_many(one))]


class Person:
    """Requests of one person, on connections of their own."""

    def __init__(self, server: Server, token: str) -> None:
        self._server = server
        self._token = token

    async def call(self, method: str, path: str, body: Any = None) -> bytes:
        """The body of an answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port, limit=1 << 22)
        try:
            data = b"" if body is None else json.dumps(body).encode()
            writer.write(request(method, path, self._token, data))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            answer = await reader.readexactly(length)
            assert b" 2" in head[:12], (head, answer)
            return answer
        finally:
            writer.close()

    async def records(self, path: str, ready: asyncio.Event | None = None) -> AsyncIterator[bytes]:
        """The data of the `message` frames of a stream; `ready` is set by its first frame."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port, limit=1 << 22)
        try:
            writer.write(request("GET", path, self._token, b""))
            is_record = False
            while line := await reader.readline():
                if line.startswith(b"event:"):
                    is_record = line == b"event: message\n"
                elif line.startswith(b"data:"):
                    if ready is not None:
                        ready.set()
                    if is_record:
                        yield line
        finally:
            writer.close()


async def _talk(person: Person, fields: dict[str, Any]) -> str:
    answer = await person.call("POST", "/v1/conversations", {"agent": "echo", **fields})
    return json.loads(answer)["id"]


async def _grow(person: Person, talk: str) -> None:
    """Turns, each asked once the one before is answered; the second half is of a class."""
    ready = asyncio.Event()
    answered = asyncio.Semaphore(0)

    async def watch() -> None:
        async for line in person.records(f"/v1/conversations/{talk}/events?tail=0", ready):
            if b'"role":"assistant"' in line:
                answered.release()

    watching = asyncio.create_task(watch())
    await ready.wait()
    for number in range(TURNS):
        said = {"text": f"{number} {WORDS}", "classes": ["secret"] if number >= TURNS // 2 else []}
        await person.call("POST", f"/v1/conversations/{talk}/turns", said)
        await asyncio.wait_for(answered.acquire(), 20)
    watching.cancel()


async def _reading(server: Server) -> list[Figure]:
    owner, viewer = Person(server, server.token), Person(server, server.token_of("human", "viewer"))
    own, shared = await _talk(owner, {}), await _talk(owner, {"mode": "shared"})
    await owner.call("PUT", f"/v1/conversations/{shared}/participants/human:viewer", {})
    for talk in (own, shared):
        await _grow(owner, talk)
    page = json.loads(await viewer.call("GET", f"/v1/conversations/{shared}/history?limit=200"))["entries"]
    restricted = sum(entry["status"] == "restricted" for entry in page)
    assert (len(page), restricted) == (2 * TURNS, TURNS), (len(page), restricted)

    async def a_page(person: Person, talk: str) -> None:
        await person.call("GET", f"/v1/conversations/{talk}/history?limit=200")

    async def a_stream(person: Person, talk: str) -> None:
        left = 2 * TURNS
        async for _ in person.records(f"/v1/conversations/{talk}/events?cursor=1.0"):
            left -= 1
            if not left:
                return

    made: list[Figure] = []
    for name, read in (("a history page of 200", a_page), ("a stream of 200 records", a_stream)):
        plain, filtered = await _in_turn(lambda: read(owner, own), lambda: read(viewer, shared))  # noqa: B023
        made.append(Figure.at_most(f"clearance: {name}, half of them restricted", filtered, "ms", COST, plain))
    return made


async def _in_turn(one: Callable[[], Awaitable[None]], other: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Milliseconds of each, taken alternately: the lower quartile, which a busy machine moves less than the median."""
    took: tuple[list[float], list[float]] = ([], [])
    for number in range(2 * (ROUNDS + 5)):
        began = time.perf_counter()
        await (one, other)[number % 2]()
        if number >= 10:
            took[number % 2].append((time.perf_counter() - began) * 1000)
    return statistics.quantiles(took[0], n=4)[0], statistics.quantiles(took[1], n=4)[0]


async def _many(server: Server) -> Figure:
    """From the first participant who has a record to the last one; every second turn is restricted for all but one."""
    owner = Person(server, server.token)
    people = [Person(server, server.token_of("human", f"p{number}")) for number in range(PARTICIPANTS - 1)]
    talk = await _talk(owner, {"mode": "shared"})
    for number in range(len(people)):
        await owner.call("PUT", f"/v1/conversations/{talk}/participants/human:p{number}", {})
    came: dict[bytes, list[float]] = {}
    ready = [asyncio.Event() for _ in range(PARTICIPANTS)]

    async def watch(person: Person, is_there: asyncio.Event) -> None:
        async for line in person.records(f"/v1/conversations/{talk}/events?tail=0", is_there):
            came.setdefault(line.split(b",", 1)[0], []).append(time.perf_counter())

    watching = [asyncio.create_task(watch(*each)) for each in zip((owner, *people), ready, strict=True)]
    await asyncio.gather(*(each.wait() for each in ready))
    began = time.perf_counter()
    for number in range(LIVE_TURNS):
        classes = ["secret"] if number >= LIVE_TURNS // 2 else []
        await owner.call("POST", f"/v1/conversations/{talk}/turns", {"text": WORDS, "classes": classes})
        await asyncio.wait_for(_all_have(came, 2 * number + 2), 30)
    seconds = time.perf_counter() - began
    for each in watching:
        each.cancel()
    spread = sorted((max(times) - min(times)) * 1000 for times in came.values())
    log(f"{PARTICIPANTS} participants: {len(came) * PARTICIPANTS / seconds:,.0f} records/s; a turn takes"
        f" {seconds / LIVE_TURNS * 1000:.0f} ms until all have it")  # fmt: skip
    late = spread[int(len(spread) * 0.95)]
    return Figure.at_most(f"clearance: {PARTICIPANTS} participants, first to last, p95", late, "ms", LATE_MS)


async def _all_have(came: dict[bytes, list[float]], records: int) -> None:
    while len(came) < records or any(len(times) < PARTICIPANTS for times in came.values()):  # noqa: ASYNC110
        await asyncio.sleep(0.002)
