"""What agents remember: each asker's own, written as a recorded step, and never without the classes of its sources."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from append_helpers import expire
from conversation_desk import Desk, Killed, Policy, Script, agent_of, desk, kill, lapse
from minutebook.commands.conversations.ports import (
    CallDelta,
    MemoryEntry,
    ModelPart,
    ModelRequest,
    TextDelta,
)
from minutebook.domain.conversations.commands import StartConversation
from minutebook.domain.conversations.identity import identity_of
from minutebook.domain.conversations.turn_events import ToolEnded, ToolStarted, WantedCall
from minutebook.domain.errors import Invalid
from minutebook.domain.principals import Caller
from shared_talks import ALICE, BOB, CANARY, CAROL, Vault, answered, ask, shared, steps_of

KEY = "AKIAIOSFODNN7EXAMPLE"
CAROLS = {"human:carol": {"secret"}}


async def notes(request: ModelRequest) -> AsyncIterator[ModelPart]:
    """Does the calls that the question names, one after the other, then says what came of the last.

    Words of a question: `vault`, `write:<key>:<text>`, `read`, `read:<key>`.
    """
    asked = max(place for place, each in enumerate(request.messages) if each.role == "user")
    results = [each.text for each in request.messages[asked:] if each.role == "tool"]
    wanted = [word for word in request.messages[asked].text.split() if re.match(r"(vault|write:|read)", word)]
    if len(results) == len(wanted):
        yield TextDelta(f"done: {results[-1] if results else 'nothing'}")
        return
    name, _, rest = wanted[len(results)].partition(":")
    key, _, text = rest.partition(":")
    arguments = {"write": {"key": key, "text": text}, "read": {"key": key} if key else {}}.get(name, {})
    yield CallDelta(WantedCall("c", "vault" if name == "vault" else f"memory_{name}", arguments))


def agents(memory: str = "asker") -> dict[str, Any]:
    """One agent with a memory and the vault."""
    return {"echo": agent_of(Script(notes), tools=(Vault(),), memory=memory)}


def rows(database: Any) -> list[Any]:
    """Key, text and classes of every entry."""
    with database.connect("app") as app:
        return app.execute("SELECT m.key, m.text, m.classes FROM minutebook.memories m ORDER BY 1").fetchall()


async def told(here: Desk, caller: Caller, text: str) -> Any:
    """The reply to somebody's one message in a new conversation of theirs alone."""
    talk = (await here.conversations.start(caller, StartConversation("echo"), None)).body["id"]
    return await answered(here, talk, caller, text)


def test_shared_mode_memory_is_each_askers_own_and_classifies_the_answer(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url(), agents()) as here:
            alices, bobs = (here.runner_means.memories.label("echo", identity_of(each)) for each in (ALICE, BOB))
            talk = await shared(here, BOB)
            wrote = await answered(here, talk, ALICE, "write:door:blue")
            assert (wrote.text, wrote.classes) == ("done: noted", (f"memory:{alices}",))
            missed = await answered(here, talk, BOB, "read")
            assert (missed.text, missed.classes) == ("done: []", (f"memory:{bobs}",))
            script = here.agents["echo"].provider
            assert "blue" not in repr(script.asked[-1])  # pyright: ignore[reportAttributeAccessIssue]
            assert (await answered(here, talk, BOB, "read:door")).text == "done: error: there is no note with that key"
            found = await told(here, ALICE, "read:door")
            assert (found.text, found.classes) == ('done: [{"key":"door","text":"blue"}]', (f"memory:{alices}",))
            assert alices != bobs
            assert re.fullmatch(r"[0-9a-f]{16}", alices)
            assert here.runner_means.memories.label("other", identity_of(ALICE)) != alices, "of the agent, too"

    asyncio.run(go())


def test_shared_mode_what_fed_a_note_classifies_whoever_reads_it(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url(), agents()) as here:
            own = f"memory:{here.runner_means.memories.label('echo', identity_of(ALICE))}"
            wrote = await told(here, ALICE, f"vault write:seen:{CANARY}")
            assert wrote.classes == (own, "secret")
            assert rows(database) == [("seen", CANARY, ["secret"])]
            talk = await shared(here, BOB)
            read = await answered(here, talk, ALICE, "read")
            assert (CANARY in read.text, read.classes) == (True, (own, "secret"))
            script = here.agents["echo"].provider
            await answered(here, talk, BOB, "what did alice say?")
            assert CANARY not in repr(script.asked[-1])  # pyright: ignore[reportAttributeAccessIssue]
            assert (await answered(here, talk, ALICE, "write:seen:")).text == "done: removed"
            assert rows(database) == []

    asyncio.run(go())


@pytest.mark.parametrize("point", ["before tool start", "after tool start", "after tool", "after tool end"])
def test_shared_mode_memory_is_written_only_as_a_recorded_step(database: Any, point: str) -> None:
    async def go() -> None:
        stop = Killed(point)
        async with desk(database.url(), agents(), point=stop) as first:
            talk = await shared(first, BOB)
            await ask(first, talk, BOB, "write:door:blue")
            async with asyncio.timeout(10):
                await stop.reached.wait()
            await kill(first)
        started = rows(database)
        assert started == ([("door", "blue", [])] if point in ("after tool", "after tool end") else [])
        lapse(database)
        async with desk(database.url(), agents()) as second:
            await second.runner.sweep()
            await second.done()
            assert (await second.records(talk))[-1].text == "done: noted"
            assert rows(database) == [("door", "blue", [])], "once more is harmless"
            steps = await steps_of(second, talk)
            assert [type(each) for each in steps if isinstance(each, ToolStarted | ToolEnded)][-2:] == [
                ToolStarted,
                ToolEnded,
            ]

    asyncio.run(go())


def test_shared_mode_a_memory_of_all_askers_stops_the_start(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url(), agents("constant:team")) as here:
            with pytest.raises(Invalid) as refused:
                await here.conversations.start(ALICE, StartConversation("echo", mode="shared"), None)
            assert "$.agent" in repr(vars(refused.value))
            here.agents["echo"] = agents()["echo"]
            talk = await shared(here, BOB)
            here.agents["echo"] = agents("constant:team")["echo"]  # the settings have changed since
            reply = await answered(here, talk, BOB, "write:door:blue")
            assert "conversations of one person" in reply.text
            assert rows(database) == []

    asyncio.run(go())


def test_a_memory_of_all_askers_shows_nobody_what_they_are_not_cleared_for(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url(), agents("constant:team"), clearance=Policy(CAROLS)) as here:
            await told(here, ALICE, f"write:plain:open vault write:hidden:{CANARY}")
            plain, both = '{"key":"plain","text":"open"}', f'[{{"key":"hidden","text":"{CANARY}"}}'
            bobs = await told(here, BOB, "read")
            assert (bobs.text, bobs.classes) == (f"done: [{plain}]", ("memory:constant:team",))
            missed = await told(here, BOB, "read:hidden")
            assert (missed.text, missed.classes) == (
                "done: error: there is no note with that key", ("memory:constant:team",)
            )  # fmt: skip
            for caller in (CAROL, ALICE):
                seen = await told(here, caller, "read")
                assert (seen.text, seen.classes) == (f"done: {both},{plain}]", ("memory:constant:team", "secret"))

    asyncio.run(go())


def test_a_note_holds_no_secret_and_is_bounded(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url(), agents()) as here:
            await told(here, ALICE, f"write:door:{KEY}")
            assert KEY not in repr(rows(database))
            assert len(rows(database)) == 1
            tool_answers = [
                (f"write:{'k' * 129}:x", "error: key must be a text of 1 to 128 characters"),
                (f"write:k:{'z' * 4097}", "error: text must be of at most 4096 bytes"),
                (f"write:k:{'z' * 4096}", "noted"),
            ]
            for text, said in tool_answers:
                assert (await told(here, ALICE, text)).text.startswith(f"done: {said}"), text[:20]
            memories, own = here.runner_means.memories, here.runner_means.memories.label("echo", identity_of(ALICE))
            talk = await here.start()
            head = await here.store.head(f"conversation:{talk}")
            assert head is not None
            epoch, _ = await here.store.take(f"conversation:{talk}", "runner", "h", 15)

            async def write(key: str, at: int = epoch) -> str:
                return await memories.write(head.id, at, "acme", own, MemoryEntry(key, "x", own))

            assert {await write(f"k{number}") for number in range(254)} == {"written"}
            assert await write("one more") == "full"
            assert await write("door") == "written", "one that there is may be written over"
            assert await write("door", epoch + 1) == await write("door", epoch - 1) == "fenced"
            assert "256 notes" in (await told(here, ALICE, "write:another:x")).text

    asyncio.run(go())


def test_law_10_a_memory_goes_with_its_conversation_and_by_its_age(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url(), agents()) as here:
            talk = await here.start()
            await answered(here, talk, ALICE, f"write:mine:{CANARY}")
            await told(here, BOB, "write:his:old")
            await told(here, CAROL, "write:hers:new")
            await here.conversations.close(ALICE, talk, None)
            await here.done()
            with database.connect("postgres") as superuser:
                superuser.execute(
                    "UPDATE minutebook.memories SET updated_at = now() - interval '366 days' WHERE key = 'his'"
                )
                expire(superuser, f"conversation:{talk}", days=90)
                (stream,) = superuser.execute("SELECT m.stream_id FROM minutebook.memories m WHERE m.key = 'mine'")
            assert (await told(here, BOB, "read")).text == "done: []"
            with database.connect("retention") as retention:
                assert retention.execute("SELECT minutebook.purge_stream_v1(%s)", stream).fetchone() != (None,)
            assert [key for key, _, _ in rows(database)] == ["hers", "his"]
            await here.runner_means.memories.expire()  # pyright: ignore[reportAttributeAccessIssue]
            assert [key for key, _, _ in rows(database)] == ["hers"]

    asyncio.run(go())
