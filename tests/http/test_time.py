"""Time and ids: UTC whatever the zones of server and database are, and the log's order whatever the clock does
(field faults B49, B16)."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from fault_steps import folded
from handlers import rooms_on
from live_server import LiveServer, follow, open_room, post
from minutebook.commands.room_handling import stream_of
from minutebook.domain.principals import Caller, Principal
from minutebook.domain.rooms.commands import OpenRoom, PostMessage
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.postgres.store import Entry, PostgresStore
from ulid_transform import ulid_at_time

TS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def near_now(ts: str) -> bool:
    """Whether a time of an answer is in the published form, and within 30 s of now in UTC."""
    assert TS.fullmatch(ts), ts
    at = datetime.strptime(ts, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return abs((datetime.now(UTC) - at).total_seconds()) < 30


def test_b49_zones_of_server_and_database_change_nothing(own_data_dir: Path) -> None:
    with LiveServer(own_data_dir, env={"TZ": "Asia/Kolkata"}) as server:
        assert server.stop() == 0
        with server.sql() as connection:
            connection.execute("ALTER DATABASE minutebook SET timezone TO 'America/New_York'")
            connection.execute("ALTER ROLE minutebook_app SET timezone TO 'Pacific/Kiritimati'")
            connection.execute("ALTER DATABASE minutebook SET datestyle TO 'German, DMY'")
            connection.execute("ALTER DATABASE minutebook SET intervalstyle TO 'sql_standard'")
        server.start()
        alice = server.member("alice", ttl_s=600)
        room = open_room(alice)
        seq = post(alice, room, "what time is it?")["seq"]
        folded(alice, room, seq)
        lines = alice.get(f"/v1/rooms/{room}/transcript").json()["lines"]
        times = [event["ts"] for event in alice.get(f"/v1/rooms/{room}/events").json()["events"]]
        with follow(alice, room) as stream:
            assert [event["ts"] for event in stream.events(2)] == times
        assert [line["ts"] for line in lines] == times
        listed = alice.get("/v1/rooms").json()["rooms"][0]
        exported = alice.get(f"/v1/rooms/{room}/export").text
        assert all(f'"ts":"{ts}"' in exported for ts in times)
        for ts in (*times, listed["updatedAt"]):
            assert near_now(ts)
        # A room whose run has just spoken is not "silent for half an hour" in any zone.
        bridge = server.client("agent:aaaaaaa2", room=room)
        assert bridge.post("/v1/bridge/hello").status_code == 200
        assert alice.get(f"/v1/rooms/{room}").json()["phase"] == "Active"
        # Expiry is to the second: leeway is 30 s, an hour is not forgiven.
        for age, status in ((620, 200), (640, 401), (3_600, 401), (5.5 * 3_600 + 600, 401)):
            late = server.client("human:late", "agents-member", ttl_s=600, now=time.time() - age)
            assert late.get("/v1/rooms").status_code == status, age
        begun = alice.post("/v1/session").headers["set-cookie"]
        assert 600 < int(re.search(r"Max-Age=(\d+)", begun)[1]) <= 630  # pyright: ignore[reportOptionalSubscript]


def test_b16_ids_that_go_backwards_leave_the_order_to_the_log(database: Any) -> None:
    """The clock repeats each millisecond and steps back 10 s; 8 tasks append 1,000 events."""
    clock = itertools.count()

    def new_id() -> str:
        tick = next(clock)
        return ulid_at_time(1_800_000_000.0 - (tick // 100) * 10 + (tick % 100) // 4 / 1000)

    entries = asyncio.run(_append_and_read(database.url("app"), new_id))
    ids = [entry.envelope.id for entry in entries]
    assert [entry.envelope.seq for entry in entries] == list(range(1, 1_002))
    assert len(set(ids)) == 1_001
    assert ids != sorted(ids)
    times = [entry.envelope.ts for entry in entries]
    assert times == sorted(times)
    texts = [msgspec.json.decode(entry.envelope.payload).get("text", "") for entry in entries]
    for task in range(8):
        said = [int(found[1]) for text in texts if (found := re.fullmatch(rf"from {task}: (\d+)", text))]
        assert said == list(range(125))
    with psycopg.connect(database.url("postgres"), autocommit=True) as connection:
        row = connection.execute("SELECT version FROM minutebook.streams").fetchone()
    assert row == (1_001,)


async def _append_and_read(url: str, new_id: Callable[[], str]) -> list[Entry]:
    async with make_pool(url, "app", max_size=4, statement_timeout_ms=10_000) as pool:
        appender = Appender(pool)
        appender.start()
        store = PostgresStore(pool, appender)
        rooms = rooms_on(store, pool, new_id=new_id)
        caller = Caller(Principal("human", "alice"), "default", is_member=True)
        room = (await rooms.open(caller, OpenRoom("internal"), None)).body["id"]

        async def write(task: int) -> None:
            last = 0
            for number in range(125):
                answer = await rooms.post_message(caller, room, PostMessage(f"from {task}: {number}"), None)
                assert answer.seq > last
                last = answer.seq

        await asyncio.gather(*(write(task) for task in range(8)))
        head = await store.head(stream_of(room))
        assert head is not None
        entries: list[Entry] = []
        while len(entries) < head.version:
            entries += await store.read_entries(head.id, room, len(entries), 100)
        await appender.close()
        return entries
