"""Bulk plans on a real database: dry run, run, stop, what a crash leaves; paused channels, channels that are gone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bulk_bureau import ALL, OPERATOR, POLICY, STRANGER, bureau, dead
from delivery_desk import Desk, Receiver, desk_of, logged, postpone, states, wanted
from minutebook.commands.deliveries.bulk import BulkFilter, PlanBulk, Progress
from minutebook.commands.deliveries.bulk_ports import MAX_PLAN
from minutebook.commands.deliveries.keeping import Keeping
from minutebook.commands.deliveries.pausing import PauseChannel, ResumeChannel
from minutebook.domain.errors import AlreadyEnded, Forbidden, Invalid, NotVisible
from msgspec.structs import replace
from outside import lost_after, serving, status


@pytest.fixture
def receiver() -> Any:
    """Where `hook` leads to."""
    with serving(Receiver()) as made:
        yield made


def test_a_plan_counts_and_touches_nothing_and_its_run_sends_what_is_safe_once(
    database: Any, receiver: Receiver
) -> None:
    async def scenario() -> None:
        async with bureau(database, receiver) as here:
            (accepted,) = await here.desk.planner.plan([wanted()])
            await here.desk.drain()
            (doubtful,) = await here.desk.planner.plan([wanted()])
            receiver.mischief = [lost_after, lost_after]
            while states(database)[doubtful] != "dead":
                await here.desk.drain()
            ids = await dead(here.desk, receiver, 5)
            before = states(database)
            plan_id, counts = await here.plan("replay")
            assert counts == {"safe": 5, "unknown_outcome": 1, "would_duplicate": 1}
            assert states(database) == before
            assert await here.progress(plan_id) == ("planned", Progress(skipped=2, left=5))
            # One of them changes meanwhile.
            await here.desk.payloads.get(ids)
            other, counts = await here.plan("purge", BulkFilter(correlation=await correlation(here.desk, ids[0])))
            assert counts == {"safe": 1}
            for each in (other, plan_id):
                await here.plans.run(OPERATOR, each, None)
                await here.runner().sweep()
            assert await here.progress(other) == ("done", Progress(done=1))
            assert await here.progress(plan_id) == ("done", Progress(done=4, skipped=3))
            await here.desk.drain()
            found = states(database)
            assert [found[each] for each in ids] == ["dead", *["accepted"] * 4]
            assert (found[accepted], found[doubtful]) == ("accepted", "dead")
            assert [receiver.took[f"{each}.1"] for each in ids] == [0, 1, 1, 1, 1]
            assert await here.desk.payloads.get([ids[0]]) == {}
            with pytest.raises(AlreadyEnded):
                await here.plans.run(OPERATOR, plan_id, None)

    asyncio.run(scenario())


async def correlation(desk: Desk, delivery_id: str) -> str:
    """Of the request that a delivery began with."""
    row = await desk.board.one("acme", delivery_id)
    assert row is not None
    return row.correlation_id


def test_what_may_have_arrived_is_sent_again_where_that_was_said(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with bureau(database, receiver) as here:
            (doubtful,) = await here.desk.planner.plan([wanted()])
            receiver.mischief = [lost_after, status(410)]  # it died of a refusal, and may have arrived before
            while states(database)[doubtful] != "dead":
                await here.desk.drain()
            plan_id, counts = await here.plan("replay", resend_unknown=True)
            assert counts == {"unknown_outcome": 1}
            await here.plans.run(OPERATOR, plan_id, None)
            await here.runner().sweep()
            await here.desk.drain()
            assert states(database) == {doubtful: "accepted"}

    asyncio.run(scenario())


def test_a_plan_is_of_the_own_tenant_and_of_a_bounded_size(
    database: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with bureau(database, receiver) as here:
            await here.desk.planner.plan([wanted(), wanted()])
            plan_id, counts = await here.plan("revoke")
            assert counts == {"safe": 2}
            for ask in (here.plans.show(STRANGER, plan_id), here.plans.run(STRANGER, plan_id, None)):
                with pytest.raises(NotVisible):
                    await ask
            answer = await here.plans.plan(STRANGER, PlanBulk("revoke", ALL, "mine"), None)
            assert sum(answer.body["counts"].values()) == 0
            for caller, error in ((replace(OPERATOR, groups=frozenset()), Forbidden), (OPERATOR, Invalid)):
                with pytest.raises(error):
                    await here.plans.plan(caller, PlanBulk("revoke", BulkFilter(), "everything"), None)
            monkeypatch.setattr("minutebook.commands.deliveries.bulk.MAX_PLAN", 1)
            with pytest.raises(Invalid, match="more than 1"):
                await here.plan("revoke")
            assert MAX_PLAN == 10_000

    asyncio.run(scenario())


def test_one_key_is_one_plan_and_one_that_nobody_runs_lapses(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with bureau(database, receiver) as here:
            await here.desk.planner.plan([wanted()])
            command = PlanBulk("revoke", ALL, "mended")
            first = await here.plans.plan(OPERATOR, command, "key-1")
            again = await here.plans.plan(OPERATOR, command, "key-1")
            assert (again.is_replay, again.body) == (True, first.body)
            here.now -= timedelta(hours=2)
            old, _ = await here.plan("revoke")
            await here.runner().sweep()
            assert (await here.progress(old))[0] == "expired"
            assert (await here.progress(first.body["planId"]))[0] == "planned"

    asyncio.run(scenario())


def test_a_run_keeps_its_pace_and_stops_when_it_is_told(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with bureau(database, receiver) as here:
            ids = await here.desk.planner.plan([wanted() for _ in range(10)])
            plan_id, _ = await here.plan("revoke", rate_per_second=3)
            await here.plans.run(OPERATOR, plan_id, None)

            async def told(_seconds: float) -> None:
                await here.plans.stop(OPERATOR, plan_id, None)

            await here.runner(told).sweep()
            assert await here.progress(plan_id) == ("stopped", Progress(done=3, left=7))
            assert sorted(states(database)[each] for each in ids) == ["cancelled"] * 3 + ["planned"] * 7
            await here.runner().sweep()
            assert (await here.progress(plan_id))[1].left == 7, "nobody goes on with it"
            stopped = await here.plans.stop(OPERATOR, plan_id, None)
            assert stopped.status == 202

    asyncio.run(scenario())


def test_what_was_done_right_before_a_crash_is_neither_lost_nor_done_twice(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with bureau(database, receiver) as here:
            ids = await dead(here.desk, receiver, 4)
            plan_id, _ = await here.plan("replay")
            await here.plans.run(OPERATOR, plan_id, None)
            runner = here.runner()
            mark = here.desk.bulk.mark

            async def crash(*_args: Any) -> None:
                raise asyncio.CancelledError

            here.desk.bulk.mark = crash
            with pytest.raises(asyncio.CancelledError):
                await runner.sweep()
            here.desk.bulk.mark = mark
            assert await here.progress(plan_id) == ("running", Progress(left=4))
            await here.runner().sweep()
            assert await here.progress(plan_id) == ("done", Progress(done=4))
            for each in ids:
                assert [type_ for type_, _ in logged(database, each)].count("delivery_replayed") == 1
            await here.desk.drain()
            assert receiver.took == {f"{each}.1": 1 for each in ids}

    asyncio.run(scenario())


def test_a_plan_whose_worker_is_silent_is_anothers(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with bureau(database, receiver) as here:
            await here.desk.planner.plan([wanted()])
            plan_id, _ = await here.plan("revoke")
            await here.plans.run(OPERATOR, plan_id, None)
            assert [each.plan_id for each in await here.desk.bulk.claim("gone", 60, 8)] == [plan_id]
            await here.runner().sweep()
            assert await here.progress(plan_id) == ("running", Progress(left=1))
            with database.connect("app") as app:
                app.execute("UPDATE minutebook.bulk_plans SET lease_until = clock_timestamp()")
            await here.runner().sweep()
            assert await here.progress(plan_id) == ("done", Progress(done=1))

    asyncio.run(scenario())


def test_a_sealed_delivery_loses_its_payload_by_a_plan_and_its_ids_go_by_their_age(
    database: Any, receiver: Receiver
) -> None:
    async def scenario() -> None:
        async with bureau(database, receiver) as here:
            ids = await dead(here.desk, receiver, 2)
            postpone(database, "seal_at", "-8 days")
            keeping = Keeping(here.desk.board, here.desk.payloads, here.desk.store, here.desk.bulk)
            assert (await keeping.run()).sealed == 2
            plan_id, counts = await here.plan("purge")
            assert counts == {"safe": 2}
            await here.plans.run(OPERATOR, plan_id, None)
            await here.runner().sweep()
            assert await here.desk.payloads.get(ids) == {}
            assert await here.progress(plan_id) == ("done", Progress(done=2))
            with database.connect("postgres") as superuser:
                superuser.execute("UPDATE minutebook.bulk_items SET created_at = created_at - interval '31 days'")
                superuser.commit()
            assert (await keeping.run()).bulk == 2
            assert await here.progress(plan_id) == ("done", Progress(done=2)), "as the log has it"

    asyncio.run(scenario())


def test_a_paused_channel_of_the_own_tenant_waits_until_it_is_resumed(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with bureau(database, receiver) as here:
            (delivery_id,) = await here.desk.planner.plan([wanted()])
            command = PauseChannel("maintenance")
            first = await here.pausing.pause(OPERATOR, "hook", command, "key-1")
            assert (first.status, first.body["seq"]) == (200, 1)
            assert (await here.pausing.pause(OPERATOR, "hook", command, "key-1")).is_replay
            assert (await here.pausing.pause(OPERATOR, "hook", command, None)).body["seq"] == 1
            (shown,) = await here.watch.channels(OPERATOR)
            assert (shown.paused, shown.reason, shown.waiting) == (True, "maintenance", 1)
            await here.desk.drain()
            for lane in {f"{each.destination}/{n}" for n in range(4) for each in [await row(here.desk, delivery_id)]}:
                await here.desk.worker.drain(lane)
            assert receiver.requests == []
            for caller, channel, error in (
                (STRANGER, "hook", NotVisible),
                (OPERATOR, "theirs", NotVisible),
                (replace(OPERATOR, groups=frozenset()), "hook", Forbidden),
            ):
                with pytest.raises(error):
                    await here.pausing.resume(caller, channel, ResumeChannel("mine"), None)
            assert (await here.pausing.resume(OPERATOR, "hook", ResumeChannel("mended"), None)).body["seq"] == 2
            await here.desk.drain()
            assert states(database) == {delivery_id: "accepted"}
            assert not (await here.watch.channels(OPERATOR))[0].paused

    asyncio.run(scenario())


async def row(desk: Desk, delivery_id: str) -> Any:
    """A delivery as operators see it."""
    return await desk.board.one("acme", delivery_id)


def test_a_pause_ends_by_itself_and_does_not_touch_another_tenants_channel(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with bureau(database, receiver) as here:
            await here.desk.planner.plan([wanted()])
            until = datetime.now(UTC) + timedelta(seconds=0.3)
            await here.pausing.pause(OPERATOR, "hook", PauseChannel("maintenance", until), None)
            assert await here.desk.rows.lanes_due(10) == []
            destination = here.desk.hashes.destination("acme", "hook", wanted().address)
            assert (await here.desk.gates.pass_("acme", "hook", destination, 1)).state == "paused"
            assert (await here.desk.gates.pass_("other", "hook", destination, 1)).state == "open"
            while not await here.desk.rows.lanes_due(10):
                assert datetime.now(UTC) < until + timedelta(seconds=5)
            await here.desk.drain()
            assert set(states(database).values()) == {"accepted"}

    asyncio.run(scenario())


def test_nobody_but_the_log_stops_a_channel(database: Any) -> None:
    for statement in (
        "INSERT INTO minutebook.channel_pauses (tenant, channel, reason, actor) VALUES ('acme', 'hook', 'x', 'y')",
        "DELETE FROM minutebook.channel_pauses",
        "UPDATE minutebook.bulk_plans SET state = 'running'",
        "UPDATE minutebook.bulk_items SET version = 1",
    ):
        with database.connect("app") as app, pytest.raises(Exception, match="permission denied"):
            app.execute(statement)


@pytest.mark.parametrize("replayed", [False, True])
def test_what_is_of_a_channel_that_is_gone_ends(database: Any, receiver: Receiver, replayed: bool) -> None:
    async def scenario() -> None:
        async with bureau(database, receiver) as here:
            if replayed:
                ids = await dead(here.desk, receiver, 2)
                plan_id, _ = await here.plan("replay")
                await here.plans.run(OPERATOR, plan_id, None)
                await here.runner().sweep()
            else:
                ids = await here.desk.planner.plan([wanted(), wanted()])
        async with desk_of(database.url(), {}, policy=POLICY) as without:
            await without.sweep()
            assert set(states(database).values()) == {"planned"}, "perhaps its settings are on their way"
            postpone(database, "updated_at", "-2 minutes")
            await without.sweep()
            assert states(database) == dict.fromkeys(ids, "dead")
            for each in ids:
                assert logged(database, each)[-1][1]["reason"] == "channel_gone"

    asyncio.run(scenario())
