"""Turns end to end over a real log: what is sent is answered, in order, once."""

from __future__ import annotations

import asyncio
from typing import Any

from conversation_desk import desk


def test_a_message_is_answered(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            conversation = await here.start()
            sent = await here.send(conversation, "hello there")
            await here.done()
            question, reply = await here.records(conversation)
            assert (question.ord, question.turn, question.status, question.text) == (1, 1, "accepted", "hello there")
            assert question.id == sent.body["id"]
            assert (reply.ord, reply.turn, reply.status) == (2, 1, "completed")
            assert reply.text == here.sink.text(1) == "echo: hello there"

    asyncio.run(go())
