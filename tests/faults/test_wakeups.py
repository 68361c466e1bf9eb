"""The wake-up channel lost, deaf or hanging: later by a bound, never less (rules.md, law 8; B19, B21, B22)."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from fault_steps import ALL_LISTENERS, LISTENERS, all_up, behind_a_wire, end_sessions, folded, one
from live_server import LiveServer, follow, open_room, post, until

BOUND_S = 2.0
"""The published bound of law 8."""

SLACK_S = 1.0
"""What a machine with two busy cores may add."""


@pytest.mark.parametrize("seconds", [4, pytest.param(60, marks=pytest.mark.soak)])
def test_b19_the_listening_session_is_never_in_a_transaction(server: LiveServer, room: str, seconds: int) -> None:
    """Under load, seen from outside. Taking a wake-up and the ping are transactions of microseconds, which a sample may
    meet; one that is held would be met by every sample."""
    stop = threading.Event()

    def load() -> None:
        writer = server.member("alice")
        while not stop.is_set():
            post(writer, room, "more")

    writing = threading.Thread(target=load)
    writing.start()
    try:
        with server.sql() as connection:
            until(lambda: one(connection, f"SELECT count(*) FROM pg_stat_activity WHERE {LISTENERS}") == 3)
            met = list[bool]()
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                rows = connection.execute(
                    "SELECT state, query, xact_start IS NOT NULL FROM pg_stat_activity"  # pyright: ignore[reportArgumentType]
                    f" WHERE {LISTENERS}"
                ).fetchall()
                assert len(rows) == 3  # the server's, the projector's and the outbox's
                for state, query, is_met in rows:
                    met.append(is_met)
                    assert state in ("idle", "active")
                    assert query in ("LISTEN minutebook", "SELECT pg_notification_queue_usage()")
            assert sum(met) < len(met) / 4
            assert one(connection, "SELECT pg_notification_queue_usage()") < 0.01
    finally:
        stop.set()
        writing.join()
    assert server.metric("notification_queue_usage") < 0.01


def test_b19_a_listener_that_fills_the_queue_shows_in_the_metric(server: LiveServer) -> None:
    """The metric moves: another session listens inside a transaction while much is said."""
    with server.sql() as deaf, server.sql() as loud:
        deaf.execute("LISTEN anything")
        deaf.autocommit = False
        deaf.execute("SELECT 1")
        loud.execute(
            "SELECT count(pg_notify('anything', repeat('x', 7900) || n)) FROM generate_series(1, 2000) AS n"
        )  # fmt: skip
        until(lambda: server.metric("notification_queue_usage") > 0, what="the metric")
        deaf.rollback()


def test_b21_an_event_before_the_server_listens_again_is_not_lost(data_dir: Path) -> None:
    with behind_a_wire(data_dir, listener_only=True) as (server, wire):
        alice = server.member("alice")
        room = open_room(alice)
        folded(alice, room, 1)
        with follow(alice, room) as stream, server.sql() as connection:
            stream.events(1)
            all_up(server)
            wire.refusing = True
            assert end_sessions(connection, LISTENERS) == ALL_LISTENERS
            until(lambda: server.metric("listener_up") == 0, what="its end")
            began = time.monotonic()
            post(alice, room, "unheard")
            assert stream.events(2)[-1]["payload"]["text"] == "unheard"
            assert time.monotonic() - began < BOUND_S
            # The views follow too, within the same bound, though their sweep is slow while wake-ups are heard.
            post(alice, room, "for the transcript")
            lines = alice.get(f"/v1/rooms/{room}/transcript", params={"minSeq": 3})
            assert lines.status_code == 200
            assert time.monotonic() - began < 2 * BOUND_S + SLACK_S
            post(alice, room, "just before it listens again")
            wire.refusing = False
            assert stream.events(4)[-1]["seq"] == 4
            until(lambda: server.metric("listener_up") == 1, what="the listener")
            assert server.metric("listener_reconnects") >= 1
            began = time.monotonic()
            post(alice, room, "heard again")
            stream.events(5)
            assert time.monotonic() - began < 0.5


def test_b22_a_deaf_channel_is_said_once_and_left_to_polls(data_dir: Path) -> None:
    with behind_a_wire(data_dir, listener_only=True) as (server, wire):
        wire.deaf = True
        wire.cut()
        began = time.monotonic()
        until(lambda: "no wake-up is heard" in server.logs(), within_s=8, what="the warning")
        assert time.monotonic() - began < 5 + SLACK_S
        assert "database.listenUrl" in server.logs()
        until(lambda: server.metric("listener_up") == 0, what="the metric")
        alice = server.member("alice")
        room = open_room(alice)
        with follow(alice, room) as stream:
            stream.events(1)
            for seq in range(2, 5):
                began = time.monotonic()
                post(alice, room, f"{seq}")
                assert stream.events(seq)[-1]["seq"] == seq
                assert time.monotonic() - began < BOUND_S
        folded(alice, room, 1)
        began = time.monotonic()
        seq = post(alice, room, "for the view")["seq"]
        assert alice.get(f"/v1/rooms/{room}/transcript", params={"minSeq": seq}).status_code == 200
        assert time.monotonic() - began < BOUND_S + SLACK_S
        # Once from each process that listens: the server's, the projector's and the outbox's.
        until(lambda: server.logs().count("no wake-up is heard") == 3, what="the warnings of the others")
        wire.cut()
        until(lambda: server.metric("listener_reconnects") >= 2, what="another session")
        with server.sql() as connection:
            connection.execute("SELECT pg_sleep(3.5)")  # longer than the self-test takes
        assert server.logs().count("no wake-up is heard") == 3
        wire.deaf = False
        until(lambda: server.metric("listener_up") == 1 or bool(post(alice, room, "?")), what="hearing again")


def test_a_listener_that_hangs_without_an_error_is_found_by_its_ping(data_dir: Path) -> None:
    with behind_a_wire(data_dir, listener_only=True) as (server, wire):
        alice = server.member("alice")
        room = open_room(alice)
        until(lambda: server.metric("listener_up") == 1, what="the listener")
        folded(alice, room, 1)
        with follow(alice, room) as stream:
            stream.events(1)
            wire.freeze()
            began = time.monotonic()
            post(alice, room, "into the silence")
            stream.events(2)
            assert time.monotonic() - began < BOUND_S
            until(lambda: server.metric("listener_up") == 0, within_s=4, what="the ping")
            assert time.monotonic() - began < 2 + SLACK_S
            began = time.monotonic()
            seq = post(alice, room, "for the view")["seq"]
            assert alice.get(f"/v1/rooms/{room}/transcript", params={"minSeq": seq}).status_code == 200
            assert time.monotonic() - began < BOUND_S + SLACK_S
            wire.thaw()
            until(lambda: server.metric("listener_up") == 1, within_s=15, what="a new session")
