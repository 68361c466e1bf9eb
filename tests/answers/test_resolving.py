"""Resolving on a real database: kills between its steps, one record of several workers, the permit and its reasons."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from answer_desk import HOOKS, TENANT, AnswerDesk, answer_desk
from append_helpers import triggers_off
from conversation_desk import ALICE, Killed
from delivery_desk import Receiver
from in_loop import in_loop
from linking_samples import key_of
from minutebook.commands.answers.kind import answer_id_of, load
from minutebook.domain.answers.target import ResponseTarget
from minutebook.domain.channels.link_policy import LinkPolicy
from minutebook.domain.conversations.commands import AddParticipant, RemoveParticipant, SendTurn
from minutebook.domain.errors import KeyReused, NotVisible, QueueFull
from minutebook.domain.principals import Caller, Principal
from outside import serving, status

ACTIVE = ResponseTarget("active")
ALL = ResponseTarget("all_linked")
HOOKED = ResponseTarget("channels", channels=HOOKS)


def rows(database: Any, table: str = "answers") -> int:
    """How many there are."""
    with database.connect("postgres") as superuser:
        row = superuser.execute(f"SELECT count(*) FROM minutebook.{table}").fetchone()
    assert row is not None
    return row[0]


async def kill_at(made: AnswerDesk, point: str) -> None:
    """A worker that ends at that place."""
    killed = Killed(point)
    working = asyncio.create_task(made.resolver(killed).drain())
    await asyncio.wait_for(killed.reached.wait(), 10)
    working.cancel()
    await asyncio.wait([working])


@pytest.mark.parametrize(("point", "channel"), [("addressed", "chat"), ("recorded", "mail"), ("planned", "mail")])
@in_loop
async def test_whoever_comes_after_a_kill_plans_what_is_on_record(database: Any, point: str, channel: str) -> None:
    async with answer_desk(database) as made:
        await made.speak("mail", "1")
        about = await made.say("hello", ACTIVE)
        await kill_at(made, point)
        # Whoever resolved anew would find another one.
        await made.speak("chat", "2")
        assert await made.resolver().drain()
        (plan,) = await made.plans()
        (intended,) = (await made.shown(about)).intended
        assert (plan.channel, plan.delivery_id, rows(database)) == (channel, intended.delivery_id, 0)
        assert await made.resolver().drain()
        assert len(await made.plans()) == 1


@pytest.mark.parametrize("looked", ["before", "after"])
@in_loop
async def test_whoever_has_looked_before_a_kill_plans_what_is_on_record(database: Any, looked: str) -> None:
    async with answer_desk(database) as made:
        await made.speak("mail", "1")
        about = await made.say("hello", ACTIVE)
        (seen,) = await made.table.due(1)
        found = Killed("addressed")
        if looked == "before":  # also at which end is the active one, and it is another one then
            late = asyncio.create_task(made.resolver(found.once).one(seen))
            await asyncio.wait_for(found.reached.wait(), 10)
            await made.speak("chat", "2")
            await kill_at(made, "recorded")
            found.go_on.set()
            await late
        else:
            await kill_at(made, "recorded")
            await made.resolver().one(seen)
        (plan,) = await made.plans()
        (intended,) = (await made.shown(about)).intended
        assert (plan.channel, plan.delivery_id, rows(database)) == (intended.channel, intended.delivery_id, 0)


@in_loop
async def test_of_many_workers_one_records_and_nothing_is_planned_twice(database: Any) -> None:
    async with answer_desk(database) as made:
        about = await made.say("hello", HOOKED)
        await asyncio.gather(*(made.resolver().drain() for _ in range(5)))
        plans = await made.plans()
        assert sorted(each.channel for each in plans) == list(HOOKS)
        shown = await made.shown(about)
        assert [each.delivery_id for each in shown.intended] == [
            each.delivery_id for each in sorted(plans, key=lambda each: each.channel)
        ]
        head = await made.talks.store.head(f"answer:{answer_id_of(made.hashes, TENANT, *about)}")
        assert head is not None
        assert (head.version, head.sealed) == (2, True)


@in_loop
async def test_an_answer_that_meets_a_defect_holds_up_no_other(database: Any) -> None:
    async with answer_desk(database) as made:
        await made.speak("mail", "1")
        for text in ("one", "two"):
            await made.say(text, ACTIVE)
        met: list[str] = []

        async def defect(point: str) -> None:
            if point == "recorded" and not met:
                met.append(point)
                raise LookupError(point)

        assert await made.resolver(defect).drain()
        assert (len(await made.plans()), rows(database)) == (1, 1)
        with database.connect("postgres") as superuser:
            superuser.execute("UPDATE minutebook.answers SET due_at = clock_timestamp()")
        assert await made.resolver().drain()
        assert (len(await made.plans()), rows(database)) == (2, 0)


@in_loop
async def test_a_message_that_comes_again_asks_for_nothing_more(database: Any) -> None:
    async with answer_desk(database) as made:
        talk = await made.talks.start()
        first, again = [await made.send(talk, "hello", HOOKED, message_id="m") for _ in range(2)]
        assert (again.is_replay, again.body) == (True, first.body)
        assert rows(database) == 1
        with pytest.raises(KeyReused):
            await made.send(talk, "hello", ALL, message_id="m")


@in_loop
async def test_a_turn_that_was_refused_may_come_again_but_not_with_another_target(database: Any) -> None:
    async with answer_desk(database) as made:
        talk = await made.talks.start()
        command = SendTurn("hello", message_id="m", response_target=HOOKED)
        await made.talks.conversations.close(ALICE, talk, None)
        for _ in range(2):
            with pytest.raises(Exception, match="closed"):
                await made.intake.send_by_token(ALICE, talk, command, None)
        with pytest.raises(KeyReused):
            await made.send(talk, "hello", ALL, message_id="m")
        await made.talks.runner.sweep()
        await made.talks.done()
        with database.connect("postgres") as superuser:
            superuser.execute("UPDATE minutebook.answers SET created_at = created_at - interval '3 days'")
        await made.resolver().sweep()
        assert rows(database) == 0
        assert await made.plans() == []


@in_loop
async def test_what_a_full_queue_refuses_leaves_no_handle(database: Any) -> None:
    async with answer_desk(database) as made:
        talk, sent = await made.talks.start(), 0

        async def fill() -> None:
            nonlocal sent
            for sent in range(600):
                command = SendTurn("hello", message_id=f"m{sent}", background=True)
                await made.intake.send_by_token(ALICE, talk, command, None)

        with pytest.raises(QueueFull):
            await fill()
        assert rows(database, "continuations") == sent


@in_loop
async def test_a_stranger_stores_nothing(database: Any) -> None:
    async with answer_desk(database) as made:
        talk = await made.talks.start()
        mallory = Caller(Principal("human", "mallory"), TENANT, is_member=True)
        with pytest.raises(NotVisible):
            await made.intake.send_by_token(mallory, talk, SendTurn("x", response_target=HOOKED), None)
        assert rows(database) == 0


@in_loop
async def test_a_record_that_is_not_ours_resolves_nothing(database: Any) -> None:
    async with answer_desk(database) as made:
        talk = await made.talks.start()
        await made.send(talk, "hello", HOOKED)
        with database.connect("postgres") as superuser:
            superuser.execute("UPDATE minutebook.answers SET user_seq = 2, reply_seq = 2, due_at = clock_timestamp()")
        assert await made.resolver().drain()
        assert (await made.plans(), rows(database)) == ([], 1)
        await made.resolver().sweep()
        assert rows(database) == 1, "it may be readable later"
        with database.connect("postgres") as superuser:
            superuser.execute("UPDATE minutebook.answers SET created_at = clock_timestamp() - interval '3 days'")
        await made.resolver().sweep()
        assert rows(database) == 1, "its turn may have run a moment ago"
        with database.connect("postgres") as superuser, triggers_off(superuser, "events"):
            superuser.execute("UPDATE minutebook.events SET ts = ts - interval '3 days'")
        await made.resolver().sweep()
        assert (await made.plans(), rows(database)) == ([], 0), "but not for ever"


@in_loop
async def test_an_ordinary_turn_has_no_row_and_no_stream(database: Any) -> None:
    async with answer_desk(database) as made:
        for kind in ("none", "originating"):
            await made.say("hello", ResponseTarget(kind))
        assert rows(database) == 0
        with database.connect("postgres") as superuser:
            row = superuser.execute("SELECT count(*) FROM minutebook.streams WHERE kind = 'answer'").fetchone()
        assert row == (0,)


async def permitted(made: AnswerDesk) -> list[str | None]:
    """What the permit says of every delivery."""
    return [await made.permit(each) for each in await made.plans()]


async def resolved(made: AnswerDesk, target: ResponseTarget, **fields: Any) -> tuple[str, str]:
    """A turn whose deliveries are planned."""
    about = await made.say("hello", target, **fields)
    assert await made.resolver().drain()
    return about


@in_loop
async def test_the_permit_asks_for_the_link_and_for_consent(database: Any) -> None:
    async with answer_desk(database) as made:
        await made.speak("chat", "1")
        await resolved(made, ALL)
        assert await permitted(made) == [None]
        await made.ends.mute(TENANT, made.end("chat", "1"), is_muted=True)
        assert await permitted(made) == ["muted"]
        await made.ends.mute(TENANT, made.end("chat", "1"), is_muted=False)
        await made.speak("chat", "1", key_of("somebody else"))
        assert await permitted(made) == ["unlink"]


@in_loop
async def test_the_permit_asks_for_the_policy_as_it_is_now(database: Any) -> None:
    async with answer_desk(database) as made:
        await resolved(made, HOOKED)
        assert await permitted(made) == [None, None, None]
    async with answer_desk(database, policy=LinkPolicy("deny_all")) as made:
        assert await permitted(made) == ["link_policy"] * 3


@in_loop
async def test_the_permit_refuses_what_was_erased(database: Any) -> None:
    async with answer_desk(database) as made:
        await resolved(made, HOOKED)
        with database.connect("postgres") as superuser, triggers_off(superuser, "events"):
            superuser.execute("UPDATE minutebook.events SET payload = NULL, salt = NULL WHERE type = 'reply_recorded'")
        assert await permitted(made) == ["redaction"] * 3


@in_loop
async def test_who_was_taken_out_gets_no_answer(database: Any) -> None:
    async with answer_desk(database) as made:
        bob = Caller(Principal("human", "bob"), TENANT, is_member=True)
        talk = await made.talks.start(bob, mode="shared")
        await made.talks.conversations.add_participant(bob, talk, AddParticipant("human:alice"), None)
        await resolved(made, HOOKED, talk=talk)
        assert await permitted(made) == [None, None, None]
        await made.talks.conversations.remove_participant(bob, talk, RemoveParticipant("human:alice"), None)
        assert await permitted(made) == ["not_authorized"] * 3


@in_loop
async def test_no_more_pushes_than_the_cap_however_many_ask_at_once(database: Any) -> None:
    async with answer_desk(database, cap=3) as made:
        await made.speak("chat", "1")
        for _ in range(5):
            await resolved(made, ALL)
        plans = await made.plans()
        answers = await asyncio.gather(*(made.permit(each) for each in plans))
        assert sorted(each or "" for each in answers) == ["", "", "", "push_cap", "push_cap"]
        assert await asyncio.gather(*(made.permit(each) for each in plans)) == answers
        about = await made.said_on("chat", "1", "hello")
        assert await made.resolver().drain()
        assert len((await made.shown(about)).intended) == 1
        assert await made.permit((await made.plans())[-1]) is None, "where it was asked is no push"


@in_loop
async def test_an_answer_in_a_group_goes_there_and_to_nobody_else(database: Any) -> None:
    async with answer_desk(database) as made:
        await made.speak("mail", "1")
        await made.said_on("chat", "2", "hello", is_group=True)
        assert await made.resolver().drain()
        (plan,) = await made.plans()
        assert (plan.channel, plan.recipient) == ("chat", made.end("chat", "2").native)
        assert await permitted(made) == [None]


@in_loop
async def test_unlinked_while_it_is_sent_it_is_recorded_as_what_it_became(database: Any) -> None:
    with serving(Receiver()) as receiver:
        async with answer_desk(database, receiver.url) as made:
            await made.speak("chat", "1")
            about = await resolved(made, ALL)
            sent = asyncio.Event()
            loop = asyncio.get_running_loop()
            unlinked: list[tuple[int, int]] = []

            def mischief(_request: Any, honest: Any) -> Any:
                loop.call_soon_threadsafe(sent.set)
                future = asyncio.run_coroutine_threadsafe(
                    made.unlinking.unlinked(TENANT, made.account, made.end("chat", "1")), loop
                )
                unlinked.append(future.result(10))
                return honest()

            receiver.mischief = [mischief]
            await made.sends.drain()
            assert unlinked == [(1, 0)]
            (intended,) = (await made.shown(about)).intended
            assert intended.state == "accepted"
            assert len(receiver.took) == 1


@in_loop
async def test_unlinking_cancels_what_waits_for_that_end_alone(database: Any) -> None:
    with serving(Receiver()) as receiver:
        async with answer_desk(database, receiver.url) as made:
            for channel, native_id in (("chat", "1"), ("mail", "2")):
                await made.speak(channel, native_id)
            about = await resolved(made, ALL)
            end = made.end("chat", "1")
            assert await made.unlinking.unlinked("umbrella", made.account, end) == (0, 0)
            assert await made.unlinking.unlinked(TENANT, made.account, end) == (1, 0)
            assert await made.unlinking.unlinked(TENANT, made.account, end) == (0, 0)
            await made.sends.drain()
            states = {each.channel: each.state for each in (await made.shown(about)).intended}
            assert states == {"chat": "cancelled", "mail": "accepted"}


@in_loop
async def test_each_destination_is_tried_on_its_own(database: Any) -> None:
    with serving(Receiver()) as receiver:
        async with answer_desk(database, receiver.url) as made:
            about = await resolved(made, HOOKED)
            receiver.troubles = lambda request: request.path == "/h2"
            receiver.mischief = [status(410)]
            await made.sends.drain(times=2)
            states = {each.channel: each.state for each in (await made.shown(about)).intended}
            assert states == {"h1": "accepted", "h2": "dead", "h3": "accepted"}


@in_loop
async def test_events_hold_no_native_id_and_no_address(database: Any) -> None:
    async with answer_desk(database) as made:
        await made.speak("chat", "canary-native")
        await made.said_on("chat", "canary-native", "canary-text")
        assert await made.resolver().drain()
        state, _ = await load(made.talks.store, (await made.plans())[0].delivery_id)
        assert state.requested is None
        with database.connect("postgres") as superuser:
            found = superuser.execute(
                "SELECT e.payload::text FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
                " WHERE s.kind IN ('answer', 'delivery')"
            ).fetchall()
        assert len(found) == 3
        assert not any("canary" in row[0] for row in found)
