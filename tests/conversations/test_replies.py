"""What a reply holds: no secret in any piece, not too long, and what tools said as data for the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from conversation_desk import Counted, Desk, Script, agent_of, desk
from minutebook.commands.conversations.ports import CallDelta, ModelPart, ModelRequest, TextDelta, Usage
from minutebook.domain.conversations.commands import MAX_REPLY_CHARS
from minutebook.domain.conversations.events import ReplyRecorded
from minutebook.domain.conversations.turn_events import WantedCall

KEY = "AKIAIOSFODNN7EXAMPLE"


def saying(*pieces: str) -> Callable[[ModelRequest], AsyncIterator[ModelPart]]:
    """An answer in these pieces."""

    async def answer(request: ModelRequest) -> AsyncIterator[ModelPart]:
        for piece in pieces:
            yield TextDelta(piece)

    return answer


async def replied(here: Desk, text: str = "hello") -> ReplyRecorded:
    """The reply to one message in a new conversation."""
    conversation = await here.start()
    await here.send(conversation, text)
    await here.done()
    (reply,) = [each for each in await here.records(conversation) if isinstance(each, ReplyRecorded)]
    return reply


def test_law_28_a_secret_leaves_in_no_piece(database: Any) -> None:
    async def go() -> None:
        for pieces in ((f"the key is {KEY} ok",), ("the key is ", *KEY, " ok"), ("the key is AKIA", KEY[4:], " ok")):
            async with desk(database.url(), {"echo": agent_of(Script(saying(*pieces)))}) as here:
                reply = await replied(here, f"mine is {KEY}")
                assert KEY not in reply.text
                assert reply.text.startswith("the key is [")
                assert reply.text.endswith(" ok")
                assert here.sink.text(1) == reply.text
        with database.connect("auditor") as auditor:
            assert auditor.execute(
                "SELECT count(*) FROM minutebook.events WHERE payload::text LIKE %s", (f"%{KEY[4:]}%",)
            ).fetchone() == (0,)
            assert auditor.execute(
                "SELECT count(*) FROM minutebook.events WHERE type = 'reply_recorded' AND redactions <> '{}'"
            ).fetchone() == (3,)

    asyncio.run(go())


def test_a_reply_that_is_too_long_is_cut_and_says_so(database: Any) -> None:
    async def endless(request: ModelRequest) -> AsyncIterator[ModelPart]:
        while True:
            yield TextDelta("0123456789 " * 100)

    async def go() -> None:
        async with desk(database.url(), {"echo": agent_of(Script(endless))}) as here:
            reply = await replied(here)
            assert (reply.status, reply.truncated, len(reply.text)) == ("completed", True, MAX_REPLY_CHARS)
            assert here.sink.text(1) == reply.text

    asyncio.run(go())


def test_ill_formed_text_of_a_model_is_kept_as_far_as_it_can_be(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url(), {"echo": agent_of(Script(saying("a\0b ", "", "e\u0301 \U0001f600")))}) as here:
            assert (await replied(here)).text == "ab e\u0301 \U0001f600"
        async with desk(database.url(), {"echo": agent_of(Script(saying()))}) as here:
            reply = await replied(here)
            assert (reply.status, reply.text) == ("completed", "")

    asyncio.run(go())


def calling(name: str, times: int) -> Callable[[ModelRequest], AsyncIterator[ModelPart]]:
    """Wants that tool so many times, always under one id, then says the last result."""

    async def answer(request: ModelRequest) -> AsyncIterator[ModelPart]:
        results = [message.text for message in request.messages if message.role == "tool"]
        if len(results) < times:
            yield CallDelta(WantedCall("same", name, {"big": 2**50, "text": f"{KEY}\0"}))
        else:
            yield TextDelta(results[-1])
        yield Usage(100, 10)

    return answer


@pytest.mark.parametrize(
    ("name", "groups", "said"),
    [
        ("count", frozenset[str](), "called 3"),
        ("other", frozenset[str](), "error: there is no such tool"),
        ("count", frozenset({"sec"}), "error: whoever asks may not use this tool"),
    ],
)
def test_a_tools_result_is_data_for_the_model(database: Any, name: str, groups: frozenset[str], said: str) -> None:
    async def go() -> None:
        tool = Counted(is_idempotent=False)
        tool.groups = groups
        script = Script(calling(name, 3))
        async with desk(database.url(), {"echo": agent_of(script, tools=(tool,))}) as here:
            reply = await replied(here)
            assert (reply.status, reply.text, reply.usage) == ("completed", said, {"input": 400, "output": 40})
            assert reply.classes == (("counted",) if name == "count" else ("unclassified",)), "what was refused, too"
            ids = [call.call_id for message in script.asked[-1].messages for call in message.calls]
            assert len(ids) == len(set(ids)) == 3
            assert KEY not in repr(script.asked)

    asyncio.run(go())


@pytest.mark.parametrize(
    ("fields", "reason"), [({"max_steps": 2}, "turn-failed"), ({"tokens_per_turn": 300}, "denied")]
)
def test_a_turn_is_bounded(database: Any, fields: dict[str, int], reason: str) -> None:
    async def go() -> None:
        script = Script(calling("count", 100))
        agent = agent_of(script, tools=(Counted(is_idempotent=True),), **fields)
        async with desk(database.url(), {"echo": agent}) as here:
            reply = await replied(here)
            assert (reply.status, reply.reason) == ("failed", reason)
            assert len(script.asked) <= 2

    asyncio.run(go())
