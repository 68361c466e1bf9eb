"""B55: many messages at one moment, two runners, sweeps and wake-ups in excess: one turn at a time, one reply each."""

from __future__ import annotations

import asyncio
from typing import Any

from conversation_desk import desk
from minutebook.commands.conversations.kind import stream_of
from minutebook.domain.conversations.events import ReplyRecorded, UserRecorded

POSTS = 20


def test_b55_every_message_is_covered_by_exactly_one_reply(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as first, desk(database.url()) as second:
            desks = (first, second)
            conversation = await first.start()
            head = await first.store.head(stream_of(conversation))
            assert head is not None

            async def pester() -> None:
                """What a recovery that knows nothing of what is in flight would do."""
                while True:
                    for each in desks:
                        await each.runner.sweep()
                        each.runner.poke(conversation)
                        each.runner.wake(frozenset({head.id}))

            pestering = asyncio.create_task(pester())
            answers = await asyncio.gather(
                *(desks[n % 2].send(conversation, f"!slow 2 5 number {n}", message_id=f"m{n}") for n in range(POSTS))
            )
            async with asyncio.timeout(20):
                while len(await first.records(conversation)) < 2 * POSTS:
                    await asyncio.gather(*(each.done() for each in desks if each.runner.workers))
            pestering.cancel()
            records = await first.records(conversation)
            # Never two at once: question and reply take turns through the whole log.
            kinds = [type(each) for each in records]
            assert kinds == [UserRecorded, ReplyRecorded] * POSTS
            asked = [each for each in records if isinstance(each, UserRecorded)]
            assert [each.status for each in asked] == ["accepted"] * POSTS
            assert sorted(str(each.id) for each in asked) == sorted(each.body["id"] for each in answers)
            assert [each.turn for each in records] == [turn for n in range(POSTS) for turn in (n + 1, n + 1)]
            order = {answer.body["id"]: answer.seq for answer in answers}
            assert sorted(asked, key=lambda each: order[str(each.id)]) == asked, "in the order of their arrival"

    asyncio.run(go())
