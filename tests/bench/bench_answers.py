"""What it costs a turn that its answer goes to many channels: the same turn with targets and without, by turns."""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from bench_conversations import Client
from bench_deliveries import FAN_OUT, receivers
from figures import Figure, log
from minutebook.infra.postgres.embedded import EmbeddedPostgres
from serving import Server, serving

SETTINGS = """
[conversations]
postsPerMinute = 1000000
"""
CHANNEL = """
[channels.hook{number}]
kind = "webhook"
url = "{url}"
secret = "whsec_c2VjcmV0IG9mIHRoZSBiZW5jaCwgdGhpcnR5LXR3byBieXRlcw=="
allowLoopback = true
"""

TURNS = 60
WARM = 5
ADDED_MS = 5.0
SETTLE_S = 0.1
"""Behind each turn, whose own late work is nobody's delay."""

_LEFT = "SELECT count(*) FROM minutebook.deliveries WHERE state <> 'accepted'"
_ALL = "SELECT count(*) FROM minutebook.deliveries"


def figures(server: EmbeddedPostgres, database: str, folder: Path) -> list[Figure]:
    """All figures of this part."""
    _ = server, database
    with receivers() as urls:
        places = list(urls.values())
        channels = [CHANNEL.format(number=n, url=places[n % len(places)]) for n in range(FAN_OUT)]
        with serving(folder / "targets", SETTINGS + "".join(channels)) as served:
            return asyncio.run(_turns(served, folder / "targets"))


async def _turns(server: Server, data_dir: Path) -> list[Figure]:
    client = Client(server)
    conversation = (await client.call("POST", "/v1/conversations", {"agent": "echo"}))["id"]
    ready, posted, ended = asyncio.Event(), ([], []), ([], [])
    recorded: asyncio.Queue[float] = asyncio.Queue()

    async def watch() -> None:
        async for event, data, _ in client.frames(conversation, ready):
            if event == "message" and data["role"] == "assistant":
                recorded.put_nowait(datetime.fromisoformat(data["ts"]).timestamp())

    watching = asyncio.create_task(watch())
    await ready.wait()
    target = {"kind": "channels", "channels": [f"hook{n}" for n in range(FAN_OUT)]}
    database = EmbeddedPostgres.open(data_dir)
    try:
        with psycopg.connect(database.url(), autocommit=True) as look:
            for number in range(TURNS + WARM):
                for with_targets in (number % 2 == 0, number % 2 == 1):
                    body: dict[str, Any] = {"text": f"message {number}"}
                    if with_targets:
                        body["responseTarget"] = target
                    began, at = time.perf_counter(), time.time()
                    await client.call("POST", f"/v1/conversations/{conversation}/turns", body)
                    posted[with_targets].append((time.perf_counter() - began) * 1000)
                    # By the record's own time: behind it the deliveries begin, which share the machine with the viewer.
                    ended[with_targets].append((await asyncio.wait_for(recorded.get(), 10) - at) * 1000)
                    await _sent(look, len(ended[True]) * FAN_OUT)
                    await asyncio.sleep(SETTLE_S)
    finally:
        database.close()
        watching.cancel()
    (plain_post, target_post), (plain, targets) = (
        [statistics.median(each[WARM:]) for each in both] for both in (posted, ended)
    )
    log(f"POST of a turn: plain {plain_post:.1f} ms, with {FAN_OUT} targets {target_post:.1f} ms")
    log(f"until its reply is recorded: plain {plain:.1f} ms, with {FAN_OUT} targets {targets:.1f} ms")
    return [
        Figure.at_most(f"{FAN_OUT} targets add to the POST of a turn", target_post - plain_post, "ms", ADDED_MS),
        Figure.at_most(f"{FAN_OUT} targets add to a turn until its reply is recorded", targets - plain, "ms", ADDED_MS),
    ]


async def _sent(look: psycopg.Connection, count: int) -> None:
    """Return once all that was planned is sent: the next turn has the machine for itself."""
    until = time.monotonic() + 30
    while look.execute(_ALL).fetchone() != (count,) or look.execute(_LEFT).fetchone() != (0,):
        assert time.monotonic() < until, f"{count} deliveries were not sent within 30 s"
        await asyncio.sleep(0.02)
