"""Following a conversation: records, running replies, resuming, ends, limits (http.md, SSE; rules.md 11 to 17)."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from bad_input import refused
from live_server import LiveServer, until
from talks import ask, frame, history, listen, reply, say, start, status, words

NARROW = """
[limits]
heartbeatSeconds = 1
[conversations]
streams = 6
streamsPerPrincipal = 2
viewers = 2
streamMaxSeconds = 10
authorizeSeconds = 1
"""

LONG = "\u00e9" * 31_000
SOCKET_BYTES = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
MORE_THAN_BUFFERS = (SOCKET_BYTES + (1 << 20)) // (4 * len(LONG))
"""Turns of which questions and answers fill all that lies between the server and somebody who does not read."""


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the conversations of these tests."""
    return server.member("alice")


@pytest.fixture(scope="module")
def narrow(new_data_dir: Callable[[], Path]) -> Iterator[LiveServer]:
    """A server with narrow limits; each test has principals of its own."""
    env = {"MINUTEBOOK_CONVERSATIONS_STREAMS_PER_PRINCIPAL": "2", "MINUTEBOOK_CONVERSATIONS_POSTS_PER_MINUTE": "20"}
    with LiveServer(new_data_dir(), config=NARROW, env=env) as server:
        yield server


def test_headers_then_retry_then_the_status_then_what_comes(alice: httpx.Client) -> None:
    talk = start(alice)
    with listen(alice, talk) as stream:
        headers = stream.response.headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-store"
        assert headers["x-accel-buffering"] == "no"
        assert headers["x-content-type-options"] == "nosniff"
        first, second = stream.next(), stream.next()
        assert (first.event, first.data) == ("retry", "2000")
        assert (second.event, second.id, second.json) == ("status", None, {**status(alice, talk), "cursor": "1.0"})
        say(alice, talk, "hello, dear world")
        question = stream.next()
        assert (question.event, question.id, question.json["role"]) == ("message", "1.1", "user")
        text, said = words(stream, 1)
        assert said.id == "1.2"
        assert said.json["text"].startswith(text)
        assert said.json["text"] == "echo: hello, dear world"
        assert [question.json, said.json] == history(alice, talk)


@pytest.mark.parametrize(
    ("query", "last", "expected"),
    [
        ({}, None, [1, 2, 3, 4, 5, 6]),
        ({"tail": 0}, None, []),
        ({"tail": 2}, None, [5, 6]),
        ({"cursor": "1.4"}, None, [5, 6]),
        ({"cursor": "1.0", "tail": 1}, None, [1, 2, 3, 4, 5, 6]),
        ({"cursor": "1.1", "tail": 1}, "1.5", [6]),
        ({"cursor": "1.6"}, None, []),
        ({"cursor": "999999999.0"}, None, []),
        ({}, "7.1", []),
    ],
)
def test_where_it_begins(
    alice: httpx.Client, six: str, query: dict[str, str], last: str | None, expected: list[int]
) -> None:
    with listen(alice, six, last, **query) as stream:
        frames = stream.until("closed")
        assert [each.json["ord"] for each in frames if each.event == "message"] == expected
        is_clamped = query.get("cursor", last) in ("999999999.0", "7.1")
        assert frames[0].json.get("clamped") == (True if is_clamped else None)
        assert frames[-1].json == {"reason": "conversation_closed"}
        assert stream.rest() == []


@pytest.fixture(scope="module")
def six(alice: httpx.Client) -> str:
    """A closed conversation of six records."""
    talk = start(alice)
    for number in range(3):
        ask(alice, talk, f"word {number}")
    assert alice.post(f"/v1/conversations/{talk}/close", json={}).status_code == 200
    until(lambda: status(alice, talk)["state"] == "closed", what="the close")
    return talk


def test_a_viewer_may_come_in_mid_reply_and_come_back(alice: httpx.Client) -> None:
    talk = start(alice)
    say(alice, talk, "!slow 60 20")
    with listen(alice, talk) as first:
        frame(first, "delta")
        with listen(alice, talk) as second:
            found = frame(second, "partial", "delta")
            assert found.event == "partial"
            text = found.json["text"]
            assert text.startswith("w1 ")
            text += frame(second, "delta").json["text"]
        with listen(alice, talk, "1.1") as third:
            found = frame(third, "partial", "delta", "message")
            assert found.event == "partial", "no record comes twice"
            assert found.json["text"].startswith(text)
            whole, said = words(third, 1, found.json["text"])
    expected = " ".join(f"w{number}" for number in range(1, 61))
    assert said.json["text"] == expected
    assert expected.startswith(whole)


def test_going_away_stops_nothing(alice: httpx.Client) -> None:
    talk = start(alice)
    say(alice, talk, "!slow 40 10")
    with listen(alice, talk) as stream:
        frame(stream, "delta")
    assert reply(alice, talk, 1)["status"] == "completed"


@pytest.mark.parametrize(
    "text",
    [
        "a\nevent: error\ndata: {}\n\nid: 9.9",
        "a\r\n\r\nevent: closed\r\ndata: {}\r\n\r\n",
        "\u2028event: x\u2029\x85\x0b\x0c\x1c",
        'quotes " and \\ and </script><!--',
        "data: one\ndata: two",
    ],
)
def test_no_words_can_forge_a_frame(alice: httpx.Client, text: str) -> None:
    talk = start(alice)
    with listen(alice, talk) as stream:
        say(alice, talk, text)
        question = frame(stream, "message")
        assert question.json["text"] == text
        _, said = words(stream, 1)
        assert said.json["text"] == f"echo: {text}" or said.json["text"].split() == f"echo: {text}".split()
        assert (question.id, said.id) == ("1.1", "1.2")


def test_what_somebody_else_says_is_never_heard(server: LiveServer, alice: httpx.Client) -> None:
    bob = server.member("bob", tenant="elsewhere")
    talks = {alice: start(alice), bob: start(bob)}
    with listen(alice, talks[alice]) as hers, listen(bob, talks[bob]) as his:
        say(alice, talks[alice], "!slow 20 10")
        say(bob, talks[bob], "theirs alone")
        for stream, own in ((hers, "w20"), (his, "echo: theirs alone")):
            text, said = words(stream, 1)
            assert said.json["text"].endswith(own)
            assert said.json["text"].startswith(text)


def test_a_close_ends_every_stream(alice: httpx.Client) -> None:
    talk = start(alice)
    say(alice, talk, "!hang")
    with listen(alice, talk) as first, listen(alice, talk) as second:
        frame(first, "message")
        say(alice, talk, "waits")
        assert alice.post(f"/v1/conversations/{talk}/close", json={}).status_code == 200
        for stream in (first, second):
            frames = stream.until("closed")
            records = [each.json for each in frames if each.event == "message"]
            assert [each["status"] for each in records][-2:] == ["interrupted", "rejected"]
            assert records[-1]["reason"] == "closed"
            assert frames[-1].json == {"reason": "conversation_closed"}
            assert stream.rest() == []


def test_only_so_many_streams_are_open(narrow: LiveServer) -> None:
    ann = narrow.member("ann")
    talk, other = start(ann), start(ann)
    with ExitStack() as stack:
        first = stack.enter_context(listen(ann, talk))
        stack.enter_context(listen(ann, talk))
        answer = ann.get(f"/v1/conversations/{talk}/events")
        refused(answer, 429, "rate_limited")
        assert int(answer.headers["retry-after"]) >= 1
        refused(ann.get(f"/v1/conversations/{other}/events"), 429, "rate_limited")
        refused(narrow.member("eve").get(f"/v1/conversations/{talk}/events"), 404, "not_found")
        for name in ("ben", "cid"):
            client = narrow.member(name)
            for _ in range(2):
                stack.enter_context(listen(client, start(client)))
        last = narrow.member("dan")
        refused(last.get(f"/v1/conversations/{start(last)}/events"), 503, "unavailable")
        first.response.close()
        until(lambda: last.head(f"/v1/conversations/{start(last)}/events").status_code == 200, what="a place")


def test_a_stream_lives_so_long_and_says_where_to_go_on(narrow: LiveServer) -> None:
    fay = narrow.member("fay")
    talk = start(fay)
    ask(fay, talk, "hello")
    began = time.monotonic()
    with listen(fay, talk) as stream:
        frames = stream.rest()
    assert 8 < time.monotonic() - began < 15
    assert [each.event for each in frames] == ["retry", "status", "message", "message", "reconnect"]
    assert frames[-1].json == {"cursor": "1.2", "reason": "max_age"}


def test_it_ends_with_its_token(narrow: LiveServer) -> None:
    gus = narrow.member("gus", ttl_s=1, now=time.time() - 28)
    talk = start(gus)
    with listen(gus, talk) as stream:
        frames = stream.rest()
    assert frames[-1].json == {"cursor": "1.0", "reason": "token_expired"}


def test_so_many_posts_are_taken_a_minute(narrow: LiveServer) -> None:
    ida = narrow.member("ida")
    talk = start(ida, id="talk")
    seen = [ida.post(f"/v1/conversations/{talk}/interrupt", json={}).status_code for _ in range(20)]
    assert seen == [202] * 19 + [429]
    answer = ida.post(f"/v1/conversations/{talk}/turns", json={"text": "more"})
    refused(answer, 429, "rate_limited")
    assert int(answer.headers["retry-after"]) > 30
    assert narrow.member("jim").post(f"/v1/conversations/{talk}/turns", json={"text": "x"}).status_code == 404
    assert ida.get(f"/v1/conversations/{talk}").status_code == 200


def test_a_heartbeat_comes_while_nothing_moves(narrow: LiveServer) -> None:
    kim = narrow.member("kim")
    with listen(kim, start(kim)) as stream:
        assert [stream.next().event for _ in range(3)] == ["retry", "status", ":"]


def test_who_does_not_read_gets_fewer_longer_deltas(alice: httpx.Client, server: LiveServer) -> None:
    talk = start(alice)
    token = server.token("human:alice", "agents-member")
    with socket.create_connection(("127.0.0.1", server.port)) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = f"GET /v1/conversations/{talk}/events HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}"
        wire.sendall(f"{head}\r\n\r\n".encode())
        assert wire.recv(1024).startswith(b"HTTP/1.1 200")
        say(alice, talk, "!slow 1500 0")
        said = reply(alice, talk, 1, within_s=30)
        assert said["text"].endswith("w1500")
        assert alice.post(f"/v1/conversations/{talk}/close", json={}).status_code == 200
        wire.settimeout(10)
        rest = b""
        while chunk := wire.recv(65_536):
            rest += chunk
            if b"event: closed" in rest:
                break
    assert said["text"].encode() in rest


def test_who_reads_no_records_is_cut_off_and_resumes_without_a_hole(server: LiveServer, alice: httpx.Client) -> None:
    """The server is stuck in a write when more than streamPendingBytes come behind it."""
    talk, last = start(alice), 2 * MORE_THAN_BUFFERS
    # Left alone, the reader's side could take in as much as the server's, and nobody would be stuck.
    options = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)]
    narrow = httpx.HTTPTransport(socket_options=options)
    with (
        httpx.Client(base_url=server.url, headers=alice.headers, timeout=alice.timeout, transport=narrow) as reader,
        listen(reader, talk) as stream,
    ):
        for number in range(MORE_THAN_BUFFERS):
            say(alice, talk, f"{number} " + LONG)
            if number % 16 == 15:
                recorded(alice, talk, 2 * number + 2)
        recorded(alice, talk, last)
        frames = stream.until("reconnect")
        assert stream.rest() == []
    heard = [each.json["ord"] for each in frames if each.event == "message"]
    assert frames[-1].json == {"cursor": f"1.{heard[-1]}", "reason": "slow_consumer"}
    assert heard[-1] < last, "it was cut off before the end"
    with listen(alice, talk, frames[-1].json["cursor"]) as stream:
        while heard[-1] < last:
            heard.append(frame(stream, "message").json["ord"])
    assert heard == list(range(1, last + 1))


def recorded(client: httpx.Client, talk: str, ord_: int) -> None:
    """Returns once that record is there; asks for no other one, as they are long."""
    until(lambda: history(client, talk, cursor=f"1.{ord_ - 1}", limit=1), 60, f"record {ord_}")


def test_many_viewers_of_one_reply_all_get_it_whole(alice: httpx.Client) -> None:
    talk = start(alice)

    def view(_number: int) -> str:
        with listen(alice, talk) as stream:
            return words(stream, 1)[1].json["text"]

    with ThreadPoolExecutor(12) as pool:
        viewing = [pool.submit(view, number) for number in range(12)]
        say(alice, talk, "!slow 50 5")
        texts = {each.result(30) for each in viewing}
    assert texts == {" ".join(f"w{number}" for number in range(1, 51))}


def test_head_has_the_headers_alone(alice: httpx.Client) -> None:
    answer = alice.head(f"/v1/conversations/{start(alice)}/events")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == "text/event-stream"


def test_every_data_line_is_json(alice: httpx.Client, six: str) -> None:
    with listen(alice, six) as stream:
        for each in stream.rest():
            if each.event != "retry":
                assert "\n" not in each.data
                assert isinstance(json.loads(each.data), dict)
                assert (each.id is not None) == (each.event == "message")
