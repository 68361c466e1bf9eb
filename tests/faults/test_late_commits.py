"""Numbers handed out in one order and visible in another: no follower passes over what commits late (law 1; B01)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from append_helpers import append, events, item, one, outcomes
from append_helpers import until as until_true
from fault_steps import folded
from live_server import LiveServer, follow, open_room, post
from viewers import Viewer, log_of

WRITERS = 20
COMMITS = 25
"""By each writer; with EVENTS_A_COMMIT that is 10,000 events."""

EVENTS_A_COMMIT = 20
HOLD_S = 0.2
"""Longest time between an append and its commit."""

SHARED = 4
"""Rooms that all writers write to now and then, beside the one that each has to itself."""

FEED = "SELECT f.position, f.stream_id, f.seq FROM minutebook.feed f WHERE f.position > %s ORDER BY f.position"
STORED = "SELECT e.stream_id, e.seq FROM minutebook.events e ORDER BY e.stream_id, e.seq"
FOLDED = """
SELECT NOT EXISTS (
    SELECT FROM minutebook.streams s CROSS JOIN unnest('{room_list,transcript}'::text[]) AS p (name)
    LEFT JOIN minutebook_views.checkpoints c ON c.stream_id = s.id AND c.projection = p.name
    WHERE s.version IS DISTINCT FROM c.seq)
"""


@pytest.fixture
def feeding(data_dir: Path) -> Iterator[LiveServer]:
    """A server of one's own, with the audit feed on."""
    with LiveServer(data_dir, config="[database]\nauditFeed = true\n") as server:
        yield server


def fed(auditor: psycopg.Connection, after: int = 0) -> list[tuple[int, int, int]]:
    """What a follower of the feed gets behind the position that it remembers."""
    auditor.execute("SELECT minutebook.feed_advance_v1()")
    return auditor.execute(FEED, (after,)).fetchall()


def test_b01_the_first_of_two_writers_commits_last(feeding: LiveServer) -> None:
    """Its event is in place and not committed while the second one's is read by everybody; then it is, by everybody."""
    alice = feeding.member("alice")
    first, second = open_room(alice), open_room(alice)
    with (
        feeding.sql("app") as slow,
        feeding.sql("auditor") as auditor,
        follow(alice, first) as one_viewer,
        follow(alice, second) as other_viewer,
    ):
        one_viewer.events(1)
        other_viewer.events(1)
        folded(alice, first, 1)
        before = fed(auditor)
        assert len(before) == 2
        slow.autocommit = False
        assert outcomes(append(slow, item(1, *events(2), stream=f"room:{first}"))) == ["appended"]
        assert post(alice, second, "later, and there at once")["seq"] == 2
        assert other_viewer.events(2)[-1]["seq"] == 2
        folded(alice, second, 2)
        assert fed(auditor, before[-1][0]) == []
        assert len(log_of(alice, first)) == 1
        with LiveServer(feeding.data_dir, arguments=["--role", "http"]) as another:  # a start waits for nobody's append
            assert post(another.member("alice"), second, "through a process that starts meanwhile")["seq"] == 3
        slow.commit()
        assert [each["seq"] for each in one_viewer.events(3)] == [2, 3]
        lines = alice.get(f"/v1/rooms/{first}/transcript", params={"minSeq": 3}).json()["lines"]
        assert [line["seq"] for line in lines] == [1, 2, 3]
        assert [position for position, _, _ in fed(auditor, before[-1][0])] == [3, 4, 5, 6]
        assert sorted(each[1:] for each in fed(auditor)) == auditor.execute(STORED).fetchall()


def write(server: LiveServer, own: str, shared: list[str], random_: random.Random) -> None:
    """Commits of one writer, each held open for a while; one in ten is rolled back and made again."""
    with server.sql("app") as app:
        app.autocommit = False
        head, made = 1, 0
        while made < COMMITS:
            batch = [item(head, *events(EVENTS_A_COMMIT), stream=f"room:{own}")]
            if random_.random() < 0.3:
                other = f"room:{random_.choice(shared)}"
                version = one(app, "SELECT version FROM minutebook.streams WHERE name = %s", other)
                batch.append(item(version, *events(1), stream=other))
            assert append(app, *batch)[0].outcome == "appended"
            app.execute("SELECT pg_sleep(%s)", (random_.uniform(0, HOLD_S),))
            if random_.random() < 0.1:
                app.rollback()
                continue
            app.commit()
            head += EVENTS_A_COMMIT
            made += 1


def test_b01_twenty_writers_with_random_holds_and_every_follower(feeding: LiveServer) -> None:
    """10,000 events: what viewers, views and the feed were given is what is stored, each once and in its order."""
    alice = feeding.member("alice")
    rooms = [open_room(alice) for _ in range(WRITERS + SHARED)]
    token = feeding.token("human:alice", "agents-member")
    viewers = [Viewer(lambda: feeding.url, room, token) for room in rooms]

    async def body() -> list[tuple[int, int, int]]:
        seen: list[tuple[int, int, int]] = []
        with ThreadPoolExecutor(WRITERS) as pool, feeding.sql("auditor") as auditor:
            loop = asyncio.get_running_loop()
            writing = [
                loop.run_in_executor(pool, write, feeding, own, rooms[WRITERS:], random.Random(own))  # noqa: S311
                for own in rooms[:WRITERS]
            ]
            done = asyncio.gather(*writing)
            async with asyncio.TaskGroup() as group:
                for viewer in viewers:
                    group.create_task(viewer.roam(done.done, random.Random(1), 3.0))  # noqa: S311
                while not done.done():
                    seen += await asyncio.to_thread(fed, auditor, seen[-1][0] if seen else 0)
                    await asyncio.wait([done], timeout=0.02)
            await done
            seen += await asyncio.to_thread(fed, auditor, seen[-1][0])
        logs = [log_of(alice, room) for room in rooms]
        await asyncio.gather(*(viewer.finish(len(log)) for viewer, log in zip(viewers, logs, strict=True)))
        for viewer, log in zip(viewers, logs, strict=True):
            viewer.assert_equals(log)
        return seen

    seen = asyncio.run(body())
    with feeding.sql() as look:
        stored: list[Any] = look.execute(STORED).fetchall()
        assert len(stored) > WRITERS * COMMITS * EVENTS_A_COMMIT
        assert [position for position, _, _ in seen] == list(range(1, len(stored) + 1))
        assert sorted(each[1:] for each in seen) == stored
        last: dict[int, int] = {}
        for _, stream_id, seq in seen:
            assert seq == last.get(stream_id, 0) + 1
            last[stream_id] = seq
        until_true(look, FOLDED)
        lines = look.execute("SELECT stream_id, seq FROM minutebook_views.transcript ORDER BY 1, 2").fetchall()
        assert lines == stored
