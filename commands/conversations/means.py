"""What the runner of conversations works with, made once per process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from msgspec import Struct, field

from ..dispatcher import Dispatcher
from ..ports import EventStore, Leases
from .encoding import Scribe
from .model_call import Limits
from .ports import Agents, Clearance, ConversationLog, DeltaSink, Memories, SeenBy, Tokens, Work
from .reply import TextStream
from .verified import Verified


class Notes(Protocol):
    """What the runner tells of itself, in numbers. Nothing of it names a conversation or a person."""

    def attempt(self) -> None:
        """A turn is taken up."""
        ...

    def first_delta(self, seconds: float) -> None:
        """From the moment that the runner took the message up to the first words for its viewers."""
        ...

    def turn(self, status: str, seconds: float) -> None:
        """A turn has its end, so long after this runner took it up."""
        ...


class RunnerMeans(Struct, frozen=True):
    """holder: names this process in leases; another one at every start.

    redactor: a redactor of one more text that is streamed. new_id draws a ULID. now: the server's clock.
    retention_days: by tenant. point: awaited at named places between the steps, where tests end the process.
    """

    holder: str
    dispatcher: Dispatcher
    store: EventStore
    leases: Leases
    scribe: Scribe
    log: ConversationLog
    work: Work
    tokens: Tokens
    seen_by: SeenBy
    agents: Agents
    deltas: DeltaSink
    redactor: Callable[[], TextStream]
    new_id: Callable[[], str]
    now: Callable[[], datetime]
    retention_days: Callable[[str], int]
    notes: Notes
    clearance: Clearance
    memories: Memories
    limits: Limits = Limits()
    point: Callable[[str], Awaitable[None]] | None = None
    verified: Verified = field(default_factory=Verified)

    async def at(self, name: str) -> None:
        """A place between two steps."""
        if self.point is not None:
            await self.point(name)
