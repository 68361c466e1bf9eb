"""SC-1, SC-12: the log has no gap, and viewers have it soon (rooms.md, Done means)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from append_helpers import one
from bridges import Bridge, item
from live_server import LiveServer, follow, open_room, post
from viewers import log_of

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
