"""Ten thousand deliveries to a destination that is gone: no storm, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from delivery_desk import Receiver, desk_of, settled, states, wanted, webhook
from job_steps import running
from minutebook.domain.deliveries.retry import Policy
from minutebook.infra.jobs.engine import Timing
from outside import serving, status

DEAD = 10_000
BATCH = 200


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
