"""Turns of a shared conversation over a real log: nobody's model is fed a byte that they are not cleared for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conversation_desk import Killed, Policy, Script, agent_of, desk, kill, lapse
from minutebook.commands.conversations.ports import ModelPart, ModelRequest, TextDelta
from minutebook.domain.conversations import window
from minutebook.domain.conversations.events import ContextDecided, ReplyRecorded, SummaryRecorded, UserRecorded
from minutebook.domain.conversations.identity import identity_of
from shared_talks import ALICE, BOB, CANARY, CAROL, Vault, answered, ask, obeys, shared

CAROLS = {"human:carol": {"secret"}}


def test_shared_mode_the_prompt_of_an_uncleared_asker_holds_no_byte_of_a_restricted_turn(database: Any) -> None:
    async def go() -> None:
        script, policy = Script(obeys), Policy(CAROLS)
        async with desk(database.url(), {"echo": agent_of(script, tools=(Vault(),))}, clearance=policy) as here:
            talk = await shared(here, BOB, CAROL)
            first = await answered(here, talk, ALICE, "open the vault")
            assert CANARY in first.text
            assert first.classes == ("secret",)
            plain = await answered(here, talk, BOB, "how are you?")
            assert plain.classes == ()
            assert CANARY not in repr(script.asked[-1])
            assert "open the" not in repr(script.asked[-1]), "whole: the question is left out with its answer"
            cleared = await answered(here, talk, CAROL, "and you?")
            assert CANARY in repr(script.asked[-1])
            assert cleared.classes == ("secret",), "what fed the context classifies the answer"
            await answered(here, talk, BOB, "what did carol ask?")
            assert CANARY not in repr(script.asked[-1])
            assert "and you?" not in repr(script.asked[-1])
            assert "how are you?" in repr(script.asked[-1])
            await answered(here, talk, ALICE, "what was it?")
            assert CANARY in repr(script.asked[-1]), "who asked it sees their own"
            assert "and you?" not in repr(script.asked[-1]), "but not what others drew from it"
            events = await here.events(talk)
            verdicts = [each for each in events if isinstance(each, ContextDecided)]
            assert [(each.kept, each.hidden, each.evicted) for each in verdicts] == [
                ((), (), ()), ((), (1,), ()), ((1, 3), (), ()), ((3,), (1, 5), ()), ((1, 3, 7), (5,), ()),
            ]  # fmt: skip
            questions = [each for each in events if isinstance(each, UserRecorded)]
            assert [each.classes for each in questions] == [(), (), ("secret",), (), ("secret",)]
            bobs = [viewer for viewer, _ in policy.asked if viewer.identity == identity_of(BOB)]
            assert bobs[-1].claims == {"groups": ["ops"]}

    asyncio.run(go())


@pytest.mark.parametrize("is_cleared", [True, False])
def test_shared_mode_a_takeover_follows_the_recorded_verdict_whatever_the_policy_says_since(
    database: Any, *, is_cleared: bool
) -> None:
    async def go() -> None:
        then, now = (Policy(CAROLS if each else {}) for each in (is_cleared, not is_cleared))
        script = Script(obeys)
        agents, point = {"echo": agent_of(script, tools=(Vault(),))}, Killed("before model", 2)
        async with desk(database.url(), agents, clearance=then, point=point) as first:
            talk = await shared(first, CAROL)
            await answered(first, talk, ALICE, "open the vault")
            await ask(first, talk, CAROL, "and you?")
            async with asyncio.timeout(10):
                await point.reached.wait()
            await kill(first)
        lapse(database)
        async with desk(database.url(), agents, clearance=now) as second:
            await second.runner.sweep()
            await second.done()
            assert now.asked == [], "what is decided is not asked again"
            assert (CANARY in repr(script.asked[-1])) == is_cleared
            reply = (await second.records(talk))[-1]
            assert (reply.attempts, reply.classes) == (2, ("secret",) if is_cleared else ())
            await answered(second, talk, CAROL, "and now?")
            assert (CANARY in repr(script.asked[-1])) != is_cleared
            assert len(now.asked) == 1

    asyncio.run(go())


def test_shared_mode_a_summary_is_of_unrestricted_turns_only(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "MAX_WINDOW_TURNS", 1)

    async def sums_up(request: ModelRequest) -> AsyncIterator[ModelPart]:
        yield TextDelta("a summary")

    async def go() -> None:
        script, summarizer = Script(obeys), Script(sums_up)
        agents = {
            "echo": agent_of(script, tools=(Vault(),), summarizer="digest"),
            "digest": agent_of(summarizer, name="digest"),
        }
        async with desk(database.url(), agents, clearance=Policy(CAROLS)) as here:
            talk = await shared(here, BOB, CAROL)
            for caller, text in (
                (ALICE, "apricot"), (ALICE, "open the vault"), (CAROL, "blackberry"), (BOB, "cherry"), (BOB, "damson"),
            ):  # fmt: skip
                await answered(here, talk, caller, text)
            events = await here.events(talk)
            assert [each.turn for each in events if isinstance(each, ReplyRecorded) and each.classes] == [2, 3]
            summaries = [each for each in events if isinstance(each, SummaryRecorded)]
            assert [(each.through_turn, each.outcome, each.classes) for each in summaries] == [
                (1, "replaced", ()), (4, "replaced", ()),
            ]  # fmt: skip
            asked = repr(summarizer.asked)
            assert len(summarizer.asked) == 2
            assert [word for word in (CANARY, "vault", "blackberry") if word in asked] == []
            assert [word for word in ("apricot", "cherry") if word in asked] == ["apricot", "cherry"]
            await answered(here, talk, BOB, "elderberry")
            assert "a summary" in repr(script.asked[-1])
            assert CANARY not in repr(script.asked[-1])

    asyncio.run(go())
