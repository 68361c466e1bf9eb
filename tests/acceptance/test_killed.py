"""SC-2, SC-16: server processes are killed, and nothing is lost (rooms.md, Done means)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from approvers import WORDS, approved_room, approvers_at, both_decide, decisions
from bridges import Bridge, frames
from fault_steps import kill_group
from live_server import LiveServer, open_room
from scratch import SCRATCH
from viewers import Viewer, Writer, assert_once, log_of

Pair = tuple[LiveServer, LiveServer]


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    """Two servers on one database, of this file's own."""
    with tempfile.TemporaryDirectory(prefix="mba", dir=SCRATCH) as folder:
        place = Path(folder) / "data"
        with LiveServer(place) as first, LiveServer(place, arguments=["--role", "http"]) as second:
            yield first, second


@pytest.fixture
def pair(servers: Pair) -> Pair:
    """Both of them alive."""
    for each in servers:
        if each.process.poll() is not None:
            each.start()
    return servers


def test_sc_16_what_waits_outlives_all_processes(pair: Pair) -> None:
    """An approval, a steering message and the queue, when every server process is killed at once."""
    first, second = pair
    bridge = approved_room(first)
    asked = bridge.ask("e1", action={"command": "gh pr create"}).json()
    steering = bridge.steer("to the left")
    messages = [{"text": text, "delivery": "queued"} for text in ("one", "two", "three")]
    queued = [bridge.alice.post(f"/v1/rooms/{bridge.room}/messages", json=body).json()["seq"] for body in messages]
    before = bridge.alice.get(f"/v1/rooms/{bridge.room}/approvals").json()["approvals"]
    for each in (first, second):
        kill_group(psutil.Process(each.process.pid))
    for each in (first, second):
        each.kill()
        each.start()
    alice = second.member("alice")
    assert alice.get(f"/v1/rooms/{bridge.room}/approvals").json()["approvals"] == before
    assert [each["expiresAt"] for each in before] == [asked["expiresAt"]]
    snapshot = alice.get(f"/v1/rooms/{bridge.room}").json()
    assert [(each["ref"], each["text"]) for each in snapshot["queue"]] == list(
        zip(queued, ("one", "two", "three"), strict=True)
    )
    back = Bridge(second, bridge.room, bridge.run_id).hello()
    with back.stream() as stream, ThreadPoolExecutor(2) as pool:
        assert frames(stream, 1) == [("deliver", {"ref": steering, "text": "to the left"})]
        decision, _ = both_decide(pool, approvers_at(first, second), bridge.room, asked)
        ((event, data),) = frames(stream, 1)
        assert (event, data["approvalId"], data["allow"]) == ("decision", asked["approvalId"], decision == WORDS[0])
        assert data["actionDigest"] == asked["actionDigest"]
    assert len(decisions(back)) == 1


def test_sc_2_viewers_of_a_killed_server_resume_with_no_gap_and_no_duplicate(pair: Pair) -> None:
    first, second = pair
    alice = second.member("alice")
    room, token = open_room(alice), second.token("human:alice", "agents-member")
    serving = [first, second]

    async def body() -> tuple[list[Viewer], list[Writer]]:
        viewers = [Viewer(lambda n=n: serving[n % len(serving)].url, room, token) for n in range(6)]
        writers = [Writer(lambda n=n: serving[n % len(serving)].url, room, token, f"w{n}") for n in range(4)]
        stop = asyncio.Event()
        watching = [asyncio.create_task(keep(viewer, stop)) for viewer in viewers]
        writing = [asyncio.create_task(writer.talk(stop.is_set)) for writer in writers]
        await until_said(writers, 20)
        serving.remove(first)
        await asyncio.to_thread(first.kill)
        await until_said(writers, 20)
        stop.set()
        await asyncio.gather(*writing)
        head = max(max(writer.acknowledged.values()) for writer in writers)
        await asyncio.gather(*watching)
        for viewer in viewers:
            await viewer.finish(head)
        for writer in writers:
            await writer.close()
        return viewers, writers

    viewers, writers = asyncio.run(body())
    log = log_of(alice, room)
    assert_once(log, *writers)
    for viewer in viewers:
        viewer.assert_equals(log)
    assert sorted(viewer.connections for viewer in viewers)[-3] > 1, "those of the killed server came back"


async def keep(viewer: Viewer, stop: asyncio.Event) -> None:
    """Be connected until `stop`, however often the connection ends."""
    while not stop.is_set():
        watching = asyncio.create_task(viewer.watch(30))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([watching, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (watching, stopping):
            task.cancel()
        await asyncio.gather(watching, stopping, return_exceptions=True)


async def until_said(writers: list[Writer], more: int) -> None:
    """Return when each of them had so many more answers."""
    goals = {writer.name: len(writer.acknowledged) + more for writer in writers}
    async with asyncio.timeout(30):
        while any(len(writer.acknowledged) < goals[writer.name] for writer in writers):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
