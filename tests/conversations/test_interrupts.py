"""Barge-in, stops and closes: decided from the log alone, on whatever process they arrive; nothing comes after them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from conversation_desk import ALICE, Desk, Killed, Script, agent_of, desk, kill, lapse
from minutebook.commands.conversations.ports import CallDelta, ModelPart, ModelRequest, TextDelta, ToolResult, ToolSpec
from minutebook.domain.conversations.commands import SeenTurn
from minutebook.domain.conversations.events import ConversationClosed, ReplyRecorded, UserRecorded
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.turn_events import WantedCall


class Gate:
    """A model that says some words, then waits for `go`; later questions are answered at once."""

    def __init__(self) -> None:
        self.said = asyncio.Event()
        self.go = asyncio.Event()
        self.script = Script(self._answer)

    async def _answer(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        if len(self.script.asked) > 1:
            yield TextDelta("later words")
            return
        yield TextDelta("first words ")
        self.said.set()
        await self.go.wait()
        yield TextDelta("and more ")


async def heard(here: Desk, text: str) -> None:
    """Wait until viewers have at least that much."""
    async with asyncio.timeout(10):
        while not here.sink.text(1).startswith(text):
            here.sink.heard.clear()
            await here.sink.heard.wait()


async def replies(here: Desk, conversation: str) -> list[ReplyRecorded]:
    """Of all turns, in order."""
    return [each for each in await here.records(conversation) if isinstance(each, ReplyRecorded)]


def test_turns_are_taken_in_the_order_of_their_messages(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            conversation = await here.start()
            await asyncio.gather(*(here.send(conversation, f"number {n}") for n in range(8)))
            await here.done()
            records = await here.records(conversation)
            assert [(each.ord, each.turn) for each in records] == [(n + 1, n // 2 + 1) for n in range(16)]
            asked = [each.text for each in records[::2]]
            assert sorted(asked) == [f"number {n}" for n in range(8)]
            assert [each.text for each in records[1::2]] == [f"echo: {text}" for text in asked]

    asyncio.run(go())


def test_a_message_interrupts_its_askers_running_turn(database: Any) -> None:
    async def go() -> None:
        gate = Gate()
        async with desk(database.url(), {"echo": agent_of(gate.script)}) as here:
            conversation = await here.start(barge_in="interrupt")
            await here.send(conversation, "first")
            await heard(here, "first ")
            await here.send(conversation, "second")
            await here.done()
            first, second = await replies(here, conversation)
            assert (first.status, first.text, first.seen) == ("interrupted", "first words ", 12)
            assert (second.status, second.text) == ("completed", "later words")
            assert here.sink.text(1) == "first words "
            assert gate.script.asked[1].messages[1].text == "first words "

    asyncio.run(go())


def test_a_retry_of_the_running_message_is_no_barge_in(database: Any) -> None:
    async def go() -> None:
        gate = Gate()
        async with desk(database.url(), {"echo": agent_of(gate.script)}) as here:
            conversation = await here.start(barge_in="interrupt")
            first = await here.send(conversation, "first", message_id="m1")
            await heard(here, "first ")
            again = await here.send(conversation, "first", "m1")
            assert again.is_replay
            assert again.body == first.body
            gate.go.set()
            await here.done()
            assert [(each.status, each.text) for each in await replies(here, conversation)] == [
                ("completed", "first words and more ")
            ]

    asyncio.run(go())


def test_without_barge_in_a_message_waits(database: Any) -> None:
    async def go() -> None:
        gate = Gate()
        async with desk(database.url(), {"echo": agent_of(gate.script)}) as here:
            conversation = await here.start()
            await here.send(conversation, "first")
            await heard(here, "first ")
            await here.send(conversation, "second")
            gate.go.set()
            await here.done()
            assert [each.status for each in await replies(here, conversation)] == ["completed", "completed"]

    asyncio.run(go())


def test_a_stop_arrives_on_another_process(database: Any) -> None:
    """The process that runs the turn hears of the append by the wake-up of its stream."""

    async def go() -> None:
        gate = Gate()
        agents = {"echo": agent_of(gate.script)}
        async with desk(database.url(), agents) as here, desk(database.url(), agents) as other:
            conversation = await here.start()
            await here.send(conversation, "first")
            await heard(here, "first ")
            await here.conversations.seen(ALICE, conversation, 1, SeenTurn(3))
            await other.interrupt(conversation)
            here.runner.wake(frozenset({here.sink.deltas[0].stream_id}))
            await asyncio.gather(here.done(), other.done())
            (reply,) = await replies(here, conversation)
            assert (reply.status, reply.text, reply.seen) == ("interrupted", "first words ", 3)
            assert other.sink.deltas == []

    asyncio.run(go())


def test_a_stop_without_a_turn_is_no_event(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            conversation = await here.start()
            answer = await here.interrupt(conversation)
            assert (answer.status, answer.seq) == (202, 1)

    asyncio.run(go())


def test_superseded_before_the_first_model_call(database: Any) -> None:
    """Recorded interrupted, empty, without a call: also where the message came a moment before the call."""

    async def go() -> None:
        for point in ("after take", "before attempt", "after attempt"):
            gate, held = Gate(), Killed(point)
            async with desk(database.url(), {"echo": agent_of(gate.script)}, point=held.once) as here:
                conversation = await here.start(barge_in="interrupt")
                await here.send(conversation, "first")
                await held.reached.wait()
                await here.send(conversation, "second")
                gate.script.asked.append(ModelRequest("", (), (), 0))  # the next call is answered at once
                held.go_on.set()
                await here.done()
                first, second = await replies(here, conversation)
                assert (first.status, first.text, first.seen) == ("interrupted", "", 0), point
                assert second.status == "completed"
                assert len(gate.script.asked) == 2, point

    asyncio.run(go())


def test_an_interrupt_that_came_before_a_crash_interrupts_after_it(database: Any) -> None:
    async def go() -> None:
        for point in ("before model", "before answer", "after answer", "before reply"):
            held = Killed(point)
            script = Script(_words)
            agents = {"echo": agent_of(script)}
            async with desk(database.url(), agents, point=held) as first:
                conversation = await first.start()
                await first.send(conversation, "hello")
                await held.reached.wait()
                asked = len(script.asked)
                async with desk(database.url(), agents) as other:
                    await other.interrupt(conversation)
                    await other.done()
                    await kill(first)
                    lapse(database)
                    await other.runner.sweep()
                    await other.done()
                    (reply,) = await replies(other, conversation)
                    recorded = point in ("after answer", "before reply")
                    assert (reply.status, reply.text) == ("interrupted", "some words" if recorded else ""), point
                    assert len(script.asked) == asked

    asyncio.run(go())


async def _words(request: ModelRequest) -> AsyncIterator[ModelPart]:
    yield TextDelta("some words")


class Slow:
    """A tool that runs until it is let go."""

    spec = ToolSpec("slow", "Slow.", {"type": "object"})
    data_class = "slow"
    is_idempotent = False
    groups: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.go = asyncio.Event()
        self.calls = 0
        self.ended = 0

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """See Tool."""
        return None

    async def run(self, arguments: Mapping[str, Any], asker: Identity) -> ToolResult:
        """See Tool."""
        self.calls += 1
        self.began.set()
        await self.go.wait()
        self.ended += 1
        return ToolResult("ok", "done")


async def _two_calls(request: ModelRequest) -> AsyncIterator[ModelPart]:
    yield CallDelta(WantedCall("c1", "slow", {}))
    yield CallDelta(WantedCall("c2", "slow", {}))


def test_a_tool_call_in_flight_completes_and_the_next_is_not_started(database: Any) -> None:
    async def go() -> None:
        tool = Slow()
        script = Script(_two_calls)
        async with desk(database.url(), {"echo": agent_of(script, tools=(tool,))}) as here:
            conversation = await here.start()
            await here.send(conversation, "go")
            await tool.began.wait()
            await here.interrupt(conversation)
            tool.go.set()
            await here.done()
            (reply,) = await replies(here, conversation)
            assert reply.status == "interrupted"
            assert (tool.calls, tool.ended, len(script.asked)) == (1, 1, 1)

    asyncio.run(go())


def test_close_interrupts_rejects_what_waits_and_seals(database: Any) -> None:
    async def go() -> None:
        gate = Gate()
        async with desk(database.url(), {"echo": agent_of(gate.script)}) as here:
            conversation = await here.start()
            await here.send(conversation, "first")
            await heard(here, "first ")
            await here.send(conversation, "second")
            await here.conversations.close(ALICE, conversation, None)
            await here.done()
            events = await here.events(conversation)
            first, reply, second = await here.records(conversation)
            assert isinstance(second, UserRecorded)
            assert (first.turn, reply.status, second.status, second.reason) == (1, "interrupted", "rejected", "closed")
            assert isinstance(events[-1], ConversationClosed)
            head = await here.store.head(f"conversation:{conversation}")
            assert head is not None
            assert head.sealed
            assert len(gate.script.asked) == 1

    asyncio.run(go())
