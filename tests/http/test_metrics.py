"""Every figure of /metrics moves with what it counts, and no label tells of whom (issue 4, Metrics)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bridges import Bridge, item
from fault_steps import one
from live_server import LiveServer, follow, free_port, open_room, post, until
from mcp_steps import Run
from minutebook.commands.ports import EventRow
from minutebook.http.metrics import OTHER, Metrics
from msgspec import Raw
from prometheus_client import generate_latest
from scrapes import Scrape

SECRET = "ghp_" + "aB3dE5" * 6


JOBS_PORT = free_port()

CONFIG = f"""
[server]
jobsMetricsPort = {JOBS_PORT}
[database]
statementTimeoutMs = 600
[timeouts]
runNeverJoinedSeconds = 1
"""


@pytest.fixture(scope="module")
def server(new_data_dir: Callable[[], Path]) -> Iterator[LiveServer]:
    """A server that nobody else counts on."""
    with LiveServer(new_data_dir(), config=CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def never_joined(server: LiveServer) -> str:
    """A room whose run is requested at the beginning and never comes: the sweep ends it while the other tests run."""
    alice = server.member("alice")
    room = open_room(alice)
    answer = alice.post(f"/v1/rooms/{room}/runs", json={"role": "implementer"})
    assert answer.is_success, answer.text
    return room


class Before:
    """What a scrape had, to compare a later one with."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._was = Scrape(url)

    def moved(self, name: str, **labels: str) -> float:
        """By how much a figure is larger now."""
        return Scrape(self._url).get(name, **labels) - self._was.get(name, **labels)

    def comes(self, by: float, name: str, **labels: str) -> None:
        """Wait for it."""
        until(lambda: self.moved(name, **labels) == by, 10, f"{name} {labels}")


BEHIND = (
    "SELECT count(*) FROM minutebook.streams s LEFT JOIN minutebook_views.checkpoints c"
    " ON c.stream_id = s.id AND c.projection = 'room_list' WHERE s.kind = 'room' AND coalesce(c.seq, 0) < s.version"
    " AND NOT EXISTS (SELECT FROM minutebook_views.parked p WHERE p.stream_id = s.id)"
)


@pytest.fixture
def before(server: LiveServer, never_joined: str) -> Before:
    """The figures before the test, once all that was done before it is among them."""
    assert never_joined
    with server.sql() as look:
        until(lambda: one(look, BEHIND) == 0, 20, "the views")
    folded_at = time.monotonic()
    until(lambda: Scrape(server.url).get("census_age_seconds") < time.monotonic() - folded_at, 20, "a look after that")
    return Before(server.url)


def test_events_by_type_and_origin_and_the_time_of_an_append(server: LiveServer, before: Before) -> None:
    bridge = Bridge(server).hello()
    post(bridge.alice, bridge.room, "hello")
    assert bridge.push(item(1), item(2)).status_code == 200
    assert before.moved("events_appended_total", type="message", origin="client") == 1
    assert before.moved("events_appended_total", type="state_changed", origin="harness") == 2
    assert before.moved("append_seconds_count") >= 4
    assert 0 < before.moved("append_seconds_sum") < 10


def test_a_fork_counts_its_own_event_alone(server: LiveServer, before: Before) -> None:
    alice = server.member("alice")
    room = open_room(alice)
    post(alice, room, "copied")
    assert alice.post(f"/v1/rooms/{room}/fork", json={"seq": 2}).status_code == 201
    assert before.moved("events_appended_total", type="message", origin="client") == 1
    assert before.moved("events_appended_total", type="state_changed", origin="client") == 2


def test_an_append_that_fails_counts_by_its_code(server: LiveServer, before: Before) -> None:
    alice = server.member("alice")
    room = open_room(alice)
    with server.sql() as superuser, superuser.transaction():
        superuser.execute("LOCK TABLE minutebook.events IN EXCLUSIVE MODE")
        assert alice.post(f"/v1/rooms/{room}/messages", json={"text": "x"}).status_code == 503
    assert before.moved("append_errors_total", code="unavailable") == 1
    assert before.moved("refused_total", reason="unavailable") == 1


def test_streams_by_kind_why_they_ended_and_how_late_they_are(server: LiveServer, before: Before) -> None:
    bridge = Bridge(server).hello()
    with follow(bridge.alice, bridge.room) as viewer, bridge.stream():
        viewer.until("state")
        assert before.moved("connections", kind="viewer") == 1
        assert before.moved("connections", kind="bridge") == 1
        post(bridge.alice, bridge.room, "seen")
        before.comes(1, "fan_out_lag_seconds_count")
        assert bridge.bye("stuck").status_code == 200
        assert bridge.alice.post(f"/v1/rooms/{bridge.room}/close", json={}).status_code == 200
        before.comes(1, "connections_ended_total", kind="viewer", reason="room_closed")
        before.comes(1, "connections_ended_total", kind="bridge", reason="run_ended")
        before.comes(0, "connections", kind="viewer")
    assert before.moved("bridge_stalls_total", reason="stuck") == 1


def test_a_viewer_that_goes_away_is_told_from_one_that_is_let_go(server: LiveServer, before: Before) -> None:
    alice = server.member("alice")
    with follow(alice, open_room(alice)) as viewer:
        viewer.until("state")
    before.comes(1, "connections_ended_total", kind="viewer", reason="client_gone")


def test_approvals_participants_and_phases_of_the_deployment(server: LiveServer, before: Before) -> None:
    bridge = Bridge(server).hello()
    before.comes(1, "rooms", phase="Active")
    before.comes(1, "participants", kind="agent")
    until(lambda: before.moved("participants", kind="human") >= 1, 10, "alice, and who was noted late in other rooms")
    asked = bridge.ask("e1").json()
    before.comes(1, "approvals_pending")
    assert 0 < Scrape(server.url).get("oldest_approval_seconds") < 60
    before.comes(1, "rooms", phase="AwaitingHuman")
    bridge.decide(asked)
    assert before.moved("decision_seconds_count", decision="approved", by="human") == 1
    assert 0 <= before.moved("decision_seconds_sum", decision="approved", by="human") < 60
    before.comes(0, "approvals_pending")
    assert bridge.bye().status_code == 200
    before.comes(1, "rooms", phase="Idle")
    before.comes(0, "participants", kind="agent")
    bridge.alice.post(f"/v1/rooms/{bridge.room}/close", json={})
    before.comes(1, "rooms", phase="Closed")


def test_moves_of_the_driver_token(server: LiveServer, before: Before) -> None:
    alice = server.member("alice")
    room = open_room(alice, members=[{"principal": "human:carl", "role": "collaborator"}])
    given = alice.post(f"/v1/rooms/{room}/driver/give", json={"to": "human:carl", "driverEpoch": 1})
    assert given.status_code == 200, given.text
    assert before.moved("driver_changes_total", reason="given") == 1


def test_redactions_by_rule(server: LiveServer, before: Before) -> None:
    alice = server.member("alice")
    room = open_room(alice)
    post(alice, room, f"{SECRET} and {SECRET}")
    event = alice.get(f"/v1/rooms/{room}/events").json()["events"][-1]
    (rule,) = event["redactions"]
    assert before.moved("redactions_total", rule=rule) == 1


def test_refusals_by_reason_of_requests_and_of_tool_calls(server: LiveServer, before: Before) -> None:
    alice = server.member("alice")
    assert alice.get("/v1/rooms/aaaaaaaa").status_code == 404
    assert before.moved("refused_total", reason="not_found") == 1
    run = Run(server, open_room(alice))
    assert run.call("room_verdict").is_error
    assert before.moved("refused_total", reason="forbidden") == 1


def test_stubs_by_reason(server: LiveServer, before: Before) -> None:
    bridge = Bridge(server).hello()
    large = item(2, payload={"kind": "harness_event", "x": "y" * 70_000})
    assert bridge.push(item(1, payload={"kind": "harness_event", "n": 10**400}), large).status_code == 200
    assert before.moved("bridge_stubs_total", reason="number") == 1
    assert before.moved("bridge_stubs_total", reason="oversize") == 1


def test_jobs_that_wait_and_that_failed(server: LiveServer, before: Before) -> None:
    with server.sql() as superuser:
        superuser.execute("SET search_path = minutebook_jobs")  # as the engine's triggers want it
        superuser.execute(
            "INSERT INTO minutebook_jobs.procrastinate_jobs (queue_name, task_name, status)"
            " VALUES ('nobody', 'nothing', 'todo'), ('nobody', 'nothing', 'failed')"
        )
        before.comes(1, "jobs_failed")
        until(lambda: Scrape(server.url).get("jobs_waiting") >= 1, 10, "a job that waits")
        until(lambda: Scrape(server.url).get("oldest_job_seconds") > 0.5, 10, "its age")
        # As docs/howto/runbooks/job-failed.md has it.
        superuser.execute("UPDATE procrastinate_jobs SET status = 'todo', attempts = 0 WHERE status = 'failed'")
        before.comes(0, "jobs_failed")
        superuser.execute("DELETE FROM procrastinate_jobs WHERE queue_name = 'nobody'")


def test_views_that_are_behind_and_streams_that_are_parked(server: LiveServer, before: Before) -> None:
    alice = server.member("alice")
    room = open_room(alice)
    folded = "SELECT count(*) FROM minutebook_views.room_list WHERE room_id = %s"
    with server.sql() as superuser:
        until(lambda: superuser.execute(folded, (room,)).fetchone() == (1,), 10, "the fold of the new room")
        superuser.execute(
            "INSERT INTO minutebook_views.parked (projection, stream_id, seq, reason, retry_at)"
            " SELECT 'room_list', s.id, 1, 'Test', clock_timestamp() + interval '1 hour' FROM minutebook.streams s"
            " WHERE s.name = %s",
            (f"room:{room}",),
        )
        before.comes(1, "parked_streams", view="room_list")
        superuser.execute("DELETE FROM minutebook_views.parked WHERE reason = 'Test'")
        # A fold waits for its checkpoint, and the view is behind for as long.
        with superuser.transaction():
            superuser.execute("LOCK TABLE minutebook_views.checkpoints IN SHARE ROW EXCLUSIVE MODE")
            post(alice, room, "unfolded")
            until(lambda: Scrape(server.url).get("view_lag_seconds", view="room_list") > 0.5, 10, "its lag")
    until(lambda: Scrape(server.url).get("view_lag_seconds", view="room_list") == 0, 10, "the end of the lag")


def test_a_database_that_does_not_answer_shows_by_the_age_of_the_figures(server: LiveServer) -> None:
    until(lambda: Scrape(server.url).get("census_age_seconds") < 1, 10, "a look")
    with server.sql() as superuser, superuser.transaction():
        superuser.execute("LOCK TABLE minutebook.runs IN ACCESS EXCLUSIVE MODE")
        until(lambda: Scrape(server.url).get("census_age_seconds") > 3, 10, "an old look")
        assert Scrape(server.url).get("rooms", phase="Closed") >= 1
    until(lambda: Scrape(server.url).get("census_age_seconds") < 1, 10, "a look")


def test_the_process_of_jobs_has_a_port_of_its_own_and_sweeps_tell_their_last_success(
    server: LiveServer, never_joined: str
) -> None:
    """The last of this file: the sweep of runs had the time of all the others to come by."""
    alice = server.member("alice")
    url = f"http://127.0.0.1:{JOBS_PORT}"
    until(lambda: Scrape(url).get("bridge_stalls_total", reason="never_joined") == 1, 45, "the sweep of runs")
    jobs = Scrape(url)
    assert jobs.get("events_appended_total", type="state_changed", origin="broker") >= 1
    assert jobs.get("append_seconds_count") >= 1
    events = alice.get(f"/v1/rooms/{never_joined}/events").json()["events"]
    assert events[-1]["payload"]["reason"] == "never_joined"
    until(lambda: ("minutebook_sweep_interval_seconds", (("sweep", "runs"),)) in Scrape(server.url).samples, 10, "runs")
    scrape = Scrape(server.url)
    assert scrape.get("sweep_interval_seconds", sweep="runs") == 30
    assert time.time() - 90 < scrape.get("sweep_last_success_timestamp_seconds", sweep="runs") <= time.time() + 1


LABELS = {
    "type",
    "origin",
    "code",
    "kind",
    "reason",
    "decision",
    "by",
    "rule",
    "status",
    "phase",
    "view",
    "sweep",
    "issuer",
    "le",
}


def test_no_label_tells_of_whom(server: LiveServer) -> None:
    alice = server.member("alice")
    room = open_room(alice)
    bridge = Bridge(server, room).hello()
    for _, labels, _ in itertools.chain(Scrape(server.url).own(), Scrape(f"http://127.0.0.1:{JOBS_PORT}").own()):
        assert labels.keys() <= LABELS
        assert not {room, bridge.run_id, "alice", "human:alice"} & set(labels.values())


def test_what_is_in_no_set_counts_as_other() -> None:
    metrics = Metrics(("known",))
    row = EventRow("x", "invented", 1, Raw(b"{}"), "human", "a", "client", ["known", "stranger"])
    metrics.appended([row], [])
    metrics.refused("invented")
    metrics.append_took(0.1, "invented")
    text = generate_latest(metrics.registry).decode()
    assert "invented" not in text
    assert "stranger" not in text
    assert f'minutebook_events_appended_total{{origin="client",type="{OTHER}"}} 1.0' in text
    assert 'minutebook_redactions_total{rule="known"} 1.0' in text
    assert f'minutebook_redactions_total{{rule="{OTHER}"}} 1.0' in text
    assert f'minutebook_refused_total{{reason="{OTHER}"}} 1.0' in text
    assert f'minutebook_append_errors_total{{code="{OTHER}"}} 1.0' in text
