"""Conversations with as many turns as wanted, written straight into the log, and what a turn behind them takes."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

from conversation_desk import ALICE, Desk, desk
from minutebook.commands.conversations.kind import conversation_kind, stream_of
from minutebook.commands.ports import Append, EventRow
from minutebook.domain.conversations.commands import SendTurn
from minutebook.domain.conversations.decide import Received, send_turn
from minutebook.domain.conversations.fit import Fitted
from minutebook.domain.conversations.identity import identity_of
from minutebook.domain.conversations.judge import Good
from minutebook.domain.conversations.state import Conversation
from minutebook.domain.conversations.turns import Outcome, Shown, accept, end_turn, is_rotation_due, rotate
from minutebook.domain.decisions import Decision
from minutebook.domain.events import Recorded
from ulid_transform import ulid_now

BATCH = 400
"""Events of one append."""

TOKENS = 30
"""Of a turn."""


class Grown:
    """A conversation with a history."""

    def __init__(self, here: Desk, conversation: str) -> None:
        self._here = here
        self._conversation = conversation
        self._number = 0

    async def turn(self, here: Desk | None = None) -> float:
        """Milliseconds from sending a message until nothing is left to do."""
        here = self._here if here is None else here
        self._number += 1
        began = time.perf_counter()
        await here.send(self._conversation, f"and number {self._number}?")
        await here.done()
        return (time.perf_counter() - began) * 1000

    async def cold(self) -> float:
        """The same in a process that has never seen it."""
        return await self.turn(Desk(self._here.pool, self._here.appender, self._here.agents))


@contextlib.asynccontextmanager
async def grown(url: str, turns: int) -> AsyncGenerator[Grown]:
    """A conversation of so many turns."""
    async with desk(url) as here:
        conversation = await here.start()
        await _History(here, conversation).write(turns)
        yield Grown(here, conversation)


class _History:
    def __init__(self, here: Desk, conversation: str) -> None:
        self._here = here
        self._stream = stream_of(conversation)
        self._kind = conversation_kind(here.scribe.keyring, conversation)
        self._state = Conversation()
        self._rows: list[EventRow] = []
        self._version = 1

    async def write(self, turns: int) -> None:
        """Question, context and reply of each turn, and the rotations between them."""
        head = await self._here.store.head(self._stream)
        assert head is not None
        for stored in await self._here.store.read_for_fold(head.id, 0, 1):
            self._state = self._kind.fold(self._state, stored)
        for number in range(turns):
            if is_rotation_due(self._state):
                self._add(rotate(self._state))
            received = Received(identity_of(ALICE), ALICE.principal, datetime.now(UTC), {}, ulid_now())
            sent = send_turn(self._state, SendTurn(f"question {number} of this conversation"), received)
            self._add(sent)
            envelope = sent.events[0].event
            good = Good(self._version, envelope)  # pyright: ignore[reportArgumentType]
            self._add(accept(self._state, good, self._shown()))
            outcome = Outcome("completed", f"answer {number}: as was said before", usage={"input": 10, "output": 10})
            self._add(end_turn(self._state, self._state.turns, outcome))
            if len(self._rows) >= BATCH:
                await self._append()
        await self._append()

    def _shown(self) -> Shown:
        window = self._state.window[-63:]
        counted = {str(turn.user_ord): TOKENS for turn in window if not isinstance(turn.tokens, int)}
        kept = tuple(turn.user_ord for turn in window)
        fitted = Fitted(kept, (TOKENS,) * len(kept), (), counted, 100, {"prompt": 100})
        return Shown(fitted, 4096, 0, "p", "s", "t", "scripted")

    def _add(self, decision: Decision) -> None:
        decided = self._here.scribe.encode(self._stream, self._version, decision)
        for seq, (actor, event) in enumerate(decided.events, self._version + 1):
            self._state = self._kind.evolve(self._state, Recorded(seq, actor, None, None, event))
        self._version += len(decided.rows)
        self._rows += decided.rows

    async def _append(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            expected = self._version - len(rows)
            outcome = (await self._here.store.append([Append(self._stream, expected, rows)]))[0]
            assert outcome.kind == "appended", outcome
