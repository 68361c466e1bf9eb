"""Erasure in a conversation: the words of one turn are nowhere, and the conversation goes on without it (law 10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conversation_desk import Counted, Desk, Script, agent_of, desk
from conversation_scenes import RING
from minutebook.commands.conversations.erasing import NoWords, pieces_of
from minutebook.commands.conversations.kind import conversation_kind, stream_of
from minutebook.commands.conversations.ports import CallDelta, ModelPart, ModelRequest, TextDelta, Usage
from minutebook.commands.streams import load
from minutebook.domain.conversations.events import ReplyRecorded, UserRecorded
from minutebook.domain.conversations.state import Conversation
from minutebook.domain.conversations.turn_events import WantedCall
from minutebook.infra.postgres.conversation_erasure import Why, erase_pieces
from minutebook.infra.postgres.conversation_past import PostgresPast
from minutebook.infra.postgres.erasure import Erased, ErasureRefused
from msgspec.structs import replace
from table_rows import rows
from ulid_transform import ulid_now

SECRET = "marzipan"
WHY = Why("asked for", [])


async def answer(request: ModelRequest) -> AsyncIterator[ModelPart]:
    """Repeats the question, in words, in a call of the tool and in the call's result."""
    last = request.messages[-1]
    said = SECRET if SECRET in request.messages[-1].text or last.role == "tool" else "nothing"
    if last.role == "user" and said == SECRET:
        yield TextDelta(f"of {said} ")
        yield CallDelta(WantedCall("c1", "count", {"of": said}))
    else:
        yield TextDelta(f"so much of {said}")
    yield Usage(10, 5)


async def sums_up(request: ModelRequest) -> AsyncIterator[ModelPart]:
    """A summary that holds what it was shown."""
    yield TextDelta(f"they spoke of {SECRET}" if SECRET in repr(request.messages) else "they spoke")
    yield Usage(10, 5)


async def erase(here: Desk, database: Any, conversation: str, ord_: int, *, dry_run: bool = False) -> list[Erased]:
    pieces = await pieces_of(here.store, here.log, RING, conversation, ord_)
    return await erase_pieces(database.url("eraser"), pieces, WHY, ulid_now, dry_run=dry_run)


def holding(database: Any) -> set[str]:
    """Tables that hold the word."""
    with database.connect("postgres") as superuser:
        return {table for table, row in rows(superuser) if SECRET in row}


async def state_of(here: Desk, conversation: str) -> Conversation:
    """The state as the log says it, but for the count of events."""
    loaded = await load(here.store, conversation_kind(RING, conversation), stream_of(conversation))
    assert loaded is not None
    return replace(loaded.state, events=0)


async def said(here: Desk, conversation: str, text: str) -> None:
    await here.send(conversation, text)
    await here.done()


@pytest.mark.parametrize("ord_", [3, 4])
def test_law_10_a_turn_that_was_erased_is_nowhere_and_the_conversation_goes_on(database: Any, ord_: int) -> None:
    async def go() -> None:
        script, tool = Script(answer), Counted(is_idempotent=True)
        agents = {"echo": agent_of(script, tools=(tool,))}
        async with desk(database.url(), agents) as here:
            conversation = await here.start()
            for text in ("hello", f"I like {SECRET}", "and now?"):
                await said(here, conversation, text)
            assert SECRET in repr(script.asked[-1])
            before = await state_of(here, conversation)
            assert [each.was_there for each in await erase(here, database, conversation, ord_, dry_run=True)]
            assert holding(database) == {"minutebook.events"}
            found = await erase(here, database, conversation, ord_)
            assert all(each.was_there for each in found)
            assert holding(database) == set()
            assert await state_of(here, conversation) == before
            assert not any(each.was_there for each in await erase(here, database, conversation, ord_))
            await said(here, conversation, "once more")
            assert SECRET not in repr(script.asked[-1])
            assert "hello" in repr(script.asked[-1])
        async with desk(database.url(), agents) as another:
            await said(another, conversation, "and again")
            assert SECRET not in repr(script.asked[-1])
            records = await another.records(conversation)
            assert [(each.ord, bool(each.text), each.is_erased) for each in records] == [
                (ord_, ord_ not in (3, 4), ord_ in (3, 4)) for ord_ in range(1, 11)
            ]

    asyncio.run(go())


def test_the_past_has_the_place_of_a_turn_that_was_erased(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url(), {"echo": agent_of(Script(answer))}) as here:
            conversation = await here.start()
            await said(here, conversation, f"I like {SECRET}")
            await erase(here, database, conversation, 1)
            head = await here.store.head(stream_of(conversation))
            assert head is not None
            found = await PostgresPast(here.pool).record_at(head.id, head.version)
            assert found is not None
            newest = conversation_kind(RING, conversation).verifier.decode(found.event)
            assert isinstance(newest, ReplyRecorded)
            assert newest.ord == 2

    asyncio.run(go())


def test_a_summary_that_covers_the_turn_goes_with_it(database: Any) -> None:
    async def go() -> None:
        script = Script(answer)
        agents = {
            "echo": agent_of(script, context_window=700, reserve_output_tokens=100, summarizer="digest"),
            "digest": agent_of(Script(sums_up), name="digest"),
        }
        async with desk(database.url(), agents) as here:
            conversation = await here.start()
            await said(here, conversation, f"{SECRET} " * 30)
            for number in range(6):
                await said(here, conversation, f"long {number} " * 60)
            assert "they spoke of" in repr(script.asked[-1])
            await erase(here, database, conversation, 1)
            assert holding(database) == set()
            await said(here, conversation, "and now?")
            assert "they spoke of" not in repr(script.asked[-1])
            (*_, reply) = await here.records(conversation)
            assert isinstance(reply, ReplyRecorded)
            assert reply.status == "completed"

    asyncio.run(go())


def test_a_turn_that_runs_and_a_conversation_under_hold_keep_their_words(database: Any) -> None:
    gate = asyncio.Event()

    async def waits(request: ModelRequest) -> AsyncIterator[ModelPart]:
        yield TextDelta("well ")
        await gate.wait()
        yield Usage(1, 1)

    async def go() -> None:
        async with desk(database.url(), {"echo": agent_of(Script(waits))}) as here:
            conversation = await here.start()
            await here.send(conversation, f"I like {SECRET}")
            async with asyncio.timeout(10):
                while not here.sink.deltas:
                    here.sink.heard.clear()
                    await here.sink.heard.wait()
            with pytest.raises(NoWords, match="not at its end"):
                await pieces_of(here.store, here.log, RING, conversation, 1)
            with pytest.raises(NoWords, match="no record 9"):
                await pieces_of(here.store, here.log, RING, conversation, 9)
            gate.set()
            await here.done()
            with database.connect("postgres") as superuser:
                superuser.execute(
                    "UPDATE minutebook.streams SET held = true WHERE name = %s", (stream_of(conversation),)
                )
            with pytest.raises(ErasureRefused, match="legal hold"):
                await erase(here, database, conversation, 1)
            (question, _) = await here.records(conversation)
            assert isinstance(question, UserRecorded)
            assert question.text == f"I like {SECRET}"

    asyncio.run(go())
