"""What a viewer is cleared for is in the log before they see anything by it (conversations.md, Shared mode)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conversation_desk import Desk, desk
from minutebook.commands.conversations.past import standing_at
from minutebook.commands.conversations.ports import Viewer
from minutebook.commands.ports import Append
from minutebook.domain.conversations.events import ClearanceRecorded
from minutebook.domain.conversations.past import Standing
from minutebook.domain.decisions import Decision, NewEvent
from minutebook.domain.errors import NotVisible
from minutebook.domain.principals import Principal
from shared_past import ANN, BEN, CLEO, Policy, SharedTalk

CLASSES = (("a",), ("a", "b"))


def of(*labels: str) -> frozenset[str]:
    """Labels."""
    return frozenset(labels)


async def recorded(talk: SharedTalk) -> list[tuple[str, tuple[str, ...], str]]:
    """What the log says, in its order."""
    events = [event for event in await talk.here.events(talk.id) if isinstance(event, ClearanceRecorded)]
    return [(event.viewer.actor, event.labels, event.policy) for event in events]


async def grant(talk: SharedTalk, who: Any, *classes: str) -> frozenset[str]:
    """What somebody may see now."""
    return (await talk.clearances.grant(Viewer(who), await talk.looked(), classes)).labels


async def begun(here: Desk, number: int = 1, *, is_asked: bool = False, a_minute: int = 6) -> SharedTalk:
    """A conversation of ann's and ben's."""
    talk = await SharedTalk(here, Policy(is_asked=is_asked), number, a_minute).start()
    await talk.add(BEN)
    return talk


def test_it_is_recorded_where_it_differs_and_by_whom(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            talk = await begun(here)
            talk.policy.granted["human:ben"] = of("b", "a")
            for _ in range(2):
                granted = await talk.clearances.grant(Viewer(BEN), await talk.looked(), ())
                assert granted.cleared([*CLASSES, ("c",)]) == {of("a"): True, of("a", "b"): True, of("c"): False}
            assert await recorded(talk) == [("human:ben", ("a", "b"), "0" * 16)]
            stored = (await here.store.read_for_fold((await talk.looked()).stream_id, 2, 9))[0]
            assert f"{stored.actor_kind}:{stored.actor_id}" == "human:ben"
            talk.policy.granted["human:ben"] = of("b")
            assert await grant(talk, BEN) == of("b")
            talk.policy.version = "1" * 16
            assert await grant(talk, BEN) == of("b")
            assert await grant(talk, ANN) == of()
            assert (await recorded(talk))[1:] == [
                ("human:ben", ("b",), "0" * 16),
                ("human:ben", ("b",), "1" * 16),
                ("human:ann", (), "1" * 16),
            ]

    asyncio.run(go())


def test_who_comes_again_is_recorded_again(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            talk = await begun(here)
            await grant(talk, BEN)
            stale = await talk.looked()
            await talk.remove(BEN)
            talk.policy.granted["human:ben"] = of("a")
            with pytest.raises(NotVisible):
                await talk.clearances.grant(Viewer(BEN), stale, ())
            with pytest.raises(NotVisible):
                await grant(talk, CLEO)
            talk.policy.granted["human:ben"] = of()
            await talk.add(BEN)
            seq = (await talk.looked()).version
            assert await standing_at(talk.past, await talk.point(BEN), seq) == Standing(is_member=True)
            await grant(talk, BEN)
            assert await standing_at(talk.past, await talk.point(BEN), seq + 1) == Standing(True, of(), "0" * 16)
            assert len(await recorded(talk)) == 2

    asyncio.run(go())


def test_what_cannot_be_recorded_is_not_shown(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            talk = await begun(here, a_minute=2)
            for labels in (of("a"), of("a", "b")):
                talk.policy.granted["human:ben"] = labels
                assert await grant(talk, BEN) == labels
            for labels, seen in ((of("b", "c"), of("b")), (of("c"), of()), (of("a", "b", "c"), of("a", "b"))):
                talk.policy.granted["human:ben"] = labels
                assert await grant(talk, BEN) == seen, "over the limit"
            assert len(await recorded(talk)) == 2
            talk.policy.granted["human:ann"] = of("a")
            await talk.close()
            talk.policy.granted["human:ben"] = of("b", "c")
            assert await grant(talk, BEN) == of("b"), "behind the seal"
            assert await grant(talk, ANN) == of(), "nothing was ever recorded of her"
            assert len(await recorded(talk)) == 2

    asyncio.run(go())


def test_a_seal_meanwhile_fails_closed(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            talk = await begun(here)
            stale = await talk.looked()
            await talk.close()
            talk.policy.granted["human:ben"] = of("a")
            assert (await talk.clearances.grant(Viewer(BEN), stale, ())).labels == of()
            assert await recorded(talk) == []

    asyncio.run(go())


def test_a_callable_is_asked_for_the_classes_that_are_there(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            talk = await begun(here, is_asked=True)
            talk.policy.granted["human:ben"] = of("a", "b", "never seen")
            granted = await talk.clearances.grant(Viewer(BEN), await talk.looked(), ("a", "x"))
            assert (granted.labels, granted.knows(("x",)), granted.knows(("b",))) == (of("a"), True, False)
            assert all(len(each) == 1 for each in talk.policy.asked)
            assert await grant(talk, BEN, "b") == of("a", "b"), "what was recorded is asked for again"
            assert await grant(talk, BEN) == of("a", "b")
            talk.policy.granted["human:ben"] = of("b")
            assert await grant(talk, BEN, "b") == of("b")
            assert [labels for _, labels, _ in await recorded(talk)] == [("a",), ("a", "b"), ("b",)]
            assert (await talk.clearances.unrecorded(Viewer(CLEO), ("a",))).labels == of()

    asyncio.run(go())


def test_a_forged_record_says_nothing(database: Any) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            talk = await begun(here)
            await grant(talk, BEN)
            await talk.write(ClearanceRecorded(BEN, ("a",), "0" * 16, "", ""))
            version = (await talk.looked()).version
            then = await standing_at(talk.past, await talk.point(BEN), version)
            assert then.labels == of(), "signed, but not written as the viewer"
            good = ClearanceRecorded(BEN, ("a",), "0" * 16, "", "")
            decision = Decision((NewEvent(good, Principal("human", "ben")),))
            rows = here.scribe.encode(talk.stream, version + 1, decision).rows
            await here.store.append([Append(talk.stream, version, rows)])
            then = await standing_at(talk.past, await talk.point(BEN), version + 1)
            assert then.labels == of(), "signed for another place"

    asyncio.run(go())
