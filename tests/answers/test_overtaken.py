"""What another process did meanwhile: a link that was made again, a retry that got through, words that were erased."""

from __future__ import annotations

import asyncio
import secrets
from datetime import UTC, datetime
from typing import Any

import pytest
from answer_desk import HOOKS, KEY, TENANT, AnswerDesk, answer_desk
from conversation_desk import ALICE, Killed
from conversation_scenes import RING
from in_loop import in_loop
from minutebook.commands.answers.continuations import URL, forget_all
from minutebook.commands.channels.ends import TOKEN_CHANNEL
from minutebook.commands.conversations.erasing import pieces_of
from minutebook.commands.linking.handling import Linking
from minutebook.domain.answers.target import ResponseTarget
from minutebook.domain.channels.link_policy import LinkPolicy
from minutebook.domain.conversations.commands import SendTurn
from minutebook.domain.errors import NotVisible, QueueFull, Unavailable
from minutebook.domain.principals import SERVER
from minutebook.infra.link_hashes import KeyedLinkHashes
from minutebook.infra.postgres.continuation_rows import PostgresContinuationRows
from minutebook.infra.postgres.conversation_erasure import Why, erase_pieces
from minutebook.infra.postgres.link_table import PostgresLinkTable
from ulid_transform import ulid_now

ALL = ResponseTarget("all_linked")
HOOKED = ResponseTarget("channels", channels=HOOKS)


def now() -> datetime:
    return datetime.now(UTC)


def linking_of(made: AnswerDesk) -> Linking:
    """On the desk's own database."""
    pool = made.talks.pool
    table = PostgresLinkTable(pool, now)
    hashes, policy = KeyedLinkHashes(KEY), LinkPolicy("allow_all")
    return Linking(made.talks.store, table, hashes, policy, now, ulid_now, secrets.randbits, failing_s=0.0)


async def linked(linking: Linking, chat: str) -> str:
    """Alice's page begins, her chat presents."""
    page = await linking.end_of(TENANT, TOKEN_CHANNEL, str(ALICE.principal), is_person=True)
    begun = await linking.begin(page, SERVER)
    shown = await linking.present(await linking.end_of(TENANT, "chat", chat), begun.code, SERVER)
    await linking.confirm(page, shown.link_id, shown.consent_digest, "all", SERVER)
    return shown.link_id


@pytest.mark.parametrize("is_again", [True, False])
@in_loop
async def test_who_takes_the_rest_along_late_leaves_what_came_after_the_end_was_unlinked(
    database: Any, is_again: bool
) -> None:
    """Late after a crash, or once more with a repeated request: the end is linked again, or asks on its own."""
    async with answer_desk(database) as made:
        linking, end = linking_of(made), made.end("chat", "1")
        own = linking.own_key(TENANT, "chat", "1")
        await made.speak("chat", "1", own)
        link_id = await linked(linking, "1")
        before, talk = await made.say("before", ALL), await made.talks.start()
        asked = await begun_on(made, talk, "before")
        assert await made.resolver().drain()
        page = await linking.end_of(TENANT, TOKEN_CHANNEL, str(ALICE.principal), is_person=True)
        await linking.unlink(page, link_id, SERVER)
        if is_again:
            await linked(linking, "1")
            after = await made.say("after", ALL)
        else:
            after = await made.said_on("chat", "1", "on my own again", account=own)
        again = await begun_on(made, talk, "after")
        assert await made.resolver().drain()
        assert await made.unlinking.unlinked(TENANT, made.account, end) == (1, 1)
        states = [(await made.shown(each)).intended[0].state for each in (before, after)]
        assert states == ["cancelled", "planned"]
        found = [await made.continuations.find(ALICE, each) for each in (asked, again)]
        assert [each.status for each in found] == ["cancelled", None]


async def begun_on(made: AnswerDesk, talk: str, name: str) -> str:
    """The token of a handle that alice's chat has begun."""
    origin = made.origin("chat", "1")
    return (await made.continuations.begin(ALICE, talk, name.ljust(26, "0"), origin)).token


@pytest.mark.parametrize("first", ["retry", "refusal"])
@in_loop
async def test_a_refusal_takes_no_handle_of_a_retry_that_got_through(database: Any, first: str) -> None:
    """Two servers have one message: one meets a full queue, and withdraws its handle while the other gets through."""
    async with answer_desk(database) as made:
        talk = await made.talks.start()
        command = SendTurn("hello", message_id="m", background=True)
        refused, other = asyncio.Event(), asyncio.Event()
        send = made.talks.conversations.send

        async def full(*args: Any) -> Any:
            await args[-1](await made.talks.conversations.access.seat(ALICE, talk))
            refused.set()
            await other.wait()
            raise QueueFull("full")

        async def late(*args: Any) -> Any:
            *rest, begin = args

            async def began(seat: Any) -> None:
                await begin(seat)
                other.set()
                with pytest.raises(QueueFull):
                    await losing

            return await send(*rest, began)

        made.talks.conversations.send = full
        losing = asyncio.create_task(made.intake.send_by_token(ALICE, talk, command, None))
        await asyncio.wait_for(refused.wait(), 10)
        made.talks.conversations.send = late if first == "refusal" else send
        answer = await made.intake.send_by_token(ALICE, talk, command, None)
        other.set()
        with pytest.raises(QueueFull):
            await losing
        made.talks.conversations.send = send
        await made.talks.runner.sweep()
        await made.talks.done()
        token = answer.body["continuation"]["url"].removeprefix(URL)
        assert (await made.continuations.find(ALICE, token)).status == "completed"


@in_loop
async def test_a_message_that_comes_again_after_its_handle_was_forgotten_makes_none_anew(database: Any) -> None:
    """Nobody would ever end it: its turn has."""
    async with answer_desk(database) as made:
        talk, command = await made.talks.start(), SendTurn("hello", message_id="m", background=True)
        first = await made.intake.send_by_token(ALICE, talk, command, None)
        again = await made.intake.send_by_token(ALICE, talk, command, None)
        assert (again.is_replay, again.body) == (True, first.body)
        await made.talks.runner.sweep()
        await made.talks.done()
        token = first.body["continuation"]["token"]
        assert (await made.continuations.find(ALICE, token)).status == "completed"
        with database.connect("postgres") as superuser:
            superuser.execute("UPDATE minutebook.continuations SET expires_at = clock_timestamp()")
        assert await forget_all(PostgresContinuationRows(made.talks.pool)) == 1
        again = await made.intake.send_by_token(ALICE, talk, command, None)
        assert (again.is_replay, again.body["id"], again.body.get("continuation")) == (True, first.body["id"], None)
        with pytest.raises(NotVisible):
            await made.continuations.find(ALICE, token)


@pytest.mark.parametrize("is_failing", [False, True])
@in_loop
async def test_an_answer_whose_turn_ran_days_later_is_not_given_up(database: Any, is_failing: bool) -> None:
    """Nothing ran turns over a weekend; and the first try behind it fails."""
    async with answer_desk(database) as made:
        talk = await made.talks.start()
        await made.send(talk, "hello", HOOKED)
        with database.connect("postgres") as superuser:
            superuser.execute("UPDATE minutebook.answers SET created_at = created_at - interval '3 days'")
        if not is_failing:
            await made.resolver().sweep()
        await made.talks.runner.sweep()
        await made.talks.done()
        put = made.sends.payloads.put

        async def failing(_payloads: Any) -> None:
            raise Unavailable("not now")

        if is_failing:
            made.sends.payloads.put = failing
            await made.resolver().sweep()
            made.sends.payloads.put = put
            with database.connect("postgres") as superuser:
                superuser.execute("UPDATE minutebook.answers SET due_at = clock_timestamp()")
        await made.resolver().sweep()
        assert sorted(each.channel for each in await made.plans()) == list(HOOKS)


@pytest.mark.parametrize("point", ["recorded", "planned"])
@in_loop
async def test_words_that_are_erased_while_they_are_planned_are_at_rest_nowhere(database: Any, point: str) -> None:
    """Law 10: somebody had read them before; the deliveries that lose theirs were not there yet."""
    async with answer_desk(database) as made:
        talk, _ = await made.say("canary", HOOKED)
        stored = Killed(point)
        put = made.sends.payloads.put

        async def late(payloads: Any) -> None:
            await put(payloads)
            await stored.once(point)

        if point == "recorded":
            made.sends.payloads.put = late
            working = asyncio.create_task(made.resolver().drain())
        else:
            working = asyncio.create_task(made.resolver(stored.once).drain())
        await asyncio.wait_for(stored.reached.wait(), 10)
        await erase(made, database, talk)
        stored.go_on.set()
        await working
        made.sends.payloads.put = put
        with database.connect("postgres") as superuser:
            row = superuser.execute("SELECT count(*) FROM minutebook.delivery_payloads").fetchone()
            marked = superuser.execute("SELECT DISTINCT has_payload FROM minutebook.deliveries").fetchall()
        assert (row, marked) == ((0,), [(False,)])


async def erase(made: AnswerDesk, database: Any, talk: str) -> None:
    """As an operator does, all words of its first turn."""
    pieces = await pieces_of(made.talks.store, made.talks.log, RING, talk, 1)
    assert await erase_pieces(database.url("eraser"), pieces, Why("asked", []), ulid_now)
