"""What conversations promise, over two server processes on one database (conversations.md, Done means)."""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from live_server import Frame, LiveServer, until
from long_talk import prolong
from scratch import SCRATCH
from talks import ask, frame, history, listen, replies, reply, say, start, status, words

Pair = tuple[LiveServer, LiveServer]

SLACK_S = 0.005
TURN_SLACK_S = 0.05
"""What a busy machine may add to a page and to a turn."""

TAKEOVER_S = 40.0
"""Longest wait for a turn that another process takes over: the lease of 15 s, a sweep, and a slow machine."""


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


def steps_said_twice(server: LiveServer) -> int:
    """Model calls that are in the log more than once: same turn, same step."""
    sql = (
        "SELECT count(*) FROM (SELECT 1 FROM minutebook.events WHERE type = 'model_answered'"
        " GROUP BY stream_id, payload ->> 'step' HAVING count(*) > 1) t"
    )
    with server.sql() as connection:
        return (connection.execute(sql).fetchone() or (0,))[0]


def waits(server: LiveServer) -> int:
    """Conversations that a runner has not let go."""
    with server.sql() as connection:
        return (connection.execute("SELECT count(*) FROM minutebook.turn_work").fetchone() or (0,))[0]


def model_calls(server: LiveServer, words_said: str) -> int:
    """Recorded model calls whose answer was exactly that."""
    sql = "SELECT count(*) FROM minutebook.events WHERE type = 'model_answered' AND payload ->> 'text' = %s"
    with server.sql() as connection:
        return (connection.execute(sql, (words_said,)).fetchone() or (0,))[0]


def test_three_turns_across_a_restart_repeat_no_recorded_model_call(pair: Pair) -> None:
    first, second = pair
    talk = start(first.member("alice"))
    said = [ask(first.member("alice"), talk, "the first of three")]
    until(lambda: not waits(first), what="the end of the runner's work")
    first.kill()
    first.start()
    said.append(ask(first.member("alice"), talk, "the second of three"))
    assert first.stop() == 0
    first.start()
    said.append(ask(second.member("alice"), talk, "the third of three"))
    alice = first.member("alice")
    assert replies(alice, talk) == said
    assert [entry["status"] for entry in said] == ["completed"] * 3
    for name in ("first", "second", "third"):
        assert model_calls(first, f"echo: the {name} of three") == 1
    assert steps_said_twice(first) == 0


def test_a_server_is_killed_in_mid_reply_and_nothing_is_lost(pair: Pair) -> None:
    """One kill, seen from three conversations: a reply whose viewers go on at the other process, a message that had
    come to interrupt, and one that had come to wait."""
    first, second = pair
    alice, elsewhere = first.member("alice"), second.member("alice")
    streamed, barged, queued = start(alice), start(alice, bargeIn="interrupt"), start(alice)
    say(alice, barged, "!hang")
    say(alice, queued, "!slow 30 100")
    until(lambda: all(status(alice, talk).get("running") == {"turn": 1} for talk in (barged, queued)), what="the turns")
    say(alice, streamed, "!slow 300 40")
    with listen(elsewhere, streamed) as stream:
        before = frame(stream, "delta", "partial").json["text"]
        until(lambda: len(partial_of(elsewhere, streamed)) > 20, what="some words in the table")
        freeze(first)
        try:
            # The process that runs these turns cannot act any more; what comes now waits in the log.
            say(elsewhere, barged, "instead of that")
            say(elsewhere, queued, "and then that")
        finally:
            first.kill()
        with listen(elsewhere, streamed, "1.1") as late:
            found = frame(late, "partial")
            assert found.json["attempt"] == 1
            assert found.json["text"].startswith(before)
            assert frame(late, "reset").json == {"turn": 1, "attempt": 2}
            text, said = words(late, 1)
        assert said.json["status"] == "completed"
        assert said.json["text"] == " ".join(f"w{number}" for number in range(1, 301))
        assert said.json["text"].startswith(text)
        kinds = [frame(stream, "reset", "message").event for _ in range(2)]
        assert kinds == ["reset", "message"]
    assert reply(elsewhere, barged, 1, TAKEOVER_S)["status"] == "interrupted"
    assert reply(elsewhere, barged, 2, TAKEOVER_S)["text"] == "echo: instead of that"
    assert reply(elsewhere, queued, 1, TAKEOVER_S)["status"] == "completed"
    assert reply(elsewhere, queued, 2, TAKEOVER_S)["text"] == "echo: and then that"
    for talk in (streamed, barged, queued):
        turns = [entry["turn"] for entry in replies(elsewhere, talk)]
        assert turns == sorted(set(turns)), "every turn has one end"
    assert steps_said_twice(second) == 0


def partial_of(client: httpx.Client, talk: str) -> str:
    """What somebody who comes in now gets of the running reply."""
    with listen(client, talk) as stream:
        return frame(stream, "partial").json["text"]


def freeze(server: LiveServer) -> None:
    """Stop the serving process where it is."""
    psutil.Process(server.process.pid).suspend()


def test_two_tenants_streaming_at_once_see_only_their_own(pair: Pair) -> None:
    first, second = pair
    people = [
        (server.member("sam", tenant=tenant), f"{tenant} on {place}")
        for tenant in ("acme", "umbra")
        for place, server in enumerate((first, second))
    ]
    talks = [start(client, id=secret.replace(" ", "-")) for client, secret in people]
    for (client, _), talk in zip(people, talks, strict=True):
        say(client, talk, "!slow 40 10")
    for number, ((client, secret), talk) in enumerate(zip(people, talks, strict=True)):
        with listen(client, talk) as stream:
            say(client, talk, secret)
            seen = [stream.next()]
            while not _ends(seen[-1], 2):
                seen.append(stream.next())
        everything = "".join(each.raw.decode() for each in seen)
        assert f"echo: {secret}" in everything
        for other, (_, secret_) in enumerate(people):
            if other != number:
                assert secret_ not in everything
                assert talks[other] not in everything
        assert re.findall(r'"tenant":"(\w+)"', everything) == [secret.split()[0]] * everything.count('"tenant"')


def _ends(each: Frame, turn: int) -> bool:
    """Whether it is the reply of that turn."""
    return each.event == "message" and (each.json["turn"], each.json["role"]) == (turn, "assistant")


def test_every_refusal_is_the_same_404(pair: Pair) -> None:
    first, second = pair
    talk = start(first.member("olga"))
    ask(first.member("olga"), talk, "for me alone")
    calls: list[Callable[[httpx.Client, str], httpx.Response]] = [
        lambda client, url: client.get(url),
        lambda client, url: client.get(f"{url}/history"),
        lambda client, url: client.get(f"{url}/events"),
        lambda client, url: client.get(f"{url}/turns/1/context"),
        lambda client, url: client.post(f"{url}/turns", json={"text": "hello"}),
        lambda client, url: client.post(f"{url}/interrupt", json={}),
        lambda client, url: client.post(f"{url}/turns/1/seen", json={"offset": 1}),
        lambda client, url: client.post(f"{url}/close", json={}),
        lambda client, url: client.get(url.replace("conversations", "rooms")),
        lambda client, url: client.get(f"{url.replace('conversations', 'rooms')}/stream"),
    ]
    bodies: set[str] = set()
    for server in (first, second):
        strangers = (
            server.member("mallory"),
            server.client("human:adam", "agents-admin"),
            server.client("human:audrey", "agents-auditor"),
            server.client("system:ci"),
            server.member("olga", tenant="elsewhere"),
        )
        for client in strangers:
            for call in calls:
                for id_ in (talk, talk[::-1]):
                    answer = call(client, f"/v1/conversations/{id_}")
                    assert answer.status_code == 404
                    body = answer.json()
                    assert body.pop("instance").endswith(answer.request.url.path)
                    bodies.add(str(sorted(body.items())))
    assert len(bodies) == 1
    assert len(history(first.member("olga"), talk)) == 2


@pytest.mark.parametrize("turns", [1_500, pytest.param(10_000, marks=(pytest.mark.soak, pytest.mark.timeout(600)))])
def test_a_long_conversation_is_read_and_continued_as_fast_as_a_short_one(pair: Pair, turns: int) -> None:
    first, second = pair
    alice = first.member("alice")
    short, long = start(alice), start(alice)
    prolong(first, short, "alice", 10)
    prolong(first, long, "alice", turns)
    began = time.perf_counter()
    assert status(alice, long)["turns"] == turns, "a process that knew its beginning goes on from the newest generation"
    assert time.perf_counter() - began < 1.0
    assert status(alice, long)["generation"] == turns // 100 + 1
    assert len(list(pages(alice, long, limit=200, count=3))) == 600
    middle = f"{turns // 200}.{turns}"
    reads: dict[str, list[float]] = {"short": [], "long": [], "middle": []}
    for _ in range(25):
        for name, talk, query in (("short", short, {}), ("long", long, {}), ("middle", long, {"cursor": middle})):
            began = time.perf_counter()
            found = history(alice, talk, direction="backward", limit=20, **query)
            reads[name].append(time.perf_counter() - began)
            assert len(found) == 20
    medians = {name: statistics.median(taken) for name, taken in reads.items()}
    assert max(medians["long"], medians["middle"]) < 1.5 * medians["short"] + SLACK_S, medians
    taken: dict[str, list[float]] = {short: [], long: []}
    for number in range(8):
        for talk, times in taken.items():
            began = time.perf_counter()
            assert ask(alice, talk, f"and now {number}")["text"] == f"echo: and now {number}"
            times.append(time.perf_counter() - began)
    quick, slow = (min(times) for times in taken.values())  # of a busy machine the best is what it takes
    assert slow < 1.5 * quick + TURN_SLACK_S, (quick, slow)
    # A process that never saw it needs the present generation alone.
    assert status(second.member("alice"), long)["turns"] == turns + 8


def pages(client: httpx.Client, talk: str, *, limit: int, count: int) -> Iterator[int]:
    """Ords of so many pages back from the newest."""
    query: dict[str, object] = {"limit": limit}
    expected: int | None = None
    for _ in range(count):
        answer = client.get(f"/v1/conversations/{talk}/history", params=query).json()
        for entry in answer["entries"]:
            assert expected is None or entry["ord"] == expected
            expected = entry["ord"] - 1
            yield entry["ord"]
        query["cursor"] = answer["nextCursor"]
