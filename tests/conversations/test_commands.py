"""The commands of conversations: whose they are, what a retry gets, what is full, and clocks that step."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from conversation_desk import ALICE, BOB, Killed, desk
from minutebook.commands.conversations.handlers import Conversations
from minutebook.domain.conversations.commands import SeenTurn, SendTurn, StartConversation
from minutebook.domain.conversations.events import ReplyRecorded, UserRecorded
from minutebook.domain.errors import Forbidden, Invalid, KeyReused, NotVisible, QueueFull, Sealed
from minutebook.domain.principals import Caller, Principal
from msgspec.structs import replace


def test_a_handle_is_the_same_conversation_for_its_identity_alone(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            command = StartConversation("echo", id="notes")
            first = await here.conversations.start(ALICE, command, None)
            again = await here.conversations.start(ALICE, command, None)
            assert (first.status, again.status, again.body["id"]) == (201, 200, first.body["id"])
            delegate = replace(ALICE, delegate=Principal("human", "robot"))
            others = [await here.conversations.start(each, command, None) for each in (BOB, delegate)]
            assert len({first.body["id"], *(each.body["id"] for each in others)}) == 3
            with pytest.raises(NotVisible):
                await here.conversations.look(delegate, first.body["id"])
            racing = await asyncio.gather(
                *(here.conversations.start(ALICE, StartConversation("echo", id="race"), None) for _ in range(8))
            )
            assert len({each.body["id"] for each in racing}) == 1
            assert sorted(each.status for each in racing) == [200] * 7 + [201]

    asyncio.run(go())


def test_who_may_start_and_what(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            stranger = Caller(Principal("human", "carol"), "acme")
            with pytest.raises(Forbidden):
                await here.conversations.start(stranger, StartConversation("echo"), None)
            with pytest.raises(Invalid):
                await here.conversations.start(ALICE, StartConversation("none"), None)
            started = await here.conversations.start(ALICE, StartConversation("echo", mode="shared"), None)
            assert started.status == 201

    asyncio.run(go())


def test_a_retry_gets_the_first_answer_for_ever(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            conversation = await here.start()
            first = await here.send(conversation, "hello", "m1")
            await here.done()
            await here.conversations.close(ALICE, conversation, "c1")
            await here.done()
            again = await here.send(conversation, "hello", message_id="m1")
            assert (again.is_replay, again.body) == (True, first.body)
            with pytest.raises(KeyReused):
                await here.send(conversation, "another", "m1")
            with pytest.raises(Sealed):
                await here.send(conversation, "later")
            with pytest.raises(Invalid):
                await here.send(conversation, "hello", "m1", message_id="m2")
            with pytest.raises(Invalid):
                await here.send(conversation, "hello", "AKIAIOSFODNN7EXAMPLE")

    asyncio.run(go())


def test_a_full_queue_refuses(database: Any) -> None:
    async def go() -> None:
        held = Killed("before take")
        async with desk(database.url(), point=held.once) as here:
            conversation = await here.start()
            for number in range(64):
                await here.send(conversation, f"number {number}")
            with pytest.raises(QueueFull):
                await here.send(conversation, "one more")
            with pytest.raises(NotVisible):
                await here.conversations.send(BOB, conversation, SendTurn("x"), None)
            held.go_on.set()
            await here.done()
            assert len(await here.records(conversation)) == 128

    asyncio.run(go())


def test_the_settings_say_how_many_wait(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url(), point=Killed("before take").once) as here:
            conversation = await here.start()
            here.conversations = Conversations(here.handler_means(waiting_turns=2))
            await here.send(conversation, "one")
            await here.send(conversation, "two")
            with pytest.raises(QueueFull, match="2 turns wait already"):
                await here.send(conversation, "three")

    asyncio.run(go())


def test_what_was_seen_is_noted_for_a_turn_that_runs(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            conversation = await here.start()
            with pytest.raises(NotVisible):
                await here.conversations.seen(ALICE, conversation, 1, SeenTurn(3))
            await here.send(conversation, "hello")
            await here.done()
            await here.conversations.seen(ALICE, conversation, 1, SeenTurn(3))
            stream_id = (await here.conversations.look(ALICE, conversation)).stream_id
            assert await here.runner_means.seen_by.of(stream_id, 1) is None

    asyncio.run(go())


@pytest.mark.parametrize(("step", "reason"), [(timedelta(hours=1), "stale"), (timedelta(hours=-1), "stale")])
def test_a_server_whose_clock_is_wrong_gets_nothing_taken_up(database: Any, step: timedelta, reason: str) -> None:
    """The envelope's time is compared with the database's, whose clock alone counts."""

    async def go() -> None:
        held = Killed("before model")
        async with desk(database.url(), point=held.once) as here:
            conversation = await here.start()
            await here.send(conversation, "before")
            await held.reached.wait()
            with time_machine.travel(here.runner_means.now() + step):
                await here.send(conversation, "while the clock is wrong")
                held.go_on.set()
                await here.done()
            await here.send(conversation, "after")
            await here.done()
            records = await here.records(conversation)
            asked = [(each.status, each.reason) for each in records if isinstance(each, UserRecorded)]
            assert asked[0][0] == asked[2][0] == "accepted"
            assert asked[1] == ("rejected", reason)
            assert [each.status for each in records if isinstance(each, ReplyRecorded)] == ["completed"] * 2

    asyncio.run(go())
