"""Deliveries over real sockets: from the plan to what became of it, on a real database as the app role."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from delivery_desk import BRISK, Receiver, desk_of, hang, logged, postpone, settled, states, wanted, webhook
from job_steps import queue_of, running
from minutebook.commands.deliveries.noting import Notes
from minutebook.commands.deliveries.planning import Said
from minutebook.domain.deliveries.events import DeliveryPlanned
from minutebook.domain.deliveries.retry import Policy
from minutebook.domain.errors import Invalid, MinutebookError
from minutebook.domain.principals import SERVER
from minutebook.infra.jobs.engine import Timing
from outside import garbage, lost_after, lost_before, serving, slowly, status
from ulid_transform import ulid_now

TALK = "conv" * 6 + "aa"


@pytest.fixture
def receiver() -> Any:
    """Where `hook` leads to."""
    with serving(Receiver()) as made:
        yield made


def test_a_delivery_is_planned_woken_and_accepted(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}) as desk:
            engine = desk.engine(database.url())
            async with running(engine):
                ids = await desk.planner.plan(
                    [wanted(text="well"), wanted(parts=(Said("echo", "q"), Said("reply", "a")))]
                )
                assert set((await settled(database, 2)).values()) == {"accepted"}
                assert receiver.took == {f"{ids[0]}.1": 1, f"{ids[1]}.1": 1, f"{ids[1]}.2": 1}
                assert receiver.texts[f"{ids[0]}.1"] == "well"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("mischief", "state", "reason", "sends"),
    [
        ([slowly], "accepted", "", 1),
        ([status(429, retry_after="0"), status(500)], "accepted", "", 1),
        ([status(410)], "dead", "gone", 0),
        ([lost_before, lost_after], "accepted", "", 2),
        ([hang(1.0)], "accepted", "", 1),
        ([garbage], "accepted", "", 1),
        ([status(503)] * 8, "dead", "attempts_used", 0),
        ([lost_after] * 8, "dead", "unknown_outcome", 8),
    ],
    ids=["slowly", "429-500", "410", "lost", "nothing", "garbage", "503", "never-an-answer"],
)
def test_what_a_destination_answers(
    database: Any, receiver: Receiver, mischief: Any, state: str, reason: str, sends: int
) -> None:
    async def scenario() -> None:
        policy = Policy(first_s=0.01, growth=1, timeout_s=0.6)
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}, policy=policy) as desk:
            (delivery_id,) = await desk.planner.plan([wanted()])
            receiver.mischief = list(mischief)
            async with asyncio.timeout(20):
                while states(database)[delivery_id] not in ("accepted", "dead"):
                    await desk.drain()
                    await desk.gates.told("hook", "h:" + "0" * 32, is_alive=True, wait_s=None)
                    reset_breakers(database)
            assert states(database)[delivery_id] == state
            last = logged(database, delivery_id)[-1][1]
            assert last.get("reason", "") == reason
            assert receiver.took.total() == sends

    asyncio.run(scenario())


def reset_breakers(database: Any) -> None:
    """As if the destination had been left alone for long enough."""
    with database.connect("app") as app:
        app.execute("DELETE FROM minutebook.delivery_breakers")


def test_the_same_plan_again_plans_nothing(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}) as desk:
            once = wanted()
            assert await desk.planner.plan([once]) == await desk.planner.plan([once])
            await desk.drain()
            assert receiver.took.total() == 1
            with pytest.raises(Invalid):
                await desk.planner.plan([wanted("nowhere")])

    asyncio.run(scenario())


def test_an_order_is_kept_until_its_head_has_waited(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        policy = Policy(first_s=3600, growth=1, timeout_s=0.5)
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}, policy=policy) as desk:
            ids = await desk.planner.plan([wanted(text=str(n), conversation=TALK) for n in range(3)])
            receiver.mischief = [status(503)]
            await desk.drain(times=3)
            assert receiver.took.total() == 0, "the head waits, and holds the others back"
            await desk.sweep()
            await desk.drain()
            assert receiver.took.total() == 0
            postpone(database, "order_until", "-11 minutes")
            await desk.sweep()
            await desk.drain(times=3)
            assert [states(database)[each] for each in ids] == ["waiting", "accepted", "accepted"]
            released = [body for type_, body in logged(database, ids[1]) if type_ == "order_released"]
            assert released == [{"behind": ids[0]}]

    asyncio.run(scenario())


def test_one_conversation_is_sent_in_order(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}) as desk:
            async with running(desk.engine(database.url())):
                ids = []
                for n in range(12):
                    ids += await desk.planner.plan([wanted(text=str(n), conversation=TALK)])
                await settled(database, 12)
            assert list(receiver.took) == [f"{each}.1" for each in ids]

    asyncio.run(scenario())


def test_a_destination_that_is_gone_is_left_alone_and_others_are_not(database: Any, receiver: Receiver) -> None:
    """Ten thousand of them behind soak; see test_delivery_soak.py."""

    async def scenario() -> None:
        with serving(Receiver()) as dead:
            channels = {"hook": webhook("hook", receiver.url), "dead": webhook("dead", dead.url)}
            async with desk_of(database.url(), channels, policy=Policy(timeout_s=0.5)) as desk:
                dead.mischief = [status(503)] * 10_000
                await desk.planner.plan([wanted("dead") for _ in range(200)])
                ids = await desk.planner.plan([wanted("hook") for _ in range(20)])
                async with running(desk.engine(database.url())):
                    await settled(database, 20)
                    await desk.sweep()
                    await desk.sweep()
                found = states(database)
                assert {found[each] for each in ids} == {"accepted"}
                assert len(dead.requests) < 40, "a breaker, not a storm"

    asyncio.run(scenario())


def test_one_probe_reopens_a_destination(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with desk_of(
            database.url(), {"hook": webhook("hook", receiver.url)}, policy=Policy(timeout_s=0.5)
        ) as desk:
            destination = desk.hashes.destination("acme", "hook", wanted().address)
            for _ in range(5):
                await desk.gates.told("hook", destination, is_alive=False, wait_s=None)
            await desk.planner.plan([wanted() for _ in range(10)])
            assert await desk.rows.lanes_due(10) == []
            with database.connect("app") as app:
                app.execute("UPDATE minutebook.delivery_breakers SET retry_at = clock_timestamp()")
            lanes = await desk.rows.lanes_due(10)
            assert (await desk.gates.pass_("acme", "hook", destination, 20)).state == "probe"
            assert (await desk.gates.pass_("acme", "hook", destination, 20)).state == "shut"
            assert await desk.rows.lanes_due(10) == []
            with database.connect("app") as app:
                app.execute("UPDATE minutebook.delivery_breakers SET probe_until = NULL")
            for lane in lanes:
                await desk.worker.drain(lane)
            assert set(states(database).values()) == {"accepted"}

    asyncio.run(scenario())


def test_a_paused_channel_waits_and_a_pace_is_kept(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}, rate=5, lanes=1) as desk:
            await desk.pause("hook")
            await desk.planner.plan([wanted() for _ in range(8)])
            await desk.drain()
            assert receiver.took.total() == 0
            assert await desk.rows.lanes_due(10) == []
            await desk.resume("hook")
            await desk.drain()
            assert 5 <= receiver.took.total() <= 7, "a second's worth, and what came meanwhile"

    asyncio.run(scenario())


def test_what_is_cancelled_right_before_the_send_is_not_sent(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}) as desk:
            (delivery_id,) = await desk.planner.plan([wanted()])
            sender, original = desk.means, desk.payloads.get

            async def cancelled_meanwhile(ids: Any) -> Any:
                await revoke(desk, delivery_id)
                return await original(ids)

            desk.payloads.get = cancelled_meanwhile
            await desk.drain()
            assert sender.payloads is desk.payloads
            assert receiver.requests == []
            assert states(database) == {delivery_id: "cancelled"}
            assert [type_ for type_, _ in logged(database, delivery_id)][-2:] == ["delivery_cancelled", "attempt_ended"]

    asyncio.run(scenario())


async def revoke(desk: Any, delivery_id: str) -> None:
    """As an unlink does."""
    notes = Notes(desk.store, lambda: datetime.now(UTC), ulid_now)
    assert await notes.cancel([delivery_id, "no" * 13], "unlink", SERVER) == 1
    assert await notes.cancel([delivery_id], "unlink", SERVER) == 0


def test_what_policy_no_longer_allows_is_cancelled_at_the_send(database: Any, receiver: Receiver) -> None:
    async def muted(_plan: DeliveryPlanned) -> str:
        return "muted"

    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}, permit=muted) as desk:
            (delivery_id,) = await desk.planner.plan([wanted()])
            await desk.drain()
            assert logged(database, delivery_id)[-1] == ("delivery_cancelled", {"reason": "muted"})
            assert receiver.requests == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("change", "reason"), [("codec_version = 9", "codec_unknown"), ("body = 'x'", "payload_damaged")]
)
def test_what_cannot_be_read_is_a_dead_letter(database: Any, receiver: Receiver, change: str, reason: str) -> None:
    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}) as desk:
            (delivery_id,) = await desk.planner.plan([wanted()])
            with database.connect("postgres") as owner:
                owner.execute(f"UPDATE minutebook.delivery_payloads SET {change}")
            await desk.drain()
            assert logged(database, delivery_id)[-1][1]["reason"] == reason
            (gone,) = await desk.planner.plan([wanted()])
            assert await desk.payloads.forget([gone]) == 1
            await desk.drain()
            assert logged(database, gone)[-1][1]["reason"] == "payload_gone"
            assert receiver.requests == []

    asyncio.run(scenario())


def test_no_delivery_is_planned_before_its_payload_is_kept(database: Any, receiver: Receiver) -> None:
    """Whoever is killed in between would leave a delivery of which nobody knows what it says."""

    async def scenario() -> None:
        asked, channels = wanted(text="kept first"), {"hook": webhook("hook", receiver.url)}
        with database.connect("postgres") as owner:
            owner.execute("REVOKE INSERT ON minutebook.delivery_payloads FROM minutebook_app")
            async with desk_of(database.url(), channels) as desk:
                with pytest.raises(MinutebookError):
                    await desk.planner.plan([asked])
            # The desk is closed, and whatever it had begun has come to its end.
            assert owner.execute("SELECT count(*) FROM minutebook.deliveries").fetchone() == (0,)
            owner.execute("GRANT INSERT ON minutebook.delivery_payloads TO minutebook_app")
        async with desk_of(database.url(), channels) as desk:
            await desk.planner.plan([asked])
            await desk.drain()
        assert list(receiver.texts.values()) == ["kept first"]

    asyncio.run(scenario())


def test_a_plan_that_comes_again_brings_no_payload_back(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}) as desk:
            asked = wanted()
            (delivery_id,) = await desk.planner.plan([asked])
            assert await desk.payloads.forget([delivery_id]) == 1
            assert await desk.planner.plan([asked]) == [delivery_id]
            assert await desk.payloads.get([delivery_id]) == {}

    asyncio.run(scenario())


def test_a_clock_that_steps_over_the_expiry_ends_it_also_where_a_breaker_holds_it(
    database: Any, receiver: Receiver
) -> None:
    async def scenario() -> None:
        policy = Policy(expiry_s=-1, timeout_s=0.5)
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}, policy=policy) as desk:
            await desk.pause("hook")
            ids = await desk.planner.plan([wanted() for _ in range(3)])
            await desk.sweep()
            assert states(database) == dict.fromkeys(ids, "expired")
            assert receiver.requests == []

    asyncio.run(scenario())


def test_the_sweep_finds_what_nobody_woke(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}) as desk:
            await desk.planner.plan([wanted() for _ in range(5)])
            await desk.planner.close()
            with queue_of(database) as queue:
                queue.execute("DELETE FROM minutebook_jobs.procrastinate_jobs")
            await desk.sweep()
            await desk.sweep()
            with database.connect("app") as app:
                lanes = app.execute("SELECT args FROM minutebook_jobs.procrastinate_jobs").fetchall()
            assert 1 <= len(lanes) <= 4, "one job waits for each lane"
            assert all(set(args) == {"lane"} for (args,) in lanes)
            async with running(desk.engine(database.url(), timing=Timing(poll_s=0.1))):
                await settled(database, 5)

    asyncio.run(scenario())


def test_work_that_is_due_is_not_kept_waiting_by_a_later_wake_up(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}) as desk:
            lane = "h:" + "ab" * 16 + "/1"
            await desk.queue.wake([lane], 3600)
            await desk.queue.wake([lane])
            await desk.queue.wake([lane], 3600)
            with database.connect("app") as app:
                rows = app.execute(
                    "SELECT j.scheduled_at <= clock_timestamp() FROM minutebook_jobs.procrastinate_jobs j"
                ).fetchall()
            assert rows == [(True,)]

    asyncio.run(scenario())


def test_nothing_of_a_delivery_in_the_log_names_anybody(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}, policy=BRISK) as desk:
            (delivery_id,) = await desk.planner.plan([wanted(text="canary-7f3a")])
            await desk.drain()
            assert receiver.texts == {f"{delivery_id}.1": "canary-7f3a"}
            assert "canary" not in str(logged(database, delivery_id))
            with database.connect("auditor") as auditor:
                assert "canary" not in str(auditor.execute("SELECT * FROM minutebook.deliveries").fetchall())

    asyncio.run(scenario())


@pytest.mark.parametrize("body", [b"", b"{}", b"x" * 5000])
def test_sends_to_one_webhook_share_a_connection_where_its_answers_are_short(database: Any, body: bytes) -> None:
    async def scenario() -> None:
        calls: list[int] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            calls.append(0)
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while head := await reader.readuntil(b"\r\n\r\n"):
                    await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
                    calls[-1] += 1
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with desk_of(database.url(), {"hook": webhook("hook", url)}, lanes=1) as desk:
            await desk.planner.plan([wanted() for _ in range(4)])
            await desk.drain()
            assert set(states(database).values()) == {"accepted"}
            assert calls == ([4] if len(body) < 4096 else [1] * 4)
        server.close()

    asyncio.run(scenario())
