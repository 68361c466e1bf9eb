"""Conversations: from a message to the first words, many replies at once on two processes, and very long ones.

The provider is scripted and answers at once, so that all that is measured is the server's own.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
from conversation_history import grown
from figures import Figure, log
from load import request
from minutebook.infra.postgres.embedded import EmbeddedPostgres
from serving import Server, resident_kib, serving

SETTINGS = """
[server]
workers = {workers}
[conversations]
postsPerMinute = 1000000
streams = 10000
streamsPerPrincipal = 10000
viewers = 10000
"""

TURNS = 200
"""Turns of which the first delta is timed."""

CONVERSATIONS = 200
WORDS = 120
PACE_MS = 50
SETTLE_S = 1.5
"""Of the streaming, before memory is looked at for the first time."""

FIRST_DELTA_MS = 30.0
LATE_MS = 500.0
MEMORY = 1.2
"""Most that the processes may have grown from the beginning of the streaming to its end."""

LONG_TURNS, SHORT_TURNS = 10_000, 10
LONG_RATIO = 1.5


def figures(server: EmbeddedPostgres, database: str, folder: Path) -> list[Figure]:
    """All of them."""
    made: list[Figure] = []
    with serving(folder / "one", SETTINGS.format(workers=1)) as one:
        made.append(asyncio.run(_first_delta(one)))
    with serving(folder / "two", SETTINGS.format(workers=2)) as two:
        made += asyncio.run(_streaming(two))
    made += asyncio.run(_long(server, database))
    return made


class Client:
    """Requests on connections of their own."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request and its answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        try:
            data = b"" if body is None else json.dumps(body).encode()
            writer.write(request(method, path, self._server.token, data))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            answer = json.loads(await reader.readexactly(length))
            assert b" 2" in head[:12], (head, answer)
            return answer
        finally:
            writer.close()

    async def frames(self, conversation: str, ready: asyncio.Event) -> AsyncIterator[tuple[str, Any, float]]:
        """Events of its stream with when they came; `ready` is set by the first."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port, limit=1 << 20)
        try:
            writer.write(request("GET", f"/v1/conversations/{conversation}/events?tail=0", self._server.token, b""))
            event = ""
            while line := await reader.readline():
                if line.startswith(b"event:"):
                    event = line[6:].strip().decode()
                elif line.startswith(b"data:"):
                    ready.set()
                    yield event, json.loads(line[5:]), time.perf_counter()
        finally:
            writer.close()


async def _first_delta(server: Server) -> Figure:
    client = Client(server)
    conversation = (await client.call("POST", "/v1/conversations", {"agent": "echo"}))["id"]
    ready = asyncio.Event()
    sent_at = [0.0]
    took: list[float] = []
    next_one = asyncio.Event()

    async def watch() -> None:
        is_first = True
        async for event, _, at in client.frames(conversation, ready):
            if event == "delta" and is_first:
                took.append((at - sent_at[0]) * 1000)
                is_first = False
            elif event == "message" and _["role"] == "assistant":
                is_first = True
                next_one.set()

    watching = asyncio.create_task(watch())
    await ready.wait()
    for number in range(TURNS):
        next_one.clear()
        sent_at[0] = time.perf_counter()
        await client.call("POST", f"/v1/conversations/{conversation}/turns", {"text": f"message {number} of many"})
        await asyncio.wait_for(next_one.wait(), 10)
    watching.cancel()
    log(f"first delta: median {statistics.median(took):.1f} ms, p95 {_share(took, 0.95):.1f} ms of {len(took)}")
    return Figure.at_most("conversations: message to first delta, p95", _share(took, 0.95), "ms", FIRST_DELTA_MS)


async def _streaming(server: Server) -> list[Figure]:
    client = Client(server)
    late: list[float] = []
    most: list[float] = []
    done = asyncio.Semaphore(0)
    names = [(await client.call("POST", "/v1/conversations", {"agent": "echo"}))["id"] for _ in range(CONVERSATIONS)]

    async def watch(name: str, ready: asyncio.Event) -> None:
        began, words, lags = 0.0, 0, list[float]()
        async for event, data, at in client.frames(name, ready):
            if event == "delta":
                words += data["text"].count("w")
                began = began or at
                lags.append((at - began) * 1000 - (words - 1) * PACE_MS)
            elif event == "message" and data["role"] == "assistant":
                assert data["status"] == "completed", data
                done.release()
                most.extend(lags)
                late.extend(_without_drift(lags))
                return

    watching: list[asyncio.Task[None]] = []
    for name in names:
        ready = asyncio.Event()
        watching.append(asyncio.create_task(watch(name, ready)))
        await asyncio.wait_for(ready.wait(), 10)
    text = {"text": f"!slow {WORDS} {PACE_MS}"}
    await asyncio.gather(*(client.call("POST", f"/v1/conversations/{name}/turns", text) for name in names))
    await asyncio.sleep(SETTLE_S)
    pids = [server.pid, *_children(server.pid)]
    before = sum(map(resident_kib, pids))
    await asyncio.wait_for(asyncio.gather(*watching), WORDS * PACE_MS / 1000 * 5 + 30)
    after = sum(map(resident_kib, pids))
    log(
        f"streaming: {len(late)} frames, p50 {_share(late, 0.5):.0f}, p99 {_share(late, 0.99):.0f} ms;"
        f" with the script's own drift {_share(most, 0.99):.0f} ms"
    )
    return [
        Figure.at_most("conversations: 200 at 20 deltas/s, lateness p99", _share(late, 0.99), "ms", LATE_MS),
        Figure.at_most("conversations: memory while streaming", after / 1024, "MiB", MEMORY, before / 1024),
    ]


def _children(pid: int) -> list[int]:
    """Processes of Python under a process; those of the database are none of ours."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if "postgres" not in Path(f"/proc/{child}/comm").read_text():
                found.append(int(child))
                found += _children(int(child))
    return found


async def _long(server: EmbeddedPostgres, database: str) -> list[Figure]:
    url = server.url("minutebook_app", database)
    began = time.perf_counter()
    async with grown(url, SHORT_TURNS) as short, grown(url, LONG_TURNS) as long:
        log(f"a conversation of {LONG_TURNS} turns in {time.perf_counter() - began:.0f} s")
        took: dict[int, list[float]] = {SHORT_TURNS: [], LONG_TURNS: []}
        with psycopg.connect(server.url("postgres", database), autocommit=True) as superuser:
            superuser.execute("VACUUM ANALYZE")
        for _ in range(60):
            took[SHORT_TURNS].append(await short.turn())
            took[LONG_TURNS].append(await long.turn())
        cold = {SHORT_TURNS: await short.cold(), LONG_TURNS: await long.cold()}
    log(f"a new turn: {statistics.median(took[SHORT_TURNS]):.1f} and {statistics.median(took[LONG_TURNS]):.1f} ms;"
        f" cold {cold[SHORT_TURNS]:.1f} and {cold[LONG_TURNS]:.1f} ms")  # fmt: skip
    return [
        Figure.at_most(
            "conversations: a turn after 10 000 turns, to one after 10",
            statistics.median(took[LONG_TURNS]),
            "ms",
            LONG_RATIO,
            statistics.median(took[SHORT_TURNS]),
        )
    ]


def _without_drift(lags: list[float]) -> list[float]:
    """How late each frame was, without what the script's sleeps took too long: that only ever adds up, so it is at most
    the least lag of all later frames."""
    late: list[float] = []
    least = float("inf")
    for lag in reversed(lags):
        least = min(least, lag)
        late.append(lag - least)
    return late


def _share(values: list[float], share: float) -> float:
    """The value that so large a share of all does not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
