"""Who was here last, beside the log (rooms.md, Driver token): noted of people, at most once in the interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from live_server import LiveServer, follow, open_room, post, until

HEARTBEAT = "[limits]\nheartbeatSeconds = 1\n[timeouts]\npresenceSeconds = 1\n"


@pytest.fixture(scope="module")
def quick(new_data_dir: Callable[[], Path]) -> Iterator[LiveServer]:
    """A server that notes who is here every second."""
    with LiveServer(new_data_dir(), config=HEARTBEAT) as server:
        yield server


def seen(server: LiveServer, room: str) -> dict[str, tuple[datetime, datetime | None]]:
    """Everybody who is noted in a room."""
    with server.sql() as connection:
        rows: list[Any] = connection.execute(
            "SELECT p.principal, p.seen_at, p.acted_at FROM minutebook.presence p"
            " JOIN minutebook.streams s ON s.id = p.stream_id WHERE s.name = %s",
            (f"room:{room}",),
        ).fetchall()
    return {principal: (seen_at, acted_at) for principal, seen_at, acted_at in rows}


def test_reading_is_being_here_and_a_command_is_acting(quick: LiveServer) -> None:
    began = datetime.now(UTC)
    alice, wanda = quick.member("alice"), quick.member("wanda")
    room = open_room(alice)
    assert wanda.get(f"/v1/rooms/{room}").status_code == 200
    until(lambda: set(seen(quick, room)) == {"human:alice", "human:wanda"}, what="the notes")
    here = seen(quick, room)
    assert here["human:wanda"][1] is None
    acted = here["human:alice"][1]
    assert acted is not None
    assert began - timedelta(seconds=1) <= acted <= datetime.now(UTC)
    post(alice, room, "again")
    until(lambda: (seen(quick, room)["human:alice"][1] or acted) > acted, what="the later note")


def test_an_open_stream_is_being_here(quick: LiveServer) -> None:
    alice, viv = quick.member("alice"), quick.member("viv")
    room = open_room(alice)
    with follow(viv, room, tail=0) as stream:
        stream.until("state")
        until(lambda: "human:viv" in seen(quick, room), what="the first note")
        first = seen(quick, room)["human:viv"][0]
        until(lambda: seen(quick, room)["human:viv"][0] > first, what="the note of a heartbeat")
    assert seen(quick, room)["human:viv"][1] is None


def test_strangers_runs_and_systems_are_not_noted(quick: LiveServer) -> None:
    alice = quick.member("alice")
    room = open_room(alice)
    assert quick.client("human:sam").get(f"/v1/rooms/{room}").status_code == 404
    assert quick.client("system:ci").get(f"/v1/rooms/{room}").status_code == 200
    bridge = quick.client("agent:presenta", room=room)
    assert bridge.post("/v1/bridge/hello").status_code == 200
    assert bridge.get(f"/v1/rooms/{room}").status_code == 200
    assert quick.member("late").get(f"/v1/rooms/{room}").status_code == 200
    until(lambda: "human:late" in seen(quick, room), what="the notes")
    assert set(seen(quick, room)) == {"human:alice", "human:late"}


def test_presence_is_no_event_and_no_query_writes_the_log(quick: LiveServer) -> None:
    alice = quick.member("alice")
    room = open_room(alice)
    until(lambda: "human:alice" in seen(quick, room), what="the note")
    assert alice.get(f"/v1/rooms/{room}").json()["throughSeq"] == 1
