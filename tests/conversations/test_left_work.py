"""A process that ends in the middle of turns: the others take its conversations over at once, by a wake-up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from conversation_desk import Desk, Killed, desk
from minutebook.commands.conversations import runner as runner_module
from minutebook.domain.conversations.events import ReplyRecorded
from minutebook.infra.postgres.listen import Listener

NEVER_S = 3600.0


@contextlib.asynccontextmanager
async def listening(here: Desk, url: str) -> AsyncGenerator[Listener]:
    """What a serving process hears."""
    listener = Listener(url, here.runner.wake, wake_turns=here.runner.look)
    listener.start()
    try:
        async with asyncio.timeout(10):
            while not listener.is_up:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
        yield listener
    finally:
        await listener.close()


def test_work_that_a_closing_runner_leaves_is_taken_over_without_a_sweep(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "SWEEP_S", NEVER_S)

    async def go() -> None:
        held = Killed("before model")
        async with desk(database.url(), point=held) as first, desk(database.url()) as second:
            conversation = await first.start()
            async with listening(second, database.url()):
                second.runner.start()
                await first.send(conversation, "over two processes")
                async with asyncio.timeout(10):
                    await held.reached.wait()
                assert not second.runner.workers
                await first.runner.close()
                async with asyncio.timeout(20):
                    while not (found := await replies(second, conversation)):  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
            assert [(each.status, each.text, each.attempts) for each in found] == [
                ("completed", "echo: over two processes", 2)
            ]

    asyncio.run(go())


async def replies(here: Desk, conversation: str) -> list[ReplyRecorded]:
    """The replies in the log."""
    return [each for each in await here.records(conversation) if isinstance(each, ReplyRecorded)]
