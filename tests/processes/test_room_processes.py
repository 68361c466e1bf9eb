"""What rooms do without anybody asking, by two real processes of jobs beside one server, and real servers outside."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bridges import Bridge, code, item, new_run_id
from handlers import means_of
from live_server import LiveServer, open_room, until
from minutebook.commands.dispatcher import Bounds, Dispatcher, Fingerprints
from minutebook.commands.processes.approval_expiry import ApprovalExpiry
from minutebook.commands.processes.server_acts import ServerActs
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.due import PostgresDue
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.postgres.store import PostgresStore
from outside import SECRET, Forge, Outside, Reply, serving
from scratch import SCRATCH

PULL = "https://github.com/acme/widget/pull/7"
OTHER_SECRET = "whsec_" + base64.b64encode(b"another one of 32 bytes or more.").decode()
SOON_S = 60.0
"""A time of the settings below, and the 30 s until the next sweep."""


class World(NamedTuple):
    """A server with all its roles, another process of jobs beside it, and what they call."""

    server: LiveServer
    launcher: Outside
    hooks: Outside
    forge: Forge

    def kinds(self, outside: Outside, name: str, value: str) -> list[str]:
        """The types of the webhooks whose data has that field."""
        with outside.lock:
            told = [each.json for each in outside.requests]
        return [each["type"] for each in told if each["data"].get(name) == value]


def config(launcher: Outside, hooks: Outside, forge: Forge) -> str:
    """Short waits, and everything outside on this machine."""
    return f"""
[timeouts]
driverAwaySeconds = 3
driverIdleSeconds = 3
runLostSeconds = 15
runNeverJoinedSeconds = 8
roomWaitingSeconds = 3
presenceSeconds = 1
[limits]
roomToolIntervalMs = 0
[launcher]
url = "{launcher.url}/runs"
secret = "{SECRET}"
allowLoopback = true
[notify]
url = "{hooks.url}/hook"
secret = "{OTHER_SECRET}"
publicUrl = "https://rooms.example"
allowLoopback = true
[verdicts]
baseUrl = "{forge.url}"
token = "right"
allowLoopback = true
"""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="mbt", dir=SCRATCH))
    forge = Forge()
    with (
        serving(Outside(lambda _: Reply(202))) as launcher,
        serving(Outside(lambda _: Reply(202))) as hooks,
        serving(forge),
    ):
        with LiveServer(folder, config=config(launcher, hooks, forge)) as server:
            env = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")}
            with (folder / "jobs.stderr").open("w") as stderr:
                second = subprocess.Popen(
                    [sys.executable, "-m", "minutebook.infra.cli.main", "serve", "--data-dir", str(folder),
                     "--role", "jobs"],
                    env={**env, "MINUTEBOOK_DATABASE_URL": server.database_url("app")}, stderr=stderr,
                )  # fmt: skip
            try:
                with server.sql() as look:
                    count = "SELECT count(*) FROM minutebook_jobs.procrastinate_workers"
                    until(lambda: look.execute(count).fetchone() == (2,), 30, "two processes of jobs")
                yield World(server, launcher, hooks, forge)
                assert second.poll() is None, "the second process of jobs ended by itself"
            finally:
                second.terminate()
                second.wait(20)
        server.assert_no_token_in_logs()
        assert "sweep failed" not in server.logs() + (folder / "jobs.stderr").read_text()
    shutil.rmtree(folder, ignore_errors=True)


def kinds_of(client: Any, room: str) -> list[dict[str, Any]]:
    """The payloads of a room's log."""
    events = client.get(f"/v1/rooms/{room}/events", params={"limit": 500}).json()["events"]
    return [{"type": each["type"], "actor": each["actor"], **each["payload"]} for each in events]


def found(client: Any, room: str, **fields: Any) -> Callable[[], list[dict[str, Any]]]:
    """Looks for the events with these fields."""
    return lambda: [each for each in kinds_of(client, room) if fields.items() <= each.items()]


@pytest.fixture(scope="module", autouse=True)
def lent(world: World) -> str:
    """A room whose system lent the token to carl, who does nothing; begun first, since its sweep takes its time."""
    system, carl = world.server.client("system:triage"), world.server.client("human:carl")
    room = open_room(system, members=[{"principal": "human:carl", "role": "collaborator"}])
    assert carl.post(f"/v1/rooms/{room}/driver/request", json={}).json()["driver"] == "human:carl"
    return room


def test_b61_silent_runs_end_once_with_all_that_hung_on_them(world: World) -> None:
    bridge = Bridge(world.server, open_room(world.server.member("alice"), approvals={"profile": "attended"})).hello()
    turn = {"runId": bridge.run_id, "turnId": "t1", "phase": "started"}
    assert bridge.push(item(1, "turn", turn)).status_code == 200
    pending = bridge.ask("e1").json()
    quiet = Bridge(world.server).hello()
    waiting = open_room(bridge.alice)
    asked = bridge.alice.post(f"/v1/rooms/{waiting}/runs", json={"role": "implementer"})
    assert asked.status_code == 202, asked.text
    lost = found(bridge.alice, bridge.room, phase="ended", runId=bridge.run_id)
    never = found(bridge.alice, waiting, phase="ended", runId=asked.json()["runId"])
    last = quiet.log()[-1]["seq"]

    def lives() -> bool:
        """The run that shows that it lives, and does nothing."""
        return quiet.push().status_code == 200 and (quiet.room, last) in waits(world)

    until(lambda: all([lost() and never(), lives()]), SOON_S, "the end of both runs, and the wait of the third", 0.5)
    assert waits(world).count((quiet.room, last)) == 1
    assert quiet.log()[-1]["seq"] == last
    assert quiet.alice.get(f"/v1/rooms/{quiet.room}").json()["phase"] == "AwaitingHuman"
    assert [each["reason"] for each in lost()] == ["lost"]
    of_turn = found(bridge.alice, bridge.room, turnId="t1")()
    assert [each["phase"] for each in of_turn] == ["started", "failed"]
    decided = found(bridge.alice, bridge.room, approvalId=pending["approvalId"])()
    assert [each.get("decision") for each in decided] == [None, "superseded"]
    late = bridge.push(item(2))
    assert code(late) == (403, "run_not_live")
    assert [each["reason"] for each in never()] == ["never_joined"]
    ended = lambda: world.kinds(world.hooks, "runId", bridge.run_id).count("run.ended")  # noqa: E731
    until(lambda: ended() == 1, what="one notice of it")


def test_a_person_who_is_away_loses_the_token_once(world: World, lent: str) -> None:
    system, room = world.server.client("system:triage"), lent
    lapsed = found(system, room, reason="lease_expired")
    until(lambda: bool(lapsed()), SOON_S, "the end of the driver's lease")
    (only,) = lapsed()
    assert (only["from"], only["to"], only["epoch"]) == ("human:carl", "system:triage", 3)


def test_a_requested_run_reaches_the_launcher_with_its_brief(world: World) -> None:
    alice = world.server.member("alice")
    room = open_room(alice)
    queued = alice.post(f"/v1/rooms/{room}/messages", json={"text": "mind the gap", "delivery": "queued"})
    assert queued.status_code == 201, queued.text
    by_hand = new_run_id()
    other = open_room(alice)
    registered = alice.put(f"/v1/runs/{by_hand}", json={"roomId": other, "role": "implementer"})
    assert registered.status_code == 201, registered.text
    run_id = alice.post(f"/v1/rooms/{room}/runs", json={"role": "implementer"}).json()["runId"]
    until(lambda: world.kinds(world.launcher, "runId", run_id) == ["run.requested"], what="the launcher's webhook")
    (data,) = [each.json["data"] for each in world.launcher.requests if each.json["data"]["runId"] == run_id]
    assert (data["roomId"], data["role"]) == (room, "implementer")
    assert data["claim"] == {"roomId": room, "runId": run_id, "role": "implementer"}
    assert "mind the gap" in data["brief"]
    answered(world, other)
    assert world.kinds(world.launcher, "runId", by_hand) == [], "whoever registered it starts it"


def test_an_approval_is_told_of_and_expires_once(world: World) -> None:
    """The clock of two servers is put forward; the one that the run waits at is not."""
    bridge = Bridge(world.server).hello()
    at_once = bridge.ask("e0", "forge.push").json()
    assert at_once["decision"] == "approved"
    answer = bridge.ask("e1")
    assert answer.status_code == 200, answer.text
    approval = answer.json()["approvalId"]
    until(lambda: world.kinds(world.hooks, "approvalId", approval) == ["approval.pending"], what="the notice")

    def listed() -> bool:
        row = bridge.alice.get(f"/v1/rooms/{bridge.room}/approvals", params={"state": "pending"}).json()
        return [each["approvalId"] for each in row["approvals"]] == [approval]

    until(listed, what="the request in the read model")
    later = datetime.now(UTC) + timedelta(minutes=31)
    asyncio.run(expire_at_two_servers(world.server, later))
    (decided,) = found(bridge.alice, bridge.room, type="approval_decided", approvalId=approval)()
    assert decided["decision"] == "expired"
    assert world.kinds(world.hooks, "approvalId", at_once["approvalId"]) == [], "nobody was waited for"
    assert decided["actor"] == {"kind": "system", "id": "minutebook"}


async def expire_at_two_servers(server: LiveServer, later: datetime) -> None:
    """Two sweeps at once, each with its own connections."""

    async def one_server() -> None:
        async with make_pool(server.database_url("app"), "app", max_size=3, statement_timeout_ms=10_000) as pool:
            appender = Appender(pool)
            appender.start()
            store = PostgresStore(pool, appender)
            acts = ServerActs(
                Dispatcher(store, Fingerprints(b"k" * 32), Bounds()), means_of(entropy=lambda: 0, now=lambda: later)
            )
            try:
                await ApprovalExpiry(PostgresDue(pool), acts, lambda: later).run()
            finally:
                await appender.close()

    await asyncio.gather(one_server(), one_server())


def reviewed(world: World, pull: str = PULL, **room: Any) -> tuple[Bridge, dict[str, Any]]:
    """The bridge of a reviewer that gave its verdict on a pull request, and the verdict in the log."""
    system, run_id = world.server.client("system:triage"), new_run_id()
    opened = open_room(system, dataClass="public", **room)
    body = {"roomId": opened, "role": "reviewer", "taskUrl": pull}
    registered = system.put(f"/v1/runs/{run_id}", json=body)
    assert registered.is_success, registered.text
    bridge = Bridge(world.server, opened, run_id, role="reviewer").hello()
    tool(bridge, "room_verdict", verdict="approve", summary="Fine as it is.", commit="abcdef1")
    (given,) = [event for event in bridge.log() if event["payload"].get("kind") == "review_verdict"]
    return bridge, given


def tool(bridge: Bridge, name: str, **arguments: Any) -> None:
    """One of the run's room tools."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    said = bridge.client.post("/mcp", json=call, headers={"accept": "application/json, text/event-stream"})
    assert said.status_code == 200, said.text
    assert not said.json()["result"].get("isError"), said.text


def comments_of(world: World, room: str) -> list[str]:
    """The first lines of the comments on verdicts of that room."""
    with world.forge.lock:
        marks = [each["body"].partition("\n")[0] for each in world.forge.comments]
    return [each for each in marks if f"room={room}:" in each]


def test_a_verdict_becomes_one_comment_and_the_room_hears_of_it(world: World) -> None:
    bridge, given = reviewed(world, repository="acme/widget")
    posted = found(bridge.alice, bridge.room, kind="verdict_posted")
    until(lambda: bool(posted()), 20, "the outcome of the verdict")
    (only,) = posted()
    (comment,) = [each for each in world.forge.comments if each["html_url"] == only["url"]]
    assert comments_of(world, bridge.room) == [f"<!-- minutebook:room={bridge.room}:seq={given['seq']} -->"]
    assert only["ref"] == given["seq"]
    assert "Fine as it is." in comment["body"]
    assert given["payload"]["pullRequest"] == PULL


@pytest.mark.parametrize(
    ("pull", "room", "reason"),
    [
        (PULL, {}, "no_pull_request"),
        (PULL, {"repository": "acme/gadget"}, "no_pull_request"),
        (PULL.replace("/7", "/8"), {"repository": "acme/widget"}, "http_404"),
    ],
    ids=["no repository", "of another repository", "not there"],
)
def test_a_verdict_that_reaches_no_pull_request_is_recorded_as_such(
    world: World, pull: str, room: dict[str, Any], reason: str
) -> None:
    bridge, given = reviewed(world, pull, **room)
    outcome = found(bridge.alice, bridge.room, ref=given["seq"])
    until(lambda: bool(outcome()), 20, "the outcome of the verdict")
    (only,) = outcome()
    assert (only["kind"], only["reason"]) == ("verdict_not_posted", reason)
    assert only["actor"] == {"kind": "system", "id": "minutebook"}
    assert comments_of(world, bridge.room) == []


def test_a_verdict_that_a_fork_copied_is_not_posted_again(world: World) -> None:
    bridge, given = reviewed(world, repository="acme/widget")
    until(found(bridge.alice, bridge.room, kind="verdict_posted"), 20, "the outcome of the verdict")
    made = bridge.alice.post(f"/v1/rooms/{bridge.room}/fork", json={"seq": given["seq"]})
    assert made.status_code == 201, made.text
    copy = made.json()["id"]
    answered(world, copy)
    assert comments_of(world, copy) == []
    assert found(bridge.alice, copy, kind="verdict_posted")() == []
    assert len(comments_of(world, bridge.room)) == 1


def answered(world: World, room: str) -> None:
    """Return once the process of rooms has passed that room's events, and what it asked for is done."""
    passed = (
        "SELECT c.seq = s.version AND NOT EXISTS (SELECT FROM minutebook_jobs.procrastinate_jobs j"
        " WHERE j.args ->> 'room' = split_part(s.name, ':', 2))"
        " FROM minutebook.streams s JOIN minutebook_views.checkpoints c ON c.stream_id = s.id"
        " WHERE c.projection = 'process:rooms' AND s.name = %s"
    )
    with world.server.sql() as look:
        until(lambda: look.execute(passed, (f"room:{room}",)).fetchone() == (True,), 20, "the process in the room")


def test_a_handoff_is_told_of(world: World) -> None:
    bridge = Bridge(world.server).hello()
    tool(bridge, "room_handoff", toRole="reviewer", summary="The sign is turned.", commit="abcdef1")
    until(lambda: "run.handed_over" in world.kinds(world.hooks, "runId", bridge.run_id), what="the notice")
    (handoff,) = [event for event in bridge.log() if event["type"] == "handoff"]
    (told,) = [each.json["data"] for each in world.hooks.requests if each.json["data"].get("runId") == bridge.run_id]
    link = f"https://rooms.example/rooms/{bridge.room}"
    assert told == {"roomId": bridge.room, "runId": bridge.run_id, "seq": handoff["seq"], "url": link}


def test_a_pause_is_told_of_once_and_chat_is_not(world: World) -> None:
    bridge = Bridge(world.server).hello()
    paused = {"kind": "harness_paused"}
    assert bridge.push(*(item(number, payload=paused) for number in range(1, 31))).status_code == 200
    seqs = [event["seq"] for event in bridge.log() if event["payload"] == paused]
    told = lambda: [seq for seq in seqs if (bridge.room, seq) in waits(world)]  # noqa: E731
    until(lambda: told() == seqs[:1], what="the notice")
    tool(bridge, "room_post", text="hello")
    bridge.bye()
    until(lambda: "run.ended" in world.kinds(world.hooks, "runId", bridge.run_id), what="the end")
    assert told() == seqs[:1]


def waits(world: World) -> list[tuple[str, int]]:
    """Room and seq of every notice that somebody waits."""
    with world.hooks.lock:
        told = [each.json for each in world.hooks.requests]
    return [(each["data"]["roomId"], each["data"]["seq"]) for each in told if each["type"] == "room.waiting"]
