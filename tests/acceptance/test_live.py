"""SC-1, SC-2, SC-12: the log has no gap, and viewers have all of it, soon (rooms.md, Done means)."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from append_helpers import one
from bridges import Bridge, item
from live_server import LiveServer, follow, open_room, post
from viewers import Viewer, Writer, assert_once, log_of

GAPS = "SELECT count(*) FROM (SELECT FROM minutebook.events GROUP BY stream_id HAVING max(seq) <> count(*)) AS gaps"
WRITERS = 8
POSTS = 100
VIEWERS = 8
P95_S = 0.5


def test_sc_1_the_log_is_gapless(server: LiveServer, other: LiveServer) -> None:
    """People and a run write through both processes, some of it refused."""
    bridge = Bridge(server).hello()
    clients = [(server, other)[place % 2].member("alice") for place in range(WRITERS)]

    def say(place: int) -> set[int]:
        url, seqs = f"/v1/rooms/{bridge.room}/messages", set[int]()
        for number in range(15):
            answer = clients[place].post(url, json={"text": f"{place} {number}"})
            assert answer.status_code in (201, 503), answer.text
            seqs |= {answer.json()["seq"]} if answer.is_success else set()
            assert clients[place].post(url, json={"text": ""}).status_code == 422
        return seqs

    with ThreadPoolExecutor(WRITERS) as pool:
        saying = [pool.submit(say, place) for place in range(WRITERS)]
        for number in range(20):
            assert bridge.push(item(2 * number + 1), item(2 * number + 2)).status_code == 200
        said = [seq for job in saying for seq in job.result()]
    log = log_of(bridge.alice, bridge.room)
    assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
    assert len(said) == len(set(said)) == len([event for event in log if event["type"] == "message"])
    with server.sql() as look:
        assert one(look, GAPS) == 0


def test_sc_2_viewers_of_a_killed_server_resume_with_no_gap_and_no_duplicate(data_dir: Path) -> None:
    with LiveServer(data_dir) as first, LiveServer(data_dir, arguments=["--role", "http"]) as second:
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


def test_sc_12_an_append_is_with_its_viewers_within_half_a_second(server: LiveServer, other: LiveServer) -> None:
    """From before the command is sent to when the frame is read, by viewers at both processes; the 95th percentile."""
    room = open_room(server.member("alice"))
    took: list[float] = []

    def watch(client: httpx.Client) -> dict[int, float]:
        with follow(client, room) as stream:
            stream.until("state")
            return {event["seq"]: time.monotonic() for event in iterate(stream, POSTS + 1)}

    with ThreadPoolExecutor(VIEWERS) as pool:
        places = [(server, other)[number % 2] for number in range(VIEWERS)]
        watching = [pool.submit(watch, place.member("alice")) for place in places]
        writers = [server.member("alice"), other.member("alice")]
        sent: dict[int, float] = {}
        for number in range(POSTS):
            began = time.monotonic()
            sent[post(writers[number % 2], room, f"message {number}")["seq"]] = began
        for job in watching:
            arrived = job.result(30)
            took += [arrived[seq] - began for seq, began in sent.items()]
    assert len(took) == VIEWERS * POSTS
    assert sorted(took)[int(len(took) * 0.95)] < P95_S


def iterate(stream: Any, through: int) -> Any:
    """Envelopes up to that seq, as they come."""
    seq = 0
    while seq < through:
        event = stream.until("event")[-1].json
        seq = event["seq"]
        yield event


def test_a_member_removed_while_streaming_gets_nothing_behind_the_removal(
    server: LiveServer, other: LiveServer
) -> None:
    """In a room where others go on talking: the stream at the other process ends by the next event."""
    alice = server.member("alice")
    room = open_room(alice, members=[{"principal": "human:carl", "role": "collaborator"}])
    carl, talker = other.client("human:carl"), other.member("alice")
    with follow(carl, room, tail=0) as stream, ThreadPoolExecutor(1) as pool:
        stream.until("state")
        talking = pool.submit(lambda: [post(talker, room, f"to those who are in {n}") for n in range(30)])
        assert stream.events(3)
        removed = alice.delete(f"/v1/rooms/{room}/members/human:carl")
        assert removed.status_code == 200, removed.text
        began = time.monotonic()
        rest = stream.rest()
        assert time.monotonic() - began < 2
        talking.result()
        assert rest[-1].event == "closed"
        assert rest[-1].json == {"reason": "removed"}
        last = [int(frame.id) for frame in rest if frame.id is not None]
        assert last[-1:] in ([], [removed.json()["seq"]])
    assert carl.get(f"/v1/rooms/{room}/events").status_code == 404
