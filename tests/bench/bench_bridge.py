"""A bridge that pushes: the rate into one room, how soon viewers see it, and what redaction is of a POST."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from bench_http import open_rooms
from bench_redaction import SENTENCE, TALK, us
from bench_streams import Stream, follow, until_true
from figures import Figure, log
from load import request, run
from minutebook.domain.ids import short_id
from minutebook.infra.redaction.engine import Redactor
from minutebook.infra.redaction.known import forms_of_key
from minutebook.infra.redaction.rules import shipped_rules
from serving import Server, serving

ROUNDS = 3
BATCH = 100
OUTPUT_CHARS = 2048
BATCHES = 60
GOAL = 4_000

BRIDGES = 8
VIEWERS_EACH = 50
ITEMS_EACH = 5
EVERY_S = 0.5
"""Each bridge pushes so many results so often: 80 events a second, 4 000 frames a second of 2 KiB."""

SECONDS = 8.0
LAST_FRAME_S = 10.0

CONNECTIONS = 8
POST_S = 3.0
MESSAGE = ((SENTENCE * 3 + TALK) * 4)[:1024]
"""One sentence in four has words that the rules look at more closely."""

RECORDED = Path(__file__).parents[2] / "infra" / "demo"

SETTINGS = """
[limits]
streamsPerProcess = 5000
roomEvents = 1000000
"""


def outputs() -> list[str]:
    """What tools said in a recorded run, in pieces of OUTPUT_CHARS."""
    runs = [msgspec.json.decode(path.read_bytes()) for path in sorted(RECORDED.glob("*.traj"))]
    text = "".join(step["observation"] for each in runs for step in each["trajectory"])
    text *= 1 + OUTPUT_CHARS * BATCH // len(text)
    return [text[at : at + OUTPUT_CHARS] for at in range(0, OUTPUT_CHARS * BATCH, OUTPUT_CHARS)]


class Bridge:
    """A run that said hello, on one connection."""

    def __init__(self, server: Server, room: str, run_id: str) -> None:
        self._server = server
        self._token = server.token_of("agent", run_id, room)
        self._stream: Stream | None = None
        self._lease = ""
        self._seq = 0

    async def hello(self) -> None:
        """Take the room."""
        self._stream = await asyncio.open_connection("127.0.0.1", self._server.port)
        self._lease = msgspec.json.decode(await self._send("/v1/bridge/hello", b""))["lease"]

    def batch(self, texts: Sequence[str]) -> bytes:
        """The body of the next push: a tool result each."""
        items: list[Any] = []
        for text in texts:
            self._seq += 1
            payload = {
                "callId": f"c{self._seq}",
                "status": "ok",
                "output": text,
                "truncated": False,
                "bytes": len(text),
            }
            items.append({"stream": "events", "seq": self._seq, "type": "tool_result", "payload": payload})
        return msgspec.json.encode({"items": items, "lease": self._lease})

    async def push(self, body: bytes) -> None:
        """Push, and wait for the answer."""
        await self._send("/v1/bridge/events", body)

    async def _send(self, path: str, body: bytes) -> bytes:
        assert self._stream is not None
        reader, writer = self._stream
        writer.write(request("POST", path, self._token, body))
        head = await reader.readuntil(b"\r\n\r\n")
        answer = await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
        assert b" 200 " in head[:14], answer
        return answer


async def rate(server: Server, number: int) -> float:
    """Events a second from one bridge into one room, one batch after another."""
    room = (await open_rooms(server, 1))[0]
    bridge = Bridge(server, room, short_id(number))
    await bridge.hello()
    texts = outputs()
    bodies = [bridge.batch(texts) for _ in range(BATCHES)]
    began = time.perf_counter()
    for body in bodies:
        await bridge.push(body)
    return BATCHES * BATCH / (time.perf_counter() - began)


async def latency(server: Server, number: int) -> float:
    """p95 in ms from the send of a batch to a frame of it at a viewer, while all bridges push."""
    rooms = await open_rooms(server, BRIDGES)
    bridges = [Bridge(server, room, short_id(number + place)) for place, room in enumerate(rooms)]
    for bridge in bridges:
        await bridge.hello()
    streams = [await follow(server, room) for room in rooms for _ in range(VIEWERS_EACH)]
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

    texts = [text[:-16] for text in outputs()]
    marks = iter(range(1_000_000))

    async def work(bridge: Bridge, at: float) -> int:
        pushed = 0
        end = at + SECONDS
        while at < end:
            await asyncio.sleep(at - time.perf_counter())
            mark = b"<m%d" % next(marks)
            sent[mark] = time.perf_counter()
            await bridge.push(bridge.batch([f"{mark.decode()}>{text}" for text in texts[:ITEMS_EACH]]))
            pushed += ITEMS_EACH
            at += EVERY_S
        return pushed

    views = [asyncio.create_task(view(reader)) for reader, _ in streams]
    now = time.perf_counter()
    begun = [work(bridge, now + place * EVERY_S / BRIDGES) for place, bridge in enumerate(bridges)]
    expected = sum(await asyncio.gather(*begun)) * VIEWERS_EACH
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(until_true(lambda: len(found) == expected, moved), LAST_FRAME_S)
    for task in views:
        task.cancel()
    for _, writer in streams:
        writer.close()
    assert len(found) == expected, f"{len(found)} of {expected} frames came"
    return sorted(found)[int(len(found) * 0.95)]


def redaction(server: Server) -> Figure:
    """Microseconds that a message of 1 KiB is redacted in, beside those that the server takes for its POST."""
    rooms = asyncio.run(open_rooms(server, 64))
    body = msgspec.json.encode({"text": MESSAGE})
    turn = iter(range(1_000_000))

    def post() -> bytes:
        return server.post(f"/v1/rooms/{rooms[next(turn) % len(rooms)]}/messages", body)

    rates: list[float] = []
    for _ in range(ROUNDS):
        done, failed = asyncio.run(
            run("127.0.0.1", server.port, post, connections=CONNECTIONS, seconds=POST_S)
        )  # fmt: skip
        assert failed == 0
        rates.append(done)
    redactor = Redactor(shipped_rules(), forms_of_key(bytes(range(32))) | forms_of_key(bytes(range(64, 96))))
    message = {"kind": "chat", "text": MESSAGE, "to": [], "delivery": "none"}
    cost = us(lambda: redactor.value(message))
    return Figure.at_most("redaction_of_a_post", cost, "us", 0.15, 1e6 / statistics.median(rates))


def figures(_server: Any, _database: str, folder: Path) -> list[Figure]:
    """The figures of issue 4."""
    with serving(folder / "bridge", SETTINGS) as server:
        log("bridge, one that pushes")
        pushed = statistics.median(asyncio.run(rate(server, 1_000 + n)) for n in range(ROUNDS))
        log("bridge, eight that push to fifty viewers each")
        p95 = statistics.median(asyncio.run(latency(server, 2_000 + n * BRIDGES)) for n in range(ROUNDS))
        log("bridge, redaction of a POST")
        share = redaction(server)
    return [
        Figure.ratio_of("bridge_push", pushed, "events/s", GOAL, 1.0),
        Figure.at_most("bridge_to_viewer_p95", p95, "ms", 100.0),
        share,
    ]
