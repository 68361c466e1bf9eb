"""A turn of a shared conversation runs as its asker, is classified by every tool that it called, and is verified."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conversation_desk import Killed, Policy, Script, agent_of, desk, kill, lapse
from minutebook.commands.conversations.kind import turn_stream_of
from minutebook.commands.ports import Append, Creation
from minutebook.domain.conversations.identity import identity_of
from minutebook.domain.conversations.turn_events import AttemptStarted, ToolStarted, TurnEnded
from minutebook.domain.decisions import Decision, NewEvent
from minutebook.domain.principals import TURN_RUNNER
from shared_talks import ALICE, BOB, CANARY, Vault, answered, ask, obeys, shared, steps_of, stop


def test_shared_mode_each_turn_runs_as_its_asker_and_is_denied_what_the_owner_alone_can_reach(database: Any) -> None:
    async def go() -> None:
        script, vault = Script(obeys), Vault("sec")
        async with desk(database.url(), {"echo": agent_of(script, tools=(vault,))}) as here:
            talk = await shared(here, BOB)
            denied = await answered(here, talk, BOB, "open the vault")
            assert (denied.status, denied.reason, denied.asker) == ("failed", "denied", identity_of(BOB))
            assert denied.classes == ("secret",), "a tool that was called classifies, though it did not run"
            assert len(script.asked) == 1, "the turn ends there"
            assert vault.askers == []
            reached = await answered(here, talk, ALICE, "open the vault")
            assert (reached.status, CANARY in reached.text) == ("completed", True)
            assert vault.askers == [identity_of(ALICE)]

    asyncio.run(go())


def test_shared_mode_a_denial_stands_after_a_takeover(database: Any) -> None:
    async def go() -> None:
        script, point = Script(obeys), Killed("after tool end")
        agents = {"echo": agent_of(script, tools=(Vault("sec"),))}
        async with desk(database.url(), agents, point=point) as first:
            talk = await shared(first, BOB)
            await ask(first, talk, BOB, "open the vault")
            async with asyncio.timeout(10):
                await point.reached.wait()
            await kill(first)
        lapse(database)
        agents["echo"] = agent_of(script, tools=(Vault(),))
        async with desk(database.url(), agents) as second:
            await second.runner.sweep()
            await second.done()
            reply = (await second.records(talk))[-1]
            assert (reply.status, reply.reason, reply.attempts) == ("failed", "denied", 2)
            assert len(script.asked) == 1

    asyncio.run(go())


@pytest.mark.parametrize(
    ("text", "label"),
    [("open the vault", "secret"), ("vault fails", "secret"), ("vault door", "secret"), ("other", "unclassified")],
)
def test_shared_mode_answers_are_classified_by_every_tool_called_whatever_came_of_it(
    database: Any, text: str, label: str
) -> None:
    async def go() -> None:
        vault = Vault()
        async with desk(database.url(), {"echo": agent_of(Script(obeys), tools=(vault,))}) as here:
            talk = await shared(here, BOB)
            reply = await answered(here, talk, BOB, text, classes=("added",))
            assert (reply.status, reply.classes) == ("completed", ("added", label))
            assert len(vault.askers) == (0 if "door" in text or text == "other" else 1)
            question, _ = await here.records(talk)
            assert question.classes == ("added",), "recorded once, before the tool was called"

    asyncio.run(go())


@pytest.mark.parametrize("is_gone", [True, False])
def test_shared_mode_a_call_of_unknown_outcome_classifies(database: Any, *, is_gone: bool) -> None:
    async def go() -> None:
        vault, point = Vault(), Killed("after tool")
        vault.is_idempotent = False
        agents = {"echo": agent_of(Script(obeys), tools=(vault,))}
        async with desk(database.url(), agents, point=point) as first:
            talk = await shared(first, BOB)
            await ask(first, talk, BOB, "open the vault")
            async with asyncio.timeout(10):
                await point.reached.wait()
            await kill(first)
        lapse(database)
        if is_gone:
            agents["echo"] = agent_of(Script(obeys))
        async with desk(database.url(), agents) as second:
            await second.runner.sweep()
            await second.done()
            reply = (await second.records(talk))[-1]
            assert "outcome unknown" in reply.text
            assert reply.classes == (("unclassified",) if is_gone else ("secret",))

    asyncio.run(go())


def test_shared_mode_a_call_that_the_turn_left_behind_classifies(database: Any) -> None:
    async def go() -> None:
        point, agents = Killed("after tool"), {"echo": agent_of(Script(obeys), tools=(Vault(),))}
        async with desk(database.url(), agents, point=point) as first:
            talk = await shared(first, BOB)
            await ask(first, talk, BOB, "open the vault")
            async with asyncio.timeout(10):
                await point.reached.wait()
            await kill(first)
        lapse(database)
        async with desk(database.url(), agents) as second:
            await stop(second, talk, BOB)
            await second.runner.sweep()
            await second.done()
            reply = (await second.records(talk))[-1]
            assert (reply.status, reply.classes) == ("interrupted", ("secret",))
            steps = await steps_of(second, talk)
            assert [type(each) for each in steps][2:] == [ToolStarted, TurnEnded], "nothing follows an interrupt"

    asyncio.run(go())


@pytest.mark.parametrize("who", ["bob", "alice", None])
def test_shared_mode_a_turns_execution_is_continued_only_as_its_asker(database: Any, who: str | None) -> None:
    """What lies at the turn's execution is signed, and all that it says of conversation, turn and ord is right."""

    async def go() -> None:
        point, agents = Killed("before attempt"), {"echo": agent_of(Script(obeys))}
        async with desk(database.url(), agents, point=point) as first:
            talk = await shared(first, BOB)
            await ask(first, talk, BOB, "hello")
            async with asyncio.timeout(10):
                await point.reached.wait()
            await kill(first)
        lapse(database)
        async with desk(database.url(), agents, clearance=Policy({})) as second:
            question = (await second.records(talk))[0]
            stream = turn_stream_of(second.scribe.execution(talk, 1, question.kid))
            asker = {} if who is None else {"asker": identity_of(ALICE if who == "alice" else BOB)}
            began = AttemptStarted(talk, 1, 1, 1, 1, "", "", **asker)
            decided = second.scribe.encode(stream, 0, Decision((NewEvent(began, TURN_RUNNER, origin="broker"),)))
            await second.store.append([Append(stream, 0, decided.rows, create=Creation("turn", "acme", 90))])
            await second.runner.sweep()
            await second.done()
            reply = (await second.records(talk))[-1]
            expected = ("completed", 2) if who == "bob" else ("failed", 0)
            assert (reply.status, reply.attempts) == expected
            assert (reply.reason == "turn-failed") == (who != "bob")

    asyncio.run(go())
