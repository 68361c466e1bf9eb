"""A runner that is killed before and after each step: the next one goes on, repeats no recorded step, ends it once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
from conversation_desk import Counted, Desk, Killed, Script, agent_of, desk, kill, lapse
from minutebook.commands.conversations.kind import turn_stream_of
from minutebook.commands.conversations.ports import (
    CallDelta,
    ModelPart,
    ModelRequest,
    TextDelta,
    Usage,
)
from minutebook.domain.conversations.events import ReplyRecorded, UserRecorded
from minutebook.domain.conversations.turn_events import WantedCall


async def answer(request: ModelRequest) -> AsyncIterator[ModelPart]:
    """Calls the tool once, then says what it said."""
    last = request.messages[-1]
    if last.role == "tool":
        yield TextDelta(f"it said {last.text}")
    else:
        yield TextDelta("let me see ")
        yield CallDelta(WantedCall("c1", "count", {}))
    yield Usage(10, 5)


class Case(NamedTuple):
    """A kill at that point: how often the model and the tool are called in all, and who ends the turn in which attempt.

    With a tool that is not idempotent `tools` counts the calls of the process that was killed alone.
    """

    point: str
    passes: int
    asked: int
    tools: int
    attempts: int


CASES = (
    Case("leased", 0, 2, 1, 1),
    Case("before take", 0, 2, 1, 1),
    Case("after take", 0, 2, 1, 1),
    Case("before attempt", 0, 2, 1, 1),
    Case("after attempt", 0, 2, 1, 2),
    Case("before model", 0, 2, 1, 2),
    Case("after model", 0, 3, 1, 2),
    Case("before answer", 0, 3, 1, 2),
    Case("after answer", 0, 2, 1, 2),
    Case("before tool start", 0, 2, 1, 2),
    Case("after tool start", 0, 2, 1, 2),
    Case("after tool", 0, 2, 2, 2),
    Case("before tool end", 0, 2, 2, 2),
    Case("after tool end", 0, 2, 1, 2),
    Case("before model", 1, 2, 1, 2),
    Case("after model", 1, 3, 1, 2),
    Case("before answer", 1, 3, 1, 2),
    Case("after answer", 1, 2, 1, 1),
    Case("before reply", 0, 2, 1, 1),
    Case("after reply", 0, 2, 1, 1),
    Case("after seal", 0, 2, 1, 1),
    Case("done", 0, 2, 1, 1),
    Case("let go", 0, 2, 1, 1),
)
UNCERTAIN = ("after tool start", "after tool", "before tool end")
"""Where nobody can say whether the tool ran."""


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_b61_a_runner_killed_at_any_step_is_taken_over(database: Any, *, is_idempotent: bool) -> None:
    async def killed_at(case: Case) -> None:
        point, script, tool = Killed(case.point, case.passes), Script(answer), Counted(is_idempotent=is_idempotent)
        agents = {"echo": agent_of(script, tools=(tool,))}
        async with desk(database.url(), agents, point=point) as first:
            conversation = await first.start()
            await first.send(conversation, "how many?")
            async with asyncio.timeout(10):
                await point.reached.wait()
            await kill(first)
        called = tool.calls
        lapse(database)
        async with desk(database.url(), agents) as second:
            await second.runner.sweep()
            await second.done()
            assert await second.runner_means.work.due(10) == []
            reply = await ended_once(second, conversation)
            is_uncertain = case.point in UNCERTAIN and not is_idempotent
            assert len(script.asked) == case.asked
            assert tool.calls == (called if is_uncertain else case.tools)
            assert ("outcome unknown" in reply.text) == is_uncertain
            assert reply.text.startswith("let me see \n\nit said ")
            assert reply.attempts == case.attempts
            if case.attempts == 2:
                assert second.sink.text(1, 2) == reply.text

    async def go() -> None:
        for case in CASES:
            try:
                await killed_at(case)
            except BaseException as error:
                error.add_note(str(case))
                raise

    asyncio.run(go())


async def ended_once(here: Desk, conversation: str) -> ReplyRecorded:
    """The reply of a conversation's one turn, whose steps are sealed."""
    question, reply = await here.records(conversation)
    assert isinstance(question, UserRecorded)
    assert isinstance(reply, ReplyRecorded)
    assert (question.ord, reply.ord, reply.status) == (1, 2, "completed"), reply
    execution = here.scribe.execution(conversation, question.ord, question.kid)
    head = await here.store.head(turn_stream_of(execution))
    assert head is not None
    assert head.sealed
    return reply
