"""Receipts on a real database: of their own channel, forward only, and quicker than what they are of."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from delivery_desk import Receiver, desk_of, logged, states, wanted, webhook
from minutebook.commands.channels.ports import Receipt
from minutebook.commands.deliveries.lane import LaneWorker
from minutebook.commands.deliveries.noting import Notes
from msgspec.structs import replace
from outside import serving
from ulid_transform import ulid_now


@pytest.fixture
def receiver() -> Any:
    """Where `hook` leads to."""
    with serving(Receiver()) as made:
        yield made


def test_receipts_are_of_their_own_channel_and_go_forward(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}) as desk:
            (delivery_id,) = await desk.planner.plan([wanted()])
            notes = Notes(desk.store, lambda: datetime.now(UTC), ulid_now)
            receipt = Receipt(f"{delivery_id}.1", "delivered", datetime.now(UTC))
            assert await notes.receipts("hook", [receipt]) == 0, "not accepted yet"
            await desk.drain()
            assert await notes.receipts("other", [receipt]) == 0
            assert await notes.receipts("hook", [receipt, Receipt("nonsense", "observed")]) == 1
            assert await notes.receipts("hook", [receipt]) == 0
            assert await notes.receipts("hook", [Receipt(f"{delivery_id}.1", "observed")]) == 1
            assert states(database) == {delivery_id: "accepted"}

    asyncio.run(scenario())


def test_a_receipt_that_is_quicker_than_the_record_of_its_send_is_kept(database: Any, receiver: Receiver) -> None:
    """A client acknowledges what it has before its sender has written down that it was accepted."""

    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}) as desk:
            (delivery_id,) = await desk.planner.plan([wanted()])
            notes, loop = Notes(desk.store, lambda: datetime.now(UTC), ulid_now), asyncio.get_running_loop()

            def at_once(_request: Any, honest: Any) -> Any:
                reply = honest()
                said = notes.receipts("hook", [Receipt(f"{delivery_id}.1", "delivered")])
                assert asyncio.run_coroutine_threadsafe(said, loop).result(10) == 1
                return reply

            receiver.mischief = [at_once]
            await desk.drain()
            assert states(database) == {delivery_id: "accepted"}
            types = [type_ for type_, _ in logged(database, delivery_id)]
            assert types == ["delivery_planned", "attempt_started", "receipt_noted", "attempt_ended"]
            assert receiver.took == {f"{delivery_id}.1": 1}
            assert await notes.receipts("hook", [Receipt(f"{delivery_id}.1", "delivered")]) == 0
            assert await notes.receipts("hook", [Receipt(f"{delivery_id}.1", "observed")]) == 1

    asyncio.run(scenario())


def test_a_receipt_of_an_earlier_attempt_stops_no_send(database: Any, receiver: Receiver) -> None:
    """It comes between the record that a send begins and its socket."""

    async def scenario() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}) as desk:
            (delivery_id,) = await desk.planner.plan([wanted()])
            notes, heads = Notes(desk.store, lambda: datetime.now(UTC), ulid_now), desk.means.heads

            class Late:
                async def of(self, key: int) -> int | None:
                    await notes.receipts("hook", [Receipt(f"{delivery_id}.1", "delivered")])
                    return await heads.of(key)

            worker = LaneWorker(replace(desk.means, heads=Late()), desk.gates, desk.queue, lambda: False)
            (lane,) = await desk.rows.lanes_due(1)
            await worker.drain(lane)
            assert states(database) == {delivery_id: "accepted"}
            assert [type_ for type_, _ in logged(database, delivery_id)][2:] == ["receipt_noted", "attempt_ended"]

    asyncio.run(scenario())
