"""Two server processes on one database: what a room promises holds whichever of them is asked."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from approvers import approved_room
from bridges import Bridge, new_run_id
from live_server import LiveServer, open_room
from mcp_steps import ok, request, result_of
from outside import Forge, lost_after, serving
from scratch import SCRATCH

CONFIG = """
[limits]
heartbeatSeconds = 1
roomToolIntervalMs = 0
[verdicts]
baseUrl = "{forge}"
token = "right"
allowLoopback = true
"""

PULL = "https://github.com/acme/widget/pull/7"


@pytest.fixture(scope="package")
def forge() -> Iterator[Forge]:
    """Where verdicts become comments."""
    outside = Forge()
    with serving(outside):
        yield outside


@pytest.fixture(scope="package")
def server(forge: Forge) -> Iterator[LiveServer]:
    """The one that has the projector and the jobs, too."""
    config = CONFIG.format(forge=forge.url)
    with (
        tempfile.TemporaryDirectory(prefix="mba", dir=SCRATCH) as folder,
        LiveServer(Path(folder) / "data", config=config) as live,
    ):
        yield live


@pytest.fixture(scope="package")
def other(server: LiveServer) -> Iterator[LiveServer]:
    """One that only serves, and knows of the first one's commands by the log alone."""
    with LiveServer(server.data_dir, arguments=["--role", "http"]) as live:
        yield live


class Left(NamedTuple):
    """What nobody looks after. waiting: the bridge of a run whose request nobody decides, and the request; reviewer:
    that of one that said a verdict, whose seq that is."""

    waiting: Bridge
    asked: dict[str, Any]
    reviewer: Bridge
    verdict: int


@pytest.fixture(scope="package", autouse=True)
def left(server: LiveServer, forge: Forge) -> Left:
    """Made before everything else: it takes the server half a minute to do what it has to, while other tests run.

    The forge's first answer to a comment gets lost.
    """
    waiting = approved_room(server, profile="unattended", overrides={"forge.pr": "human"}, ttl="1s")
    asked = waiting.ask("e1").json()
    forge.troubles = lambda each: each.method == "POST"
    forge.mischief.append(lost_after)
    alice, run_id = server.member("alice"), new_run_id()
    room = open_room(alice, repository="acme/widget")
    body = {"roomId": room, "role": "reviewer", "taskUrl": PULL}
    assert alice.put(f"/v1/runs/{run_id}", json=body).status_code == 201
    reviewer = Bridge(server, room, run_id, role="reviewer").hello()
    arguments = {"verdict": "approve", "summary": "It holds.", "commit": "0123abc"}
    call = request("tools/call", name="room_verdict", arguments=arguments)
    first, again = (
        ok(result_of(reviewer.client.post("/mcp", json=call, headers={"idempotency-key": "verdict"}))) for _ in range(2)
    )
    assert first["seq"] == again["seq"]
    return Left(waiting, asked, reviewer, first["seq"])
