"""Following a room: snapshot, events, resuming, ends; one frame an event (http.md, SSE; rules.md 11 to 17)."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from live_server import LiveServer, Stream, follow, open_room, post, until
from minutebook.domain.ids import short_id


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the rooms of these tests."""
    return server.member("alice")


@pytest.fixture
def room(alice: httpx.Client) -> str:
    """A new room."""
    return open_room(alice)


@pytest.fixture(scope="module")
def quick(new_data_dir: Callable[[], Path]) -> Iterator[LiveServer]:
    """A server with a heartbeat every second and streams that live ten."""
    config = "[limits]\nheartbeatSeconds = 1\nstreamMaxSeconds = 10\nstreamsPerProcess = 60\n"
    with LiveServer(new_data_dir(), config=config) as running:
        yield running


SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'minutebook app'"


def seqs(stream: Stream, through: int) -> list[int]:
    return [event["seq"] for event in stream.events(through)]


def test_headers_then_retry_then_the_snapshot_then_events(alice: httpx.Client, room: str) -> None:
    post(alice, room, "before")
    with follow(alice, room) as stream:
        headers = stream.response.headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-store"
        assert headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in headers
        assert "content-length" not in headers
        first = stream.next()
        assert (first.event, first.data) == ("retry", "2000")
        state = stream.next()
        assert (state.event, state.id) == ("state", None)
        assert (state.json["throughSeq"], state.json["fromSeq"]) == (2, 1)
        events = [stream.next() for _ in range(2)]
        post(alice, room, "live")
        events.append(stream.next())
        assert [(frame.event, frame.id) for frame in events] == [("event", "1"), ("event", "2"), ("event", "3")]
        assert [frame.json["seq"] for frame in events] == [1, 2, 3]
    page = alice.get(f"/v1/rooms/{room}/events").json()["events"]
    assert [frame.json for frame in events] == page


def test_b32_no_proxy_may_compress_it(alice: httpx.Client, room: str) -> None:
    with follow(alice, room) as stream:
        assert stream.response.request.headers["accept-encoding"].startswith("gzip")
        assert "content-encoding" not in stream.response.headers
        began = time.monotonic()
        stream.next()
        assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"tail": 0}, []),
        ({"tail": 1}, [6]),
        ({"tail": 3}, [4, 5, 6]),
        ({"tail": 500}, [1, 2, 3, 4, 5, 6]),
        ({}, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_tail(alice: httpx.Client, room: str, query: dict[str, int], expected: list[int]) -> None:
    for number in range(2, 7):
        post(alice, room, f"{number}")
    with follow(alice, room, **query) as stream:
        assert stream.until("state")[-1].json["fromSeq"] == 7 - len(expected)
        post(alice, room, "live")
        assert seqs(stream, 7) == [*expected, 7]


def test_resuming_is_exact_and_the_header_wins(alice: httpx.Client, room: str) -> None:
    for number in range(2, 11):
        post(alice, room, f"{number}")
    with follow(alice, room) as stream:
        assert seqs(stream, 4) == [1, 2, 3, 4]
    with follow(alice, room, "4") as stream:
        assert stream.until("state")[-1].json["fromSeq"] == 5
        assert seqs(stream, 10) == [5, 6, 7, 8, 9, 10]
        post(alice, room, "live")
        assert seqs(stream, 11) == [11]
    with follow(alice, room, "8", afterSeq="2", tail=1) as stream:
        assert seqs(stream, 11) == [9, 10, 11]
    with follow(alice, room, afterSeq="0") as stream:
        assert seqs(stream, 11)[0] == 1
    with follow(alice, room, "11") as stream:
        assert stream.until("state")[-1].json["fromSeq"] == 12
        post(alice, room, "live")
        assert seqs(stream, 12) == [12]


def test_a_stream_opened_in_the_middle_of_appends_misses_nothing(server: LiveServer, alice: httpx.Client) -> None:
    """Field fault B23, the short form: history and live are one."""
    room, stop = open_room(alice), threading.Event()

    def write() -> int:
        writer, last = server.member("alice"), 1
        while not stop.is_set():
            last = post(writer, room, "more")["seq"]
        return last

    def read(_: int) -> list[int]:
        seen: list[int] = []
        reader = server.member("alice")
        for _ in range(4):
            with follow(reader, room, str(seen[-1]) if seen else "0") as stream:
                seen += seqs(stream, (seen[-1] if seen else 0) + 10)
        return seen

    with ThreadPoolExecutor(6) as pool:
        writing = pool.submit(write)
        readings = list(pool.map(read, range(5)))
        stop.set()
        last = writing.result()
    for seen in readings:
        assert seen == list(range(1, len(seen) + 1))
        assert len(seen) <= last


NASTY = [
    "two\nlines",
    "carriage\r\nreturn\rs",
    "line\u2028and paragraph\u2029separators, next\x85line",
    "data: forged\n\ndata: {}\nevent: closed\nid: 999\n\n",
    ": a comment\nretry: 1",
    "\ufeffid: 5",
    "<script>alert(1)</script> \\ \" ' \x1b[31m \x7f",
    "😀 e\u0301 \u202e",
]


def test_law_16_every_event_is_one_well_formed_frame(alice: httpx.Client, room: str) -> None:
    for text in NASTY:
        post(alice, room, text)
    title = "title\nevent: closed\ndata: {}\n\n"
    named = open_room(alice, title=title)
    with follow(alice, room) as stream:
        stream.until("state")
        frames = [stream.next() for _ in range(len(NASTY) + 1)]
    for frame in frames:
        lines = frame.raw.split(b"\n")
        assert [line.partition(b":")[0] for line in lines] == [b"id", b"event", b"data", b"", b""]
    assert [frame.json["payload"]["text"] for frame in frames[1:]] == NASTY
    page = alice.get(f"/v1/rooms/{room}/events").json()["events"]
    assert [frame.json for frame in frames] == page
    with follow(alice, named) as stream:
        assert stream.until("state")[-1].json["title"] == title


def test_law_16_a_payload_with_raw_line_breaks_in_the_log_is_one_frame(server: LiveServer, alice: httpx.Client) -> None:
    room = open_room(alice)
    run = short_id(9201)
    bridge = server.client(f"agent:{run}", room=room)
    bridge.post("/v1/bridge/hello")
    payload = '\n{"kind":\r\n"harness_event",\n"a" : 1}'
    body = f'{{"items":[{{"stream":"events","seq":1,"type":"state_changed","payload":{payload}}}]}}'
    pushed = bridge.post("/v1/bridge/events", content=body, headers={"content-type": "application/json"})
    assert pushed.status_code == 200, pushed.text
    with follow(alice, room) as stream:
        assert stream.events(4)[-1]["payload"] == {"kind": "harness_event", "a": 1}


@pytest.mark.parametrize("unit", ["x", "😀"])
def test_b17_sizes_around_the_notification_limit_arrive_whole(alice: httpx.Client, room: str, unit: str) -> None:
    width = len(unit.encode())
    sizes = sorted({7_900, 7_950, *range(7_980, 8_021), 8_050, 8_100})
    texts = [unit * (size // width) + "." * (size % width) for size in sizes]
    with follow(alice, room) as stream:
        stream.events(1)
        for seq, text in enumerate(texts, 2):
            assert post(alice, room, text)["seq"] == seq
        streamed = stream.events(len(texts) + 1)
    assert [event["payload"]["text"] for event in streamed] == texts
    page = alice.get(f"/v1/rooms/{room}/events", params={"afterSeq": 1, "limit": 500}).json()["events"]
    assert page == streamed
    lines = alice.get(f"/v1/rooms/{room}/transcript", params={"minSeq": len(texts) + 1, "limit": 500}).json()["lines"]
    assert [line["body"] for line in lines[1:]] == texts


def test_a_long_history_arrives_whole(server: LiveServer, alice: httpx.Client, room: str) -> None:
    bridge = server.client(f"agent:{short_id(9202)}", room=room)
    bridge.post("/v1/bridge/hello")
    for batch in range(4):
        numbers = range(batch * 500 + 1, batch * 500 + 501)
        payload = {"kind": "harness_event"}
        items = [{"stream": "events", "seq": n, "type": "state_changed", "payload": payload} for n in numbers]
        assert bridge.post("/v1/bridge/events", json={"items": items}).status_code == 200
    last = alice.get(f"/v1/rooms/{room}").json()["throughSeq"]
    with follow(alice, room, "0") as stream:
        assert seqs(stream, last) == list(range(1, last + 1))
        post(alice, room, "live")
        assert seqs(stream, last + 1) == [last + 1]


def test_a_closed_room_ends_its_streams_for_good(alice: httpx.Client, room: str) -> None:
    with follow(alice, room) as stream:
        stream.events(1)
        alice.post(f"/v1/rooms/{room}/close")
        *_, last_event, closed = stream.rest()
        assert last_event.json["payload"]["phase"] == "closed"
        assert (closed.event, closed.id, closed.json) == ("closed", None, {"reason": "room_closed"})
    with follow(alice, room) as stream:
        assert [frame.event for frame in stream.rest()] == ["retry", "state", "event", "event", "closed"]
    with follow(alice, room, "2") as stream:
        assert [frame.event for frame in stream.rest()] == ["retry", "state", "closed"]


def test_law_17_nothing_after_the_removal(server: LiveServer, alice: httpx.Client, room: str) -> None:
    bob, wanda = server.client("human:bob"), server.member("wanda")
    for name in ("bob", "wanda"):
        alice.put(f"/v1/rooms/{room}/members/human:{name}", json={"role": "watcher"})
    with follow(bob, room) as his, follow(wanda, room) as hers, follow(alice, room) as ours:
        for stream in (his, hers, ours):
            stream.events(3)
        began = time.monotonic()
        for name in ("bob", "wanda"):
            alice.delete(f"/v1/rooms/{room}/members/human:{name}")
        post(alice, room, "they are gone")
        rest = his.rest()
        assert time.monotonic() - began < 2
        assert [frame.event for frame in rest] == ["event", "closed"]
        assert rest[0].json["payload"] == {"principal": "human:bob", "change": "left"}
        assert rest[1].json == {"reason": "removed"}
        # Her right is the group's, not the membership's alone.
        assert [event["seq"] for event in hers.events(6)] == [4, 5, 6]
        assert [event["seq"] for event in ours.events(6)] == [4, 5, 6]
    refused = bob.get(f"/v1/rooms/{room}/stream")
    assert refused.status_code == 404


def test_the_stream_of_a_run_ends_with_it(server: LiveServer, alice: httpx.Client, room: str) -> None:
    run = server.client(f"agent:{short_id(9203)}", room=room)
    run.post("/v1/bridge/hello")
    with follow(run, room) as stream:
        stream.events(3)
        run.post("/v1/bridge/bye")
        assert stream.rest()[-1].json == {"reason": "run_ended"}


def test_two_viewers_live_cost_one_read(server: LiveServer, alice: httpx.Client, room: str) -> None:
    with contextlib.ExitStack() as stack:
        streams = [
            stack.enter_context(follow(alice_again, room))
            for alice_again in [server.member("alice") for _ in range(10)]
        ]
        for stream in streams:
            stream.events(1)
        before = server.metric("log_reads")
        for number in range(2, 7):
            seq = post(alice, room, f"{number}")["seq"]
            for stream in streams:
                assert seqs(stream, seq) == [seq]
        # Each event wakes the process once; a look that the safety poll or a late wake-up adds is one for all as well.
        assert server.metric("log_reads") - before <= 2 * 5 + 2


def test_b29_an_idle_stream_holds_no_connection(server: LiveServer, alice: httpx.Client, room: str) -> None:
    """More streams than the pool has connections, and every command still finds one."""
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(follow(server.member("alice"), room)) for _ in range(30)]
        for stream in streams:
            stream.events(1)
        with server.sql() as connection:
            busy = f"{SESSIONS} AND (state <> 'idle' OR xact_start IS NOT NULL)"
            until(lambda: connection.execute(busy).fetchone() == (0,), what="an idle moment")
            sessions = connection.execute(SESSIONS).fetchone()
        assert sessions is not None
        assert sessions[0] <= 10
        assert server.metric("streams") == 30
        post(alice, room, "still there")
        for stream in streams:
            assert seqs(stream, 2) == [2]


def test_b28_resets_leave_nothing_behind(server: LiveServer, alice: httpx.Client, room: str) -> None:
    token = alice.headers["authorization"]
    request = (
        f"GET /v1/rooms/{room}/stream HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\n\r\n".encode()
    )  # fmt: skip
    until(lambda: server.metric("streams") == 0, what="an empty gauge")
    for number in range(300):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
            # SO_LINGER 0: close sends a reset, at a point that differs from client to client.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(request if number % 5 else request[:60])
            if number % 5 and number % 3:
                sock.recv(1 if number % 3 == 1 else 65_536)
    until(lambda: server.metric("streams") == 0, 5, "an empty gauge")
    assert server.metric("followed_rooms") == 0
    with follow(alice, room) as stream:
        stream.events(1)
        assert server.metric("streams") == 1
    until(lambda: server.metric("streams") == 0, 5, "an empty gauge")


def test_the_heartbeat_is_a_comment_without_an_id(quick: LiveServer) -> None:
    alice = quick.member("alice")
    room = open_room(alice)
    with follow(alice, room, "1") as stream:
        stream.until("state")
        began = time.monotonic()
        beats = [stream.next() for _ in range(3)]
        assert 2 < time.monotonic() - began < 8
        assert [(frame.event, frame.id) for frame in beats] == [(":", None)] * 3
        post(alice, room, "hello")
        assert stream.until("event")[-1].id == "2"
        rest = stream.rest()
        assert (rest[-1].event, rest[-1].json) == ("reconnect", {"cursor": "2", "reason": "max_age"})


def test_too_many_streams_are_told_to_come_back(quick: LiveServer) -> None:
    alice = quick.member("alice")
    room = open_room(alice)
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(follow(quick.member("alice"), room)) for _ in range(60)]
        for stream in streams:
            stream.next()
        answer = alice.get(f"/v1/rooms/{room}/stream")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert answer.headers["retry-after"] == "2"
        stranger = quick.client("human:sam").get(f"/v1/rooms/{room}/stream")
        assert stranger.status_code == 404


def test_b31_sigterm_tells_streams_to_reconnect_and_answers_what_is_under_way(own_data_dir: Path) -> None:
    with LiveServer(own_data_dir) as server:
        alice = server.member("alice")
        room = open_room(alice)
        with server.sql() as lock, server.sql() as look, contextlib.ExitStack() as stack, ThreadPoolExecutor(1) as pool:
            streams = [stack.enter_context(follow(server.member("alice"), room)) for _ in range(20)]
            for stream in streams:
                stream.events(1)
            lock.autocommit = False
            lock.execute("SELECT FROM minutebook.streams WHERE name = %s FOR NO KEY UPDATE", (f"room:{room}",))
            saying = pool.submit(post, server.member("alice"), room, "just in time")
            waiting = f"{SESSIONS} AND wait_event_type = 'Lock'"
            until(lambda: look.execute(waiting).fetchone() == (1,), what="the append")
            began = time.monotonic()
            server.process.terminate()
            ends = [stream.rest()[-1] for stream in streams]
            lock.rollback()
            assert saying.result()["seq"] == 2
            assert server.stop() == 0
            assert time.monotonic() - began < 10
            for end in ends:
                assert (end.event, end.json) == ("reconnect", {"cursor": "1", "reason": "server_stopping"})
        assert "error" not in server.logs().lower()
        server.start()
        with follow(server.member("alice"), room, "1") as stream:
            assert [event["payload"]["text"] for event in stream.events(2)] == ["just in time"]
