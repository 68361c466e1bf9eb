"""Generations: a runner killed around a rotation or a close is taken over, and a turn costs the same however long ago
the conversation began."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conversation_desk import ALICE, Desk, Killed, desk, kill, lapse
from minutebook.commands.conversations.kind import stream_of
from minutebook.domain.conversations import turns
from minutebook.domain.conversations.commands import SendTurn
from minutebook.domain.conversations.events import (
    ConversationClosed,
    ConversationRotated,
    ReplyRecorded,
    UserRecorded,
)
from minutebook.domain.errors import KeyReused

ROTATE_AFTER = 3


def nobody(conversation_id: str) -> None:
    """Tells no runner."""


@pytest.mark.parametrize("point", ["before rotation", "after rotation"])
def test_a_rotation_under_kill_carries_what_waits_and_forgets_no_message(
    database: Any, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setattr(turns, "ROTATE_TURNS", ROTATE_AFTER)

    async def go() -> None:
        stop = Killed(point)
        async with desk(database.url(), point=stop) as first:
            conversation = await first.start()
            for number in range(ROTATE_AFTER):
                await first.send(conversation, f"question {number}", message_id=f"m{number}")
            async with asyncio.timeout(10):
                await stop.reached.wait()
            waiting = await first.send(conversation, "the one in hand", message_id="m3")
            await kill(first)
        lapse(database)
        async with desk(database.url()) as second:
            await second.runner.sweep()
            await second.done()
            events = await second.events(conversation)
            assert [each.generation for each in events if isinstance(each, ConversationRotated)] == [2]
            asked = [each for each in events if isinstance(each, UserRecorded)]
            assert [(each.turn, each.generation, each.status) for each in asked] == [
                (1, 1, "accepted"), (2, 1, "accepted"), (3, 1, "accepted"), (4, 2, "accepted"),
            ]  # fmt: skip
            assert asked[3].id == waiting.body["id"]
            answered = [each for each in events if isinstance(each, ReplyRecorded)]
            assert [(each.turn, each.ord) for each in answered] == [(n + 1, 2 * (n + 1)) for n in range(4)]
            await again_after_rotation(second, conversation, waiting.body["id"])

    asyncio.run(go())


async def again_after_rotation(here: Desk, conversation: str, waiting_id: str) -> None:
    """A message of before the rotation has its first answer for ever, and its id is nobody else's."""
    head = await here.store.head(stream_of(conversation))
    assert head is not None
    retried = await here.send(conversation, "the one in hand", message_id="m3")
    assert (retried.is_replay, retried.body["id"]) == (True, waiting_id)
    with pytest.raises(KeyReused):
        await here.conversations.send(ALICE, conversation, SendTurn("another text", message_id="m0"), None)
    after = await here.store.head(stream_of(conversation))
    assert after is not None
    assert after.version == head.version


@pytest.mark.parametrize("point", ["before close", "after close"])
def test_a_close_under_kill_is_finished(database: Any, point: str) -> None:
    async def go() -> None:
        stop = Killed(point)
        async with desk(database.url(), point=stop) as first:
            conversation = await first.start()
            await first.send(conversation, "!slow 3 1")
            await first.done()
            first.runner.poke = nobody  # both wait together for the runner
            await first.send(conversation, "too late")
            await first.conversations.close(ALICE, conversation, None)
            first.reopen()
            first.runner.poke(conversation)
            async with asyncio.timeout(10):
                await stop.reached.wait()
            await kill(first)
        lapse(database)
        async with desk(database.url()) as second:
            await second.runner.sweep()
            await second.done()
            events = await second.events(conversation)
            assert isinstance(events[-1], ConversationClosed)
            assert sum(isinstance(each, ConversationClosed) for each in events) == 1
            late = [each for each in events if isinstance(each, UserRecorded)][-1]
            assert (late.status, late.reason) == ("rejected", "closed")
            head = await second.store.head(stream_of(conversation))
            assert head is not None
            assert head.sealed
            assert await second.runner_means.work.due(10) == []

    asyncio.run(go())


def test_a_turn_takes_as_many_operations_late_as_early(database: Any) -> None:
    """Requests for a connection and events of the log, in turns of one process, the rotation's own aside."""

    async def go() -> None:
        async with desk(database.url()) as here:
            conversation = await here.start()

            async def cost() -> tuple[int, int]:
                head = await here.store.head(stream_of(conversation))
                assert head is not None
                before = here.pool.get_stats().get("requests_num", 0)
                await here.send(conversation, "the same words each time")
                await here.done()
                asked = here.pool.get_stats().get("requests_num", 0) - before
                after = await here.store.head(stream_of(conversation))
                assert after is not None
                return asked, after.version - head.version

            await cost()
            early = [await cost() for _ in range(4)]
            for _ in range(60):
                await cost()
            late = [await cost() for _ in range(4)]
            assert min(late) <= max(early)
            assert sorted(events for _, events in late) == sorted(events for _, events in early)
            assert sorted(asked for asked, _ in late)[1] <= sorted(asked for asked, _ in early)[2]

    asyncio.run(go())
