"""kill -9 of the process that runs a turn: another one ends it, once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import conversation_process
import pytest
from conversation_desk import Desk, desk, lapse
from minutebook.domain.conversations.events import ReplyRecorded

START_S = 30


def killed_at(point: str, url: str) -> None:
    """A process that takes the work over, comes to the point and is killed there."""
    child = subprocess.Popen(
        [sys.executable, str(Path(conversation_process.__file__)), url, point], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "reached\n"
    finally:
        child.kill()
        child.wait(START_S)
        if child.stdout is not None:
            child.stdout.close()


@pytest.mark.parametrize(
    ("points", "attempts"),
    [
        (("before answer",), 2),
        (("before model", "before reply"), 2),
        (("after take", "after answer"), 1),
        (("after reply",), 1),
    ],
)
def test_a_killed_process_is_taken_over(database: Any, points: tuple[str, ...], attempts: int) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            conversation = await _sent(here)
            for point in points:
                await asyncio.to_thread(killed_at, point, database.url())
                lapse(database)
            await here.runner.sweep()
            await here.done()
            replies = [each for each in await here.records(conversation) if isinstance(each, ReplyRecorded)]
            assert [(each.status, each.text, each.attempts) for each in replies] == [
                ("completed", "echo: over two processes", attempts)
            ]

    asyncio.run(go())


async def _sent(here: Desk) -> str:
    """A conversation with a message that nobody has taken yet."""
    conversation = await here.start()
    await here.runner.close()  # no poke is heard: the work is found by a sweep
    await here.send(conversation, "over two processes")
    here.reopen()
    return conversation
