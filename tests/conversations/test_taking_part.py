"""Shared conversations over a real log: each turn is its asker's, and who is taken out says and gets no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from conversation_desk import ALICE, BOB, Desk, Killed, Script, agent_of, desk
from minutebook.commands.conversations.kind import stream_of, turn_stream_of
from minutebook.commands.conversations.ports import ModelPart, ModelRequest, TextDelta, Usage
from minutebook.commands.mailbox import Answer
from minutebook.commands.ports import Append, Creation, EventRow
from minutebook.domain.conversations.commands import (
    AddParticipant,
    InterruptTurn,
    RemoveParticipant,
    SendTurn,
    StartConversation,
)
from minutebook.domain.conversations.events import ReplyRecorded, UserRecorded
from minutebook.domain.conversations.identity import Identity, identity_key, identity_of
from minutebook.domain.conversations.turn_events import ModelAnswered, TurnEnded
from minutebook.domain.decisions import Decision, NewEvent
from minutebook.domain.errors import Forbidden, NotVisible, QueueFull, RateLimited
from minutebook.domain.principals import TURN_RUNNER, Caller, Principal
from shared_talks import Vault, obeys
from ulid_transform import ulid_now

DESK = Caller(Principal("human", "alice"), "acme", is_member=True, delegate=Principal("system", "desk"))


async def change(here: Desk, talk: str, *, add: bool, who: Caller = BOB, key: str | None = None) -> Answer:
    """Alice has somebody take part, or takes them out."""
    name = str(who.principal)
    if add:
        return await here.conversations.add_participant(ALICE, talk, AddParticipant(name), key)
    return await here.conversations.remove_participant(ALICE, talk, RemoveParticipant(name), key)


async def shared(here: Desk, **said: Any) -> str:
    """A shared conversation of alice's with bob."""
    talk = await here.start(mode="shared", **said)
    await change(here, talk, add=True)
    return talk


async def bobs(here: Desk, talk: str, text: str = "hello", key: str | None = None) -> Answer:
    """A message of bob's."""
    return await here.conversations.send(BOB, talk, SendTurn(text), key)


async def replies(here: Desk, talk: str) -> list[ReplyRecorded]:
    """Of all turns, in order."""
    return [each for each in await here.records(talk) if isinstance(each, ReplyRecorded)]


async def _says_and_waits(request: ModelRequest) -> AsyncIterator[ModelPart]:
    yield TextDelta("a word ")
    await asyncio.Event().wait()


def test_a_removal_by_another_process_is_seen_by_the_next_request(database: Any) -> None:
    """The second process holds the conversation as it was, and has answered bob before."""

    async def go() -> None:
        async with desk(database.url()) as one, desk(database.url()) as two:
            talk = await shared(one)
            first = await bobs(two, talk, key="k-1")
            await two.done()
            assert (await bobs(two, talk, key="k-1")).is_replay
            await change(one, talk, add=False)
            for key in ("k-1", "k-2"):
                with pytest.raises(NotVisible):
                    await bobs(two, talk, key=key)
            for refused in (
                two.conversations.look(BOB, talk),
                two.conversations.interrupt(BOB, talk, InterruptTurn(), None),
                two.conversations.participants(BOB, talk),
                two.conversations.close(BOB, talk, None),
            ):
                with pytest.raises(NotVisible):
                    await refused
            await change(one, talk, add=True)
            assert (await bobs(two, talk, key="k-1")).body["id"] == first.body["id"]
            await two.done()
            assert len(await replies(one, talk)) == 1

    asyncio.run(go())


def test_a_removed_participant_appends_nothing_on_a_state_that_is_out_of_date(database: Any) -> None:
    """The point read said yes; then another process removed them; the append conflicts and is refused."""

    async def go() -> None:
        async with desk(database.url()) as one, desk(database.url()) as two:
            talk = await shared(one)
            await two.conversations.look(BOB, talk)
            seat = await two.conversations.access.seat(BOB, talk)
            assert not seat.is_owner

            async def as_before(caller: Caller, conversation_id: str) -> Any:
                return seat

            await change(one, talk, add=False)
            two.conversations.access.seat = as_before  # pyright: ignore[reportAttributeAccessIssue]
            before = len(await one.events(talk))
            with pytest.raises(NotVisible):
                await bobs(two, talk)
            with pytest.raises(NotVisible):
                await two.conversations.look(BOB, talk)
            assert len(await one.events(talk)) == before

    asyncio.run(go())


def test_an_event_about_a_participant_that_nobody_signed_opens_nothing(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            talk = await here.start(mode="shared")
            who = identity_of(BOB)
            client, said = f"participant:{identity_key(who)}", {"participant": who, "by": identity_of(ALICE)}
            raw = msgspec.Raw(msgspec.json.encode({**said, "kid": "k1", "mac": "0" * 64}))
            forged = EventRow(
                ulid_now(), "participant_added", 1, raw, "human", "alice", "client", origin_client=client,
                origin_key=f"{2:016}",
            )  # fmt: skip
            await here.store.append([Append(stream_of(talk), 1, [forged])])
            with pytest.raises(NotVisible):
                await bobs(here, talk)
            assert [each for _, each in await here.conversations.access.listed(BOB, 9, None) or []] == [None]
            await change(here, talk, add=True)
            await bobs(here, talk)

    asyncio.run(go())


def test_shared_mode_queue_a_removal_stops_their_turn_and_rejects_what_waits(database: Any) -> None:
    """By another process than the one that runs the turn."""

    async def go() -> None:
        agents = {"echo": agent_of(Script(_says_and_waits))}
        async with desk(database.url(), agents) as one, desk(database.url(), agents) as two:
            talk = await shared(one)
            await bobs(one, talk, "first")
            await bobs(one, talk, "second")
            async with asyncio.timeout(20):
                while not one.sink.text(1):
                    one.sink.heard.clear()
                    await one.sink.heard.wait()
            await change(two, talk, add=False)
            one.runner.wake(None)
            await one.done()
            records = await one.records(talk)
            assert [(each.status, each.reason) for each in records if isinstance(each, UserRecorded)] == [
                ("accepted", msgspec.UNSET),
                ("rejected", "not-a-participant"),
            ]
            (reply,) = await replies(one, talk)
            assert (reply.status, reply.text, reply.asker) == ("interrupted", "a word ", identity_of(BOB))

    asyncio.run(go())


def test_a_removal_just_before_the_message_is_taken_up_wins(database: Any) -> None:
    async def go() -> None:
        held = Killed("before take")
        async with desk(database.url(), point=held.once) as one, desk(database.url()) as two:
            talk = await shared(one)
            await bobs(one, talk)
            await held.reached.wait()
            await change(two, talk, add=False)
            held.go_on.set()
            await one.done()
            (record,) = await one.records(talk)
            assert record.reason == "not-a-participant"

    asyncio.run(go())


def test_shared_mode_queue_nobody_stops_anothers_turn(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url(), {"echo": agent_of(Script(_says_and_waits))}) as here:
            talk = await shared(here, barge_in="interrupt")
            await here.send(talk, "mine")
            async with asyncio.timeout(20):
                while not here.sink.text(1):
                    here.sink.heard.clear()
                    await here.sink.heard.wait()
            before = (await here.conversations.look(ALICE, talk)).version
            assert (await here.conversations.interrupt(BOB, talk, InterruptTurn(), None)).seq == before
            await bobs(here, talk)
            running = (await here.conversations.look(BOB, talk)).conversation.running
            assert running is not None
            assert running.interrupts == ()
            await here.interrupt(talk)
            async with asyncio.timeout(20):
                while not await replies(here, talk):  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.02)
            assert (await replies(here, talk))[0].status == "interrupted"

    asyncio.run(go())


def test_shared_mode_queue_eight_of_one_asker_wait_whatever_others_send(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url(), {"echo": agent_of(Script(_says_and_waits))}) as here:
            talk = await shared(here)
            await here.send(talk, "runs")
            async with asyncio.timeout(20):
                while (await here.conversations.look(ALICE, talk)).conversation.running is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            for number in range(8):
                await bobs(here, talk, f"{number}")
            with pytest.raises(QueueFull):
                await bobs(here, talk, "ninth")
            await here.send(talk, "of another")

    asyncio.run(go())


def test_shared_mode_each_turn_runs_as_its_asker_and_on_their_tokens(database: Any) -> None:
    async def _uses_all(request: ModelRequest) -> AsyncIterator[ModelPart]:
        yield TextDelta("words")
        yield Usage(600, 500)

    async def go() -> None:
        agent = agent_of(Script(_uses_all), tokens_per_turn=8_000, tokens_per_day=8_500, reserve_output_tokens=100)
        async with desk(database.url(), {"echo": agent}) as here:
            talk = await shared(here)
            await here.send(talk, "mine")
            await here.done()
            await bobs(here, talk)
            await here.done()
            assert [each.status for each in await replies(here, talk)] == ["completed"] * 2
            with database.connect("postgres") as superuser:
                superuser.execute("UPDATE minutebook.token_use SET used = 8500 WHERE actor = 'human:bob'")
            with pytest.raises(RateLimited):
                await bobs(here, talk)
            await here.send(talk, "mine")
            await here.done()
            assert (await replies(here, talk))[-1].reason == "denied", "7400 are left, and a turn may need 8000"

    asyncio.run(go())


def test_what_the_asker_cannot_reach_is_denied_in_their_turn(database: Any) -> None:
    async def go() -> None:
        vault = Vault("sec")
        alice = msgspec.structs.replace(ALICE, claims={"groups": ("sec",)})
        bob = msgspec.structs.replace(BOB, claims={"groups": ("ops",)})
        async with desk(database.url(), {"echo": agent_of(Script(obeys), tools=(vault,))}) as here:
            talk = await shared(here)
            for who in (bob, alice):
                await here.conversations.send(who, talk, SendTurn("open the vault"), None)
                await here.done()
            denied, reached = await replies(here, talk)
            assert (denied.status, denied.reason, denied.asker) == ("failed", "denied", identity_of(BOB))
            assert reached.status == "completed"
            assert vault.askers == [identity_of(ALICE)]

    asyncio.run(go())


def test_shared_mode_a_delegate_takes_part_only_as_whom_the_settings_map_it_to(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            command = StartConversation("echo", mode="shared")
            with pytest.raises(Forbidden) as refused:
                await here.conversations.start(DESK, command, None)
            assert "conversations.delegates" in refused.value.detail
            talk = await here.start(mode="shared")
            private, theirs = await here.start(), await here.start(DESK)
            with pytest.raises(NotVisible):
                await here.conversations.send(DESK, talk, SendTurn("hello"), None)
            before = here.conversations
            here.conversations = type(before)(here.handler_means(mapped=mapped_to("human:alice")))
            await here.conversations.send(DESK, talk, SendTurn("hello"), None)
            await here.done()
            assert (await replies(here, talk))[0].asker == identity_of(ALICE)
            made = await here.conversations.start(DESK, command, None)
            assert (await before.look(ALICE, made.body["id"])).who == identity_of(ALICE)
            with pytest.raises(NotVisible):
                await here.conversations.look(DESK, private)
            assert (await here.conversations.look(DESK, theirs)).who == identity_of(DESK)
            listed = await here.conversations.access.listed(DESK, 9, None) or []
            assert [each.conversation_id for each, _ in listed] == [made.body["id"], theirs, talk]
            assert all(part is not None for _, part in listed)
            for event in await here.events(talk):
                assert "system:desk" not in repr(event), "nothing of the token is kept"

    asyncio.run(go())


def mapped_to(name: str) -> Any:
    """As whom the desk takes part."""
    return lambda identity: Identity(name, identity.tenant) if identity == identity_of(DESK) else None


@pytest.mark.parametrize("kind", ["unsigned", "another turn's", "another conversation's"])
def test_shared_mode_execution_id_a_forged_stream_at_its_place_is_not_continued(database: Any, kind: str) -> None:
    """Somebody with the database, who knows the place, is there first: with nothing signed, or with signed steps of
    another asker's turn."""

    async def go() -> None:
        script = Script(obeys)
        async with desk(database.url(), {"echo": agent_of(script)}) as here:
            talk = await shared(here)
            execution = here.scribe.execution(talk, 3 if kind == "another turn's" else 1, None)
            rows = steps_of_another(here, talk, kind)
            if kind == "another turn's":
                await here.send(talk, "mine")
                await here.done()
            made = Creation("turn", "acme", 90)
            await here.store.append([Append(turn_stream_of(execution), 0, rows, create=made)])
            asked = len(script.asked)
            await bobs(here, talk, "the vault of bob")
            await here.done()
            reply = (await replies(here, talk))[-1]
            assert (reply.status, reply.reason, reply.asker) == ("failed", "turn-failed", identity_of(BOB))
            assert "forged" not in reply.text
            assert len(script.asked) == asked

    asyncio.run(go())


def steps_of_another(here: Desk, talk: str, kind: str) -> list[EventRow]:
    """A finished answer, signed for another place or not at all."""
    answer = ModelAnswered(1, "forged", (), {"input": 1, "output": 1}, "", "")
    other = here.scribe.execution(talk if kind == "another turn's" else "z" * 26, 1, None)
    made = tuple(NewEvent(each, TURN_RUNNER, origin="broker") for each in (answer, TurnEnded("completed", "", "")))
    rows = here.scribe.encode(turn_stream_of(other), 0, Decision(made)).rows
    if kind != "unsigned":
        return list(rows)
    bare = {"step": 1, "text": "forged", "calls": [], "usage": {}, "kid": "k1", "mac": "0" * 64}
    return [msgspec.structs.replace(rows[0], payload=msgspec.Raw(msgspec.json.encode(bare)))]
