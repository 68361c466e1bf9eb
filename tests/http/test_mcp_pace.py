"""One call a second for each run and process (rooms.md, Room tools over MCP)."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_server import LiveServer, open_room, until
from mcp_steps import Run, body_of, ok, refused, result_of
from minutebook.domain.errors import RateLimited
from minutebook.http.tool_pace import MAX_PACED_RUNS, ToolPace


@pytest.fixture(scope="module")
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the rooms of these tests."""
    return server.member("alice")


def test_a_run_waits_a_second(server: LiveServer, alice: httpx.Client) -> None:
    room = open_room(alice)
    run = Run(server, room)
    ok(run.call("room_post"))
    at = alice.get(f"/v1/rooms/{room}").json()["throughSeq"]
    for tool in ("room_read", "room_post", "room_handoff"):
        body = refused(run.call(tool), "rate_limited")
        assert set(body) == {"code", "detail", "retryAfterMs"}
        assert 1 <= body["retryAfterMs"] <= 1000
    assert alice.get(f"/v1/rooms/{room}").json()["throughSeq"] == at
    until(lambda: not run.call("room_read").is_error, 5.0, "the end of the second")


def test_another_run_does_not_wait(server: LiveServer, alice: httpx.Client) -> None:
    one, other = (Run(server, open_room(alice)) for _ in range(2))
    for run in (one, other):
        ok(run.call("room_post"))
    assert [body_of(run.call("room_post"))["code"] for run in (one, other)] == ["rate_limited"] * 2


def test_rights_and_arguments_come_first_and_count_for_nothing(server: LiveServer, alice: httpx.Client) -> None:
    run = Run(server, open_room(alice))
    for _ in range(3):
        refused(run.call("room_verdict"), "forbidden")
        refused(run.call("room_post", {"text": ""}), "invalid")
        refused(result_of(run.raw("room_nothing", {})), "not_found")
    ok(run.call("room_post"))
    refused(run.call("room_verdict"), "forbidden")
    refused(run.call("room_post", {"text": ""}), "invalid")
    run.end()
    refused(run.call("room_post"), "run_not_live")


def test_a_replay_does_not_wait(server: LiveServer, alice: httpx.Client) -> None:
    """Replay comes before limits (http.md): a retry gets its answer at once."""
    run = Run(server, open_room(alice))
    first = ok(run.call("room_post", idempotency_key="a"))
    assert ok(run.call("room_post", idempotency_key="a")) == first
    refused(run.call("room_post", idempotency_key="b"), "rate_limited")
    refused(run.call("room_handoff", idempotency_key="a"), "rate_limited")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_next_call_is_taken_when_the_interval_is_over() -> None:
    clock = Clock()
    pace = ToolPace(1.0, clock)
    pace.take(("acme", "a"))
    pace.take(("other", "a"))
    clock.now = 0.75
    with pytest.raises(RateLimited) as refusal:
        pace.take(("acme", "a"))
    assert refusal.value.attributes == {"retryAfterMs": 250}
    clock.now = 1.0
    pace.take(("acme", "a"))


def test_what_is_remembered_is_bounded() -> None:
    clock = Clock()
    pace = ToolPace(1.0, clock)
    for number in range(MAX_PACED_RUNS + 500):
        pace.take(("acme", str(number)))
    assert pace.remembered == MAX_PACED_RUNS
    clock.now = 2.0
    pace.take(("acme", "one"))
    assert pace.remembered == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 3)), max_size=50))
def test_two_calls_of_a_run_are_never_closer(asked: list[tuple[int, float]]) -> None:
    clock = Clock()
    pace = ToolPace(1.0, clock)
    taken: dict[int, float] = {}
    for run, pause in asked:
        clock.now += pause
        try:
            pace.take(("acme", str(run)))
        except RateLimited:
            assert clock.now - taken[run] < 1.0
        else:
            assert run not in taken or clock.now - taken[run] >= 1.0
            taken[run] = clock.now
