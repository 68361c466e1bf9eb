"""The parts of the bridge's client against a real server: bounds, refusals, and decisions about another action."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from bridges import Bridge as Peer
from live_server import LiveServer
from minutebook.domain.rooms.approvals import action_digest
from minutebook.domain.rooms.commands import ClaimedReason
from minutebook.infra.api_client import Api, Refused, make_client
from minutebook.infra.bridge_approvals import Request, Verdict
from minutebook.infra.bridge_client import Bridge
from minutebook.infra.bridge_feed import Delivery
from minutebook.infra.bridge_pusher import BUFFER_BYTES
from minutebook.infra.harness_log import HarnessItem
from scratch import SCRATCH

ACTION = {"command": "git push", "force": True}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """One for this module."""
    with tempfile.TemporaryDirectory(prefix="mbk", dir=SCRATCH) as folder, LiveServer(Path(folder) / "data") as live:
        yield live


@pytest.fixture
def peer(server: LiveServer) -> Peer:
    """A room, and a run that will work in it."""
    return Peer(server)


class Fed:
    """A source that gives what the test puts in."""

    def __init__(self) -> None:
        self.reason: ClaimedReason = "finished"
        self.queue: asyncio.Queue[HarnessItem | None] = asyncio.Queue()

    async def items(self, after: int) -> AsyncGenerator[HarnessItem]:
        """See Source."""
        while (item := await self.queue.get()) is not None:
            if item.seq > after:
                yield item


def numbered(seq: int, size: int = 10) -> HarnessItem:
    return HarnessItem(seq, "state_changed", json.dumps({"kind": "harness_event", "filler": "x" * size}).encode())


def as_bridge(peer: Peer, script: Callable[[Bridge, Fed], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Run `script` beside a bridge that said hello and runs."""

    async def body() -> None:
        async with make_client(peer.server.url) as client:
            source = Fed()
            token = peer.server.token(f"agent:{peer.run_id}", room=peer.room)
            bridge = Bridge(Api(client, lambda: token, give_up_s=math.inf), peer.run_id, source, **options)
            await bridge.hello()
            running = asyncio.create_task(bridge.run())
            try:
                async with asyncio.timeout(40):
                    await script(bridge, source)
                    source.queue.put_nowait(None)
                    await running
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(body())


async def has(bridge: Bridge, count: int) -> None:
    """Return when the room has so many items of it."""
    while bridge.pusher.cursors.after_harness_seq < count:  # noqa: ASYNC110 - the room says it to nobody else
        await asyncio.sleep(0.02)


def pushed(peer: Peer) -> int:
    return sum(event["origin"] == "harness" for event in peer.log())


def test_back_pressure_stops_the_reading_at_eight_mib(peer: Peer) -> None:
    """While the server answers nothing, no more is taken from the log than fits; then all of it gets there."""
    count, size = 300, 60_000

    async def script(bridge: Bridge, source: Fed) -> None:
        peer.server.process.send_signal(signal.SIGSTOP)
        try:
            for number in range(1, count + 1):
                source.queue.put_nowait(numbered(number, size))
            before = -1
            while source.queue.qsize() != before:
                before = source.queue.qsize()
                await asyncio.sleep(0.2)
            assert BUFFER_BYTES - size < bridge.pusher.buffered <= BUFFER_BYTES
            assert before > count - BUFFER_BYTES // size - 3
        finally:
            peer.server.process.send_signal(signal.SIGCONT)

    as_bridge(peer, script)
    assert pushed(peer) == count


def test_a_refused_batch_is_halved_down_to_the_one_item(peer: Peer) -> None:
    bad = {37, 38, 150}

    async def script(_: Bridge, source: Fed) -> None:
        for number in range(1, 201):
            item = HarnessItem(number, "driver", b'{"to":"human:eve"}') if number in bad else numbered(number)
            source.queue.put_nowait(item)

    as_bridge(peer, script)
    stored = [event["payload"] for event in peer.log() if event["origin"] == "harness"]
    assert len(stored) == 200
    assert {place for place, payload in enumerate(stored, 1) if payload["kind"] == "harness_error"} == bad
    assert {payload["code"] for payload in stored if payload["kind"] == "harness_error"} == {"invalid"}


def test_what_no_waiting_helps_ends_the_run(peer: Peer) -> None:
    async def script(bridge: Bridge, source: Fed) -> None:
        source.queue.put_nowait(numbered(1))
        await has(bridge, 1)
        await asyncio.to_thread(Peer(peer.server, peer.room, peer.run_id).hello)
        source.queue.put_nowait(numbered(2))

    with pytest.raises(Refused) as refused:
        as_bridge(peer, script)
    assert refused.value.code == "lease_lost"
    assert pushed(peer) == 1


def test_numbers_may_have_gaps_and_what_is_stored_already_is_not_pushed(peer: Peer) -> None:
    async def script(_: Bridge, source: Fed) -> None:
        for number in (2, 5, 9):
            source.queue.put_nowait(numbered(number))

    as_bridge(peer, script)
    as_bridge(peer, script)
    assert pushed(peer) == 3


def asking(event_id: str = "e1") -> Request:
    return Request(event_id, "c1", "forge.pr", ACTION)


def decision_of(asked: dict[str, Any], ref: int, **other: Any) -> Delivery:
    values = {"approval_id": asked["approvalId"], "allow": True, "action_digest": asked["actionDigest"], **other}
    return Delivery("decision", ref, **values)


async def the_request(peer: Peer) -> dict[str, Any]:
    """The request once it waits in the room."""
    while True:
        url = f"/v1/rooms/{peer.room}/approvals"
        answer = await asyncio.to_thread(peer.alice.get, url, params={"state": "pending"})
        if answer.json()["approvals"]:
            return answer.json()["approvals"][0]
        await asyncio.sleep(0.02)


def test_law_24_a_decision_for_another_action_lets_nothing_go(peer: Peer) -> None:
    """Whoever sends it: the digest is not that of what this caller would run, so the call stays where it is."""

    async def script(bridge: Bridge, _: Fed) -> None:
        waiting = asyncio.create_task(bridge.ask(asking()))
        asked = await the_request(peer)
        approvals = bridge._approvals
        assert approvals is not None
        forged = action_digest(asked["approvalId"], {"command": "git push", "force": False})
        assert not approvals.take(decision_of({**asked, "approvalId": "another"}, 6))
        assert approvals.take(decision_of(asked, 7, action_digest=forged))
        verdict = await waiting
        assert verdict == Verdict(
            False, "denied", asked["approvalId"], action_digest(asked["approvalId"], ACTION), "digest_mismatch"
        )

    as_bridge(peer, script, asks=True)
    said = [event["payload"] for event in peer.log() if event["payload"].get("kind") == "undeliverable"]
    assert said == [{"kind": "undeliverable", "ref": 7, "reason": "digest_mismatch"}]


def test_an_approved_call_goes_ahead_and_a_superseded_one_does_not(peer: Peer) -> None:
    async def script(bridge: Bridge, source: Fed) -> None:
        waiting = asyncio.create_task(bridge.ask(asking()))
        asked = await the_request(peer)
        await asyncio.to_thread(peer.decide, asked)
        verdict = await waiting
        assert (verdict.allow, verdict.decision) == (True, "approved")
        result = {"callId": "c1", "status": "ok", "output": "", "truncated": False, "bytes": 0}
        source.queue.put_nowait(HarnessItem(1, "tool_result", json.dumps(result).encode()))
        await has(bridge, 1)
        late = await bridge.ask(asking("e2"))
        assert (late.allow, late.decision) == (False, "superseded")

    as_bridge(peer, script, asks=True)
