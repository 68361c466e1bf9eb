"""What somebody could see at a moment equals what they got at it, whatever changed before and behind (Time travel)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from conversation_desk import Desk, desk
from minutebook.commands.conversations.clearances import Granted
from minutebook.commands.conversations.past import standing_at, standing_while
from minutebook.commands.conversations.ports import Viewer
from minutebook.domain.conversations.events import ReplyRecorded, UserRecorded
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.past import sight_then
from minutebook.domain.conversations.visibility import Sight, sight
from msgspec import Struct
from shared_past import ANN, BEN, CLEO, Policy, SharedTalk

HISTORIES, SOAK_HISTORIES = 50, 1000
STEPS = 14
PEOPLE = (ANN, BEN, CLEO)
LABELS = (frozenset[str](), frozenset({"a"}), frozenset({"b"}), frozenset({"a", "b"}))
A_MINUTE = 1000
"""Beyond what a history has: behind that limit a viewer sees less than is recorded."""


class Frame(Struct, frozen=True):
    """What a viewer got for a record. version: where the log stood. is_live: it came while they were looking."""

    viewer: Identity
    record: UserRecorded | ReplyRecorded
    version: int
    sight: Sight
    is_live: bool


class History:
    """One random history, drawn from its seed, with the streams that people had open."""

    def __init__(self, talk: SharedTalk, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a seed, not a secret
        self._talk = talk
        self._open: dict[Identity, Granted] = {}
        self._members = {ANN}
        self._records: list[tuple[int, UserRecorded | ReplyRecorded]] = []
        self.frames: list[Frame] = []

    async def go(self) -> None:
        """Everything."""
        for _ in range(STEPS):
            step = self._random.choice((self._say, self._say, self._look, self._look, self._change, self._member))
            await step(self._random.choice(PEOPLE))

    async def _say(self, who: Identity) -> None:
        who = who if who in self._members else ANN
        classes = sorted(self._random.choice(LABELS))
        seq, record = await (self._talk.ask if self._random.random() < 0.6 else self._talk.reply)(who, classes)
        self._records.append((seq, record))
        for viewer, granted in self._open.items():
            self._deliver(viewer, granted, record, seq, is_live=True)

    async def _look(self, who: Identity) -> None:
        """A stream opens, or is looked at again; one that opens begins with what was said."""
        if who not in self._members:
            return
        looked = await self._talk.looked()
        classes = {label for _, record in self._records for label in record.classes}
        granted = await self._talk.clearances.grant(Viewer(who), looked, classes if self._talk.policy.is_asked else ())
        if who not in self._open:
            version = (await self._talk.looked()).version
            for _, record in self._records:
                self._deliver(who, granted, record, version, is_live=False)
        self._open[who] = granted

    async def _change(self, who: Identity) -> None:
        self._talk.policy.granted[who.actor] = self._random.choice(LABELS)

    async def _member(self, who: Identity) -> None:
        if who == ANN:
            return
        if who in self._members:
            await self._talk.remove(who)
            self._members.discard(who)
            self._open.pop(who, None)
        else:
            await self._talk.add(who)
            self._members.add(who)

    def _deliver(
        self, viewer: Identity, granted: Granted, record: UserRecorded | ReplyRecorded, version: int, *, is_live: bool
    ) -> None:
        if granted.knows(record.classes):
            got = sight("shared", record, viewer, granted.cleared([record.classes]))
            self.frames.append(Frame(viewer, record, version, got, is_live))

    async def check(self) -> None:
        """Every frame is what its viewer could see when the log stood there; a live one also as of its cursor."""
        talk, past = self._talk, self._talk.past
        seqs = [seq for seq, _ in self._records]
        for frame in self.frames:
            point = await talk.point(frame.viewer)
            then = await standing_at(past, point, frame.version)
            assert sight_then("shared", frame.record, frame.viewer, then) == frame.sight, frame
            if frame.is_live:
                place = seqs.index(frame.version)
                end = (await talk.looked()).version + 1
                following = seqs[place + 1] if place + 1 < len(seqs) else end
                then = await standing_while(past, point, frame.version, following)
                assert sight_then("shared", frame.record, frame.viewer, then) == frame.sight, frame


async def histories(here: Desk, seeds: range) -> list[Frame]:
    """All frames of histories that held."""
    found: list[Frame] = []
    for seed in seeds:
        talk = await SharedTalk(here, Policy(is_asked=seed % 4 == 3), seed, A_MINUTE).start()
        history = History(talk, seed)
        await history.go()
        await history.check()
        found += history.frames
    return found


def run(database: Any, seeds: range) -> None:
    async def go() -> None:
        async with desk(database.url()) as here:
            frames = await histories(here, seeds)
            assert {(frame.sight, frame.is_live) for frame in frames} == {
                (sight, is_live) for sight in ("own", "cleared", "restricted") for is_live in (True, False)
            }, "every kind of frame came"

    asyncio.run(go())


def test_the_past_is_what_was_streamed(database: Any) -> None:
    run(database, range(HISTORIES))


@pytest.mark.soak
def test_the_past_is_what_was_streamed_a_thousand_times(database: Any) -> None:
    run(database, range(HISTORIES, HISTORIES + SOAK_HISTORIES))
