"""Ten thousand deliveries to a destination that is gone: no storm, and nobody else waits for it. Five hundred to one
that is gone for a minute: no crowd of retries."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Any

import pytest
from delivery_desk import Desk, Receiver, desk_of, settled, states, wanted, webhook
from job_steps import running
from minutebook.commands.deliveries.sweeping import SWEEP_EVERY_S
from minutebook.domain.deliveries.retry import Policy
from minutebook.infra.jobs.engine import Timing
from outside import Reply, Request, serving, status

DEAD = 10_000
BATCH = 200

MANY = 500
DOWN_S = 60.0
LANES = 4
LATENCY_S = 0.02


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_thousand_deliveries_to_a_dead_destination_are_no_storm(database: Any) -> None:
    async def scenario() -> None:
        with serving(Receiver()) as dead, serving(Receiver()) as alive:
            channels = {"dead": webhook("dead", dead.url), "hook": webhook("hook", alive.url)}
            async with desk_of(database.url(), channels, policy=Policy(timeout_s=2)) as desk:
                dead.mischief = [status(503)] * 100_000
                for _ in range(DEAD // BATCH):
                    await desk.planner.plan([wanted("dead") for _ in range(BATCH)])
                async with running(desk.engine(database.url(), timing=Timing())):
                    began = time.monotonic()
                    ids = await desk.planner.plan([wanted("hook") for _ in range(200)])
                    await settled(database, 200, 60)
                    took_s = time.monotonic() - began
                    for _ in range(8):
                        await asyncio.sleep(2)
                        await desk.sweep()
                found = states(database)
                assert {found[each] for each in ids} == {"accepted"}
                assert took_s < 30, "others are unaffected"
                assert len(dead.requests) < 100, "probes only"

    asyncio.run(scenario())


class Recovering(Receiver):
    """Answers 503 for a minute; remembers which keys came, and how many were there at once."""

    def __init__(self) -> None:
        super().__init__()
        self.began = time.monotonic()
        self.came: list[str] = []
        self.most = 0
        self._there = 0
        self._count = threading.Lock()

    def handle(self, request: Request) -> Reply:
        """See Outside."""
        at = time.monotonic() - self.began
        with self._count:
            self.came.append(request.headers["webhook-id"])
            self._there += 1
            self.most = max(self.most, self._there)
        try:
            time.sleep(LATENCY_S)
            return Reply(503, b"{}") if at < DOWN_S else super().handle(request)
        finally:
            with self._count:
                self._there -= 1


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_b69_after_an_outage_no_crowd_of_retries_comes_back(database: Any) -> None:
    async def scenario() -> None:
        with serving(Recovering()) as receiver:
            channels = {"hook": webhook("hook", receiver.url)}
            async with desk_of(database.url(), channels, policy=Policy(), lanes=LANES) as desk:
                for first in range(0, MANY, BATCH):
                    count = min(BATCH, MANY - first)
                    await desk.planner.plan([wanted(conversation=f"conv{n}" * 4) for n in range(count)])
                async with running(desk.engine(database.url(), timing=Timing())):
                    sweeping = asyncio.create_task(_sweep(desk))
                    found = await settled(database, MANY, 400)
                    sweeping.cancel()
        assert set(found.values()) == {"accepted"}
        retries = {key: count - 1 for key, count in Counter(receiver.came).items() if count > 1}
        assert 1 < receiver.most <= LANES, "few at once"
        # The breaker leaves few retries at all: what it held back is sent for the first time.
        assert 0 < sum(retries.values()) <= MANY // 10

    asyncio.run(scenario())


async def _sweep(desk: Desk) -> None:
    while True:
        await asyncio.sleep(SWEEP_EVERY_S)
        await desk.sweep()
