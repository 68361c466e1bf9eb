"""A message that comes while a runner lets go: the runner that just saw nothing waiting may not take it for seen."""

from __future__ import annotations

import asyncio
from typing import Any

from conversation_desk import ALICE, Killed, desk
from minutebook.commands.ports import Head


def test_what_the_watch_saw_after_the_work_had_ended_is_worked_at(database: Any) -> None:
    """The look for interrupts is under way when the turn ends, and comes back once the work has found nothing more."""
    ended, idle = Killed("after reply"), Killed("done")

    async def points(name: str) -> None:
        await ended.once(name)
        await idle.once(name)

    async def go() -> None:
        async with desk(database.url(), point=points) as here:
            read, gate, is_looking = here.store.head, asyncio.Event(), asyncio.Event()

            async def head(stream: str) -> Head | None:
                if ended.reached.is_set() and not gate.is_set():
                    is_looking.set()
                    await gate.wait()
                return await read(stream)

            conversation = await here.start()
            await here.send(conversation, "the first")
            async with asyncio.timeout(10):
                await ended.reached.wait()
                here.store.head = head
                await here.send(conversation, "the one of the last moment")
                await is_looking.wait()
                ended.go_on.set()
                await idle.reached.wait()
                gate.set()
                await here.conversations.look(ALICE, conversation)  # in the same mailbox, behind the watch's look
                idle.go_on.set()
            await here.done()
            assert len(await here.records(conversation)) == 4

    asyncio.run(go())


def test_law_23_an_interrupt_that_is_in_the_log_before_the_reply_interrupts_it(database: Any) -> None:
    """The model has said everything, and the runner is about to record that: nobody told it of the interrupt."""
    point = Killed("before reply")

    async def go() -> None:
        async with desk(database.url(), point=point.once) as here, desk(database.url()) as elsewhere:
            conversation = await here.start()
            await here.send(conversation, "all of it")
            async with asyncio.timeout(10):
                await point.reached.wait()
                await elsewhere.interrupt(conversation, turn=1, seen=4)
                point.go_on.set()
            await here.done()
            reply = (await here.records(conversation))[-1]
            assert (reply.status, reply.text, reply.seen) == ("interrupted", "echo: all of it", 4)

    asyncio.run(go())
