"""A bulk run under kill -9."""

from __future__ import annotations

import asyncio
from collections import Counter
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from bulk_bureau import OPERATOR, POLICY, bureau, dead
from bulk_worker import die_before, kill, start
from delivery_desk import Receiver, logged, states
from live_server import until
from minutebook.commands.deliveries.bulk import Progress
from outside import serving


@pytest.fixture
def receiver() -> Any:
    """Where `hook` leads to."""
    with serving(Receiver()) as made:
        yield made


def test_a_run_whose_processes_are_killed_one_after_another_goes_on_and_does_everything_once(
    database: Any, receiver: Receiver
) -> None:
    async def scenario() -> None:
        async with bureau(database, receiver) as here:
            ids = await dead(here.desk, receiver, 12)
            plan_id, _ = await here.plan("replay", rate_per_second=4)
            await here.plans.run(OPERATOR, plan_id, None)

            def started() -> BaseProcess:
                with database.connect("app") as app:
                    app.execute("UPDATE minutebook.bulk_plans SET lease_until = clock_timestamp()")
                return start(database.url(), receiver.url, POLICY)

            await asyncio.to_thread(die_before, database, "events", started)
            assert await here.progress(plan_id) == ("running", Progress(left=12)), "before it has done anything"
            await asyncio.to_thread(die_before, database, "bulk_items", started)
            assert await here.progress(plan_id) == ("running", Progress(left=12)), "done, and not marked"
            assert Counter(states(database).values()) == {"planned": 4, "dead": 8}
            process = started()
            await asyncio.to_thread(until, lambda: marked(database), 20, "the first marks", 0.01)
            await asyncio.to_thread(kill, process)
            assert (await here.progress(plan_id))[1].left, "not at its end"
            with database.connect("app") as app:
                app.execute("UPDATE minutebook.bulk_plans SET lease_until = clock_timestamp()")
            await here.runner().sweep()
            assert await here.progress(plan_id) == ("done", Progress(done=12))
            for each in ids:
                assert [type_ for type_, _ in logged(database, each)].count("delivery_replayed") == 1
            await here.desk.drain()
            assert receiver.took == {f"{each}.1": 1 for each in ids}

    asyncio.run(scenario())


def marked(database: Any) -> bool:
    """Whether anything counts as done."""
    with database.connect("app") as app:
        return app.execute("SELECT FROM minutebook.bulk_items WHERE state = 'done' LIMIT 1").fetchone() is not None
