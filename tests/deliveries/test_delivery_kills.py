"""Deliveries under kill -9: a worker dies at every step between the plan and the record of the end."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import pytest
from delivery_desk import desk_of, logged, states, wanted, webhook
from delivery_worker import POLICY, STEPS, KillingReceiver, start
from live_server import until
from minutebook.domain.deliveries.state import TERMINAL
from outside import serving

AFTER_S = 0.02
"""Longest time from the answer to the kill; recording takes less."""


async def plan(database: Any, url: str) -> str:
    """As a turn's end does."""
    async with desk_of(database.url(), {"hook": webhook("hook", url)}, policy=POLICY) as desk:
        return (await desk.planner.plan([wanted()]))[0]


@pytest.mark.parametrize("rounds", [3, pytest.param(200, marks=(pytest.mark.soak, pytest.mark.timeout(1800)))])
def test_a_delivery_ends_once_wherever_its_sender_is_killed(database: Any, rounds: int) -> None:
    receiver, chance = KillingReceiver(database), random.Random(7)  # noqa: S311
    with serving(receiver):
        receiver.victim = start(database.url(), receiver.url)
        try:
            for number in range(rounds):
                first = STEPS[number % len(STEPS)]
                receiver.plan = [] if first == "planned" else [(first, chance.uniform(0, AFTER_S))]
                delivery_id = asyncio.run(plan(database, receiver.url))
                if first == "planned":
                    receiver.kill()
                until(partial(done, database, receiver, delivery_id), 30, f"the end of round {number}, {first}", 0.02)
                check(database, receiver, delivery_id)
        finally:
            receiver.victim.kill()
            receiver.victim.join()
    assert receiver.kills > rounds // 2, "most rounds had a kill of their own"


def done(database: Any, receiver: KillingReceiver, delivery_id: str) -> bool:
    """Whether it has ended; a worker that was killed is followed by another one meanwhile."""
    victim = receiver.victim
    assert victim is not None
    if not victim.is_alive():
        victim.join()
        receiver.victim = start(database.url(), receiver.url)
        return False
    return states(database)[delivery_id] in TERMINAL and not receiver.plan


def check(database: Any, receiver: KillingReceiver, delivery_id: str) -> None:
    """One terminal state; nothing is sent behind it, and every extra send is of a recorded crash window, same key."""
    events = logged(database, delivery_id)
    ends = [body for type_, body in events if type_ == "attempt_ended" and body["state"] in TERMINAL]
    assert [body["state"] for body in ends] == ["accepted"]
    assert events[-1][1] == ends[0], "nothing behind the end"
    started = [body["key"] for type_, body in events if type_ == "attempt_started"]
    assert set(started) == {f"{delivery_id}.1"}
    unknown = [body for type_, body in events if type_ == "attempt_ended" and body["outcome"] == "unknown"]
    assert receiver.took[f"{delivery_id}.1"] <= 1 + len(unknown)
    assert receiver.took[f"{delivery_id}.1"] >= 1
