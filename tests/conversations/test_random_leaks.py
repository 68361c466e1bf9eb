"""Whatever is said in a shared conversation, and whoever is cleared when: nobody finds a byte that they may not see.

The model is a parrot: its answer has every canary that its prompt had. So what is fed where it should not be comes out.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from canaries import canary
from conversation_desk import Counted, Desk, Policy, Script, agent_of, desk
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from minutebook.commands.conversations.kind import conversation_kind, stream_of
from minutebook.commands.conversations.ports import (
    CallDelta,
    ModelError,
    ModelPart,
    ModelRequest,
    TextDelta,
    ToolResult,
    ToolSpec,
    Viewer,
)
from minutebook.commands.mailbox import Decided
from minutebook.commands.ports import Head
from minutebook.domain.conversations import window
from minutebook.domain.conversations.events import ParticipantAdded, ParticipantRemoved, SummaryRecorded, UserRecorded
from minutebook.domain.conversations.identity import Identity, identity_of
from minutebook.domain.conversations.state import Conversation
from minutebook.domain.conversations.turn_events import WantedCall
from minutebook.domain.conversations.visibility import sight
from minutebook.domain.decisions import Decision, NewEvent
from minutebook.domain.errors import MinutebookError
from minutebook.domain.principals import Caller, Principal
from parrot import SEEN
from shared_talks import ALICE, ask, shared

PEOPLE = [ALICE, *(Caller(Principal("human", name), "acme", is_member=True) for name in ("bob", "carol", "dan"))]
LABELS = ("secret", "hr", "nobody's")
EXAMPLES, SOAK_EXAMPLES = 25, 500


class Telling(Counted):
    """A tool of a class: every call gives another canary, or fails with it."""

    def __init__(self, label: str, homes: dict[str, tuple[Identity, frozenset[str]]]) -> None:
        super().__init__(is_idempotent=True)
        self.spec = ToolSpec(label, "Tells.", {"type": "object"})
        self.data_class = label
        self._homes = homes

    async def run(self, arguments: Mapping[str, Any], asker: Identity) -> ToolResult:
        """See Tool."""
        word = canary(self.data_class).word
        self._homes[word] = (asker, frozenset({self.data_class}))
        self.calls += 1
        return ToolResult("ok" if self.calls % 2 else "error", f"it is {word}")


class Said(NamedTuple):
    """A question. order: what it has the model do. waits: for the answer."""

    order: str
    classes: tuple[str, ...]
    edits: bool
    waits: bool


class Story:
    """One conversation as it is drawn. homes: of each canary, who asked for it and the classes of where it first stood;
    those of a question are known once it is recorded."""

    def __init__(self) -> None:
        self.homes: dict[str, tuple[Identity, frozenset[str]]] = {}
        self.policy = Policy({})
        self.prompts: list[tuple[str, str, frozenset[str]]] = []
        self.script = Script(self._answer)
        self.summarizer = Script(self._sum_up)
        self._asker = ""

    def agents(self) -> dict[str, Any]:
        """The parrot, and one that sums up."""
        tools = tuple(Telling(label, self.homes) for label in LABELS)
        return {
            "echo": agent_of(self.script, tools=tools, summarizer="digest", max_steps=3),
            "digest": agent_of(self.summarizer, name="digest"),
        }

    async def _answer(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        text = "\n".join(each.text for each in request.messages)
        question = next(each.text for each in reversed(request.messages) if each.role == "user")
        who = re.findall(r"by (human:\w+)", question)[-1]
        self.prompts.append((who, text, self.policy.of.get(who, frozenset())))
        wanted = re.findall(r"call (\w+)", question.rpartition("by human:")[2])
        called = sum(each.role == "tool" for each in request.messages)
        if called < len(wanted):
            label = next(each for each in LABELS if each.startswith(wanted[called]))
            yield CallDelta(WantedCall(f"c{called}", label, {}))
            return
        yield TextDelta(f"seen: {' '.join(sorted(set(SEEN.findall(text))))}")
        if "fail" in question:
            raise ModelError("it failed")

    async def _sum_up(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        text = "\n".join(each.text for each in request.messages)
        yield TextDelta(f"so far: {' '.join(sorted(set(SEEN.findall(text))))}")

    async def tell(self, here: Desk, steps: list[tuple[Any, ...]]) -> str:
        """All steps; the conversation's id. What is refused, as a removed one's question is, is no step."""
        talk = await shared(here, *PEOPLE[1:])
        for kind, place, what in steps:
            who = PEOPLE[place]
            if kind == "labels":
                await here.done()
                self.policy.of[str(who.principal)] = frozenset(what)
            elif kind == "member" and place:
                await _change(here, talk, who, ParticipantAdded if what else ParticipantRemoved)
            elif kind == "ask":
                with contextlib.suppress(MinutebookError):
                    await self._say(here, talk, who, what)
        await here.done()
        return talk

    async def _say(self, here: Desk, talk: str, who: Caller, what: Said) -> None:
        word = canary("a question").word
        fields: dict[str, Any] = {"classes": what.classes} if what.classes else {}
        if what.edits:
            own = [each.ord for each in await here.records(talk) if _is_own(each, who)]
            fields |= {"edit_of": own[-1]} if own else {}
        await ask(here, talk, who, f"by {who.principal} {what.order} {word}", **fields)
        if what.waits:
            await here.done()

    async def check(self, here: Desk, talk: str) -> None:
        """What must hold of it."""
        records = await here.records(talk)
        for each in records:
            if isinstance(each, UserRecorded) and each.asker is not None and isinstance(each.text, str):
                for word in SEEN.findall(each.text):
                    self.homes[word] = (each.asker, frozenset(each.classes))
        for each in records:
            for word in SEEN.findall(each.text or ""):
                assert self.homes[word][1] <= set(each.classes), f"{each.ord} has {word} and not its classes"
        self._check_prompts()
        for each in await here.events(talk):
            if isinstance(each, SummaryRecorded) and isinstance(each.text, str):
                assert [word for word in SEEN.findall(each.text) if self.homes[word][1]] == []
        for who in PEOPLE:
            identity = identity_of(who)
            labels = self.policy.of.get(str(who.principal), frozenset())
            may = [each for each in records if each.asker == identity or _is_open(each, labels)]
            sets = [each.classes for each in records]
            known = await self.policy.resolve(Viewer(identity), sets)
            shown = [each for each in records if sight("shared", each, identity, known) != "restricted"]
            assert [each.ord for each in shown] == [each.ord for each in may]

    def _check_prompts(self) -> None:
        for who, text, labels in self.prompts:
            for word in SEEN.findall(text):
                asker, classes = self.homes[word]
                assert asker.actor == who or classes <= labels, f"{who} was fed {word}"
        for request in self.summarizer.asked:
            for word in SEEN.findall("\n".join(each.text for each in request.messages)):
                assert not self.homes[word][1], f"{word} was summed up"


def _is_own(record: Any, who: Caller) -> bool:
    return isinstance(record, UserRecorded) and record.asker == identity_of(who) and record.status == "accepted"


def _is_open(record: Any, labels: frozenset[str]) -> bool:
    return record.asker is not None and record.status != "rejected" and set(record.classes) <= labels


async def _change(here: Desk, talk: str, who: Caller, event: type[ParticipantAdded | ParticipantRemoved]) -> None:
    await here.done()
    owner = identity_of(ALICE)
    kind, stream = conversation_kind(here.scribe.keyring, talk), stream_of(talk)
    changed = Decision((NewEvent(event(identity_of(who), owner, "", ""), ALICE.principal),))

    def decide(_: Conversation, head: Head) -> Decided:
        return here.scribe.encode(stream, head.version, changed)

    await here.dispatcher.run(kind, stream, lambda state, head: None, decide, status=200)


ORDERS = st.sampled_from(("say", "call secret", "call hr", "call nobody", "call secret call hr", "say fail"))
CLASSES = st.lists(st.sampled_from(LABELS), max_size=1).map(tuple)
ASKS = st.builds(Said, ORDERS, CLASSES, st.booleans(), st.sampled_from((True, True, False)))
WHO = st.integers(0, len(PEOPLE) - 1)
STEP = st.one_of(
    *[st.tuples(st.just("ask"), WHO, ASKS)] * 3,
    st.tuples(st.just("labels"), WHO, st.sets(st.sampled_from(LABELS[:2]))),
    st.tuples(st.just("member"), WHO, st.booleans()),
)
STORIES = st.lists(STEP, min_size=4, max_size=9)


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that turns are evicted and summed up."""
    monkeypatch.setattr(window, "MAX_WINDOW_TURNS", 3)
    return iter(())


def hunt(database: Any, examples: int) -> None:
    """So many stories over one log."""
    with asyncio.Runner() as runner:
        opened = desk(database.url())
        base = runner.run(opened.__aenter__())

        @settings(
            max_examples=examples, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )  # fmt: skip
        @given(STORIES)
        def story(steps: list[tuple[Any, ...]]) -> None:
            runner.run(_one(base, steps))

        try:
            story()
        finally:
            runner.run(opened.__aexit__(None, None, None))


async def _one(base: Desk, steps: list[tuple[Any, ...]]) -> None:
    story = Story()
    here = Desk(base.pool, base.appender, story.agents(), clearance=story.policy)
    try:
        talk = await story.tell(here, steps)
        await story.check(here, talk)
    finally:
        await here.runner.close()


@pytest.mark.usefixtures("small_window")
def test_law_14_no_story_leaks(database: Any) -> None:
    hunt(database, EXAMPLES)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("small_window")
def test_law_14_five_hundred_stories_leak_nothing(database: Any) -> None:
    hunt(database, SOAK_EXAMPLES)
