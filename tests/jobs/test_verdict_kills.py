"""SC-14 under kill -9: a worker is killed at every step between a verdict and its record; there is one comment ever."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from job_steps import engine_of, rows
from live_server import until
from minutebook.commands.processes.requests import verdict_request
from minutebook.domain.rooms.events import ParticipantJoined, RoomOpened, RunStarted, VerdictGiven
from outside import serving
from swept import begin, by_run, log, run_of
from verdict_worker import STEPS, Killer, start

PULL = "https://github.com/acme/widget/pull/7"
AFTER_S = 0.03
"""Longest time from the answer to the kill; recording takes less."""


def reviewed(database: Any, number: int) -> tuple[str, int]:
    """A room whose reviewer gave its verdict, and the seq of that."""
    opened = RoomOpened(
        owner="human:olga", driver="human:olga", data_class="public", retention="90d", repository="acme/widget"
    )
    run = run_of(number)
    verdict = by_run(VerdictGiven("Fine.", "approve", "abcdef1", pull_request=PULL), number)
    events = (opened, ParticipantJoined(f"agent:{run}", "reviewer"), RunStarted(run, "reviewer"), verdict)
    return begin(database, *events, number=number), len(events)


def plan_of(number: int, chance: random.Random) -> list[tuple[str, float]]:
    """Two kills of one verdict: the first at each step in turn, the second at any."""
    steps = (STEPS[number % len(STEPS)], chance.choice(STEPS))
    return [(step, chance.uniform(0, AFTER_S)) for step in steps]


async def ask(database: Any, room: str, seq: int) -> None:
    """As the outbox does."""
    async with engine_of(database) as engine:
        await engine.defer(verdict_request(room, seq))


@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=(pytest.mark.soak, pytest.mark.timeout(1800)))])
def test_sc_14_one_comment_ever_wherever_the_worker_is_killed(database: Any, rounds: int) -> None:
    forge, chance = Killer(database), random.Random(4)  # noqa: S311
    with serving(forge):
        forge.victim = start(database.url(), forge.url)
        try:
            for number in range(rounds):
                room, seq = reviewed(database, number)
                forge.plan = plan_of(number, chance)
                asyncio.run(ask(database, room, seq))
                if forge.plan[0][0] == "who":
                    forge.victim.kill()  # one that has done something knows who it is
                until(lambda: done(database, forge), 30, f"the end of round {number}, {forge.plan}", 0.05)
                outcomes = [each for each in log(database, room) if each.get("ref") == seq]
                assert [each["kind"] for each in outcomes] == ["verdict_posted"]
                marker = f"<!-- minutebook:room={room}:seq={seq} -->"
                (comment,) = [each for each in forge.comments if each["body"].startswith(marker)]
                assert outcomes[0]["url"] == comment["html_url"]
        finally:
            forge.victim.kill()
            forge.victim.join()
    assert forge.kills > rounds, "most of them were killed twice"


def done(database: Any, forge: Killer) -> bool:
    """Whether nothing is left to do; a worker that was killed is followed by another one meanwhile."""
    victim = forge.victim
    assert victim is not None
    if not victim.is_alive():
        victim.join()
        forge.victim = start(database.url(), forge.url)
        return False
    return not rows(database)
