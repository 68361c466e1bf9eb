"""The stream of a turn's steps as its runner writes it, and as the next runner finds it after a crash.

A recorded step is never taken again. What is not verifiably ours is not adopted (conversations.md, Turns and barge-in).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ...domain.conversations.events import Unsigned
from ...domain.conversations.identity import Identity
from ...domain.conversations.turn_events import (
    TURN_EVENTS,
    AttemptStarted,
    ModelAnswered,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnEvent,
    WantedCall,
)
from ...domain.decisions import Decision, NewEvent
from ...domain.errors import LeaseLost, Unavailable
from ...domain.events import Opaque
from ...domain.principals import TURN_RUNNER
from ..ports import Append, Creation, EventStore, Outcome
from ..streams import PAGE
from .encoding import Scribe
from .held import Held
from .kind import TURN, Verifier, turn_stream_of

RETRY_S = 0.25
"""Between two tries to append a step while the database is away."""


class NotOurs(Exception):
    """The stream of a turn holds what this server did not write, or lacks what it wrote. The message is for the log."""


class Made(Struct, frozen=True):
    """One model call that was recorded, with what became of the calls that it wanted, by call id."""

    answer: ModelAnswered
    ended: Mapping[str, ToolEnded]


class Progress(Struct, frozen=True):
    """How far a turn came. started: how often each call without a result was started, by call id."""

    attempts: int = 0
    made: tuple[Made, ...] = ()
    started: Mapping[str, int] = {}
    ended: TurnEnded | None = None
    version: int = 0

    @property
    def text(self) -> str:
        """What the model said so far."""
        return joined(made.answer.text for made in self.made)

    @property
    def usage(self) -> dict[str, int]:
        """Tokens of all recorded calls, by kind."""
        total: dict[str, int] = {}
        for made in self.made:
            for kind, tokens in made.answer.usage.items():
                total[kind] = total.get(kind, 0) + tokens
        return total

    @property
    def classes(self) -> tuple[str, ...]:
        """Of the tools that were called and have a result."""
        return tuple(sorted({label for made in self.made for each in made.ended.values() for label in each.classes}))

    @property
    def is_denied(self) -> bool:
        """Whether the asker may not use a tool that was called."""
        return any(each.status == "denied" for made in self.made for each in made.ended.values())

    def waiting(self) -> tuple[WantedCall, ...]:
        """Calls of the last answer that have no result."""
        if not self.made:
            return ()
        last = self.made[-1]
        return tuple(call for call in last.answer.calls if call.call_id not in last.ended)


def joined(texts: Iterable[str]) -> str:
    """The texts of a turn's answers as one reply, set apart: no secret comes together out of two of them."""
    reply = ""
    for text in texts:
        reply += separator(reply, text) + text
    return reply


def separator(before: str, text: str) -> str:
    """What stands between what was said and what is said next."""
    return "\n\n" if before and text else ""


class Steps:
    """The stream of one turn, written under the conversation's lease."""

    def __init__(self, store: EventStore, scribe: Scribe, held: Held, execution: str, retention_days: int) -> None:
        self.stream = turn_stream_of(execution)
        self.progress = Progress()
        self._verifier = Verifier(scribe.keyring, self.stream, TURN_EVENTS)
        self._store = store
        self._scribe = scribe
        self._held = held
        self._retention_days = retention_days

    async def read(self, turn: int, ord_: int, asker: Identity) -> Progress:
        """What is recorded of that turn of the conversation's, whose question has that ord and who asked it.

        Raises NotOurs, Unavailable.
        """
        head = await self._store.head(self.stream)
        progress = Progress()
        while head is not None and progress.version < head.version:
            for stored in await self._store.read_for_fold(head.id, progress.version, PAGE):
                event = self._verifier.decode(stored)
                if isinstance(event, Opaque | Unsigned):
                    raise NotOurs(f"event {stored.seq} of the turn is not ours")
                if isinstance(event, AttemptStarted) and not self._is_of(event, turn, ord_, asker):
                    raise NotOurs(f"attempt {event.attempt} is of another turn")
                progress = _further(progress, event)
        if head is not None and head.sealed and progress.ended is None:
            raise NotOurs("the turn was sealed before its end")
        self.progress = progress
        return progress

    def _is_of(self, began: AttemptStarted, turn: int, ord_: int, asker: Identity) -> bool:
        """Whether an attempt is one at that turn. One without an asker is of when only owners had turns."""
        asked_by = began.asker if began.asker is not UNSET or self._held.state.mode == "shared" else asker
        return (began.conversation_id, began.turn, began.ord, asked_by) == (
            self._held.conversation_id,
            turn,
            ord_,
            asker,
        )

    async def record(self, event: TurnEvent, redactions: Sequence[str] = (), *, seal: bool = False) -> TurnEvent:
        """Append one step, tried again for as long as the lease is surely ours; the event as it was stored.

        Raises LeaseLost, NotOurs where somebody else wrote, Unavailable.
        """
        before = self.progress
        decision = Decision((NewEvent(event, TURN_RUNNER, origin="broker"),), seal=seal)
        decided = self._scribe.encode(self.stream, before.version, decision, redactions)
        creation = None if before.version else Creation(TURN, self._held.tenant, self._retention_days)
        item = Append(
            self.stream, before.version, decided.rows, create=creation, seal=seal, fence=self._held.fence_of_turn
        )
        outcome = await self._append(item)
        if outcome.kind == "fenced":
            raise LeaseLost("Another process runs this conversation now.")
        if outcome.kind != "appended":
            raise NotOurs(f"the turn's stream answered {outcome.kind} at {outcome.seq}")
        stored: TurnEvent = decided.events[0][1]
        self.progress = _further(before, stored)
        return stored

    async def _append(self, item: Append) -> Outcome:
        loop = asyncio.get_running_loop()
        is_again = False
        while True:
            asked_at = loop.time()
            try:
                outcome = (await self._store.append([item]))[0]
            except Unavailable:
                if loop.time() + RETRY_S >= self._held.sure_until:
                    raise
                is_again = True
                await asyncio.sleep(RETRY_S)
                continue
            if outcome.kind == "appended":
                self._held.renewed(asked_at)
            elif is_again and outcome.seq == item.expected + 1:
                # Nobody else writes here under this lease: it was the first try that landed.
                return Outcome("appended", outcome.seq, None, outcome.chain, None, outcome.bytes, None, None)
            return outcome


def _further(progress: Progress, event: TurnEvent) -> Progress:
    """One step further. Raises NotOurs where it does not follow."""
    moved = replace(progress, version=progress.version + 1)
    match event:
        case AttemptStarted():
            return replace(moved, attempts=event.attempt)
        case ModelAnswered():
            return replace(moved, made=(*progress.made, Made(event, {})))
        case ToolStarted():
            return replace(moved, started={**progress.started, event.call_id: event.number})
        case ToolEnded():
            if not progress.made:
                raise NotOurs("a tool call ended that nobody asked for")
            last = progress.made[-1]
            made = (*progress.made[:-1], Made(last.answer, {**last.ended, event.call_id: event}))
            started = {call: number for call, number in progress.started.items() if call != event.call_id}
            return replace(moved, made=made, started=started)
        case TurnEnded():
            return replace(moved, ended=event)
        case _:
            assert_never(event)
