"""A conversation whose lease this process has: every decision on it carries the lease (rules.md, law 25)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from ...domain.conversations.state import Conversation
from ...domain.decisions import Decision
from ...domain.events import Recorded
from ..dispatcher import Dispatcher
from ..mailbox import Decided
from ..ports import Fence, Head
from .encoding import Scribe
from .kind import conversation_kind, stream_of
from .ports import LEASE_TTL_S, RUNNER_LEASE

Decide = Callable[[Conversation, Head], Decision]

SURE_MARGIN_S = 1.0
"""A lease is not relied upon this long before it may lapse."""


class Held:
    """One take of a lease. state, head: as last seen or decided by this runner. epoch: of the lease."""

    def __init__(self, dispatcher: Dispatcher, scribe: Scribe, conversation_id: str, holder: str, epoch: int) -> None:
        self.conversation_id = conversation_id
        self.stream = stream_of(conversation_id)
        self.epoch = epoch
        self.holder = holder
        self.kind = conversation_kind(scribe.keyring, conversation_id)
        self.state = self.kind.initial
        self.head: Head | None = None
        self._dispatcher = dispatcher
        self._scribe = scribe
        self._renewed_at = asyncio.get_running_loop().time()

    @property
    def stream_id(self) -> int:
        """Of the conversation's stream; known once it was looked at."""
        assert self.head is not None  # noqa: S101 - look() comes first
        return self.head.id

    @property
    def version(self) -> int:
        """Of the conversation's stream, as last seen."""
        return 0 if self.head is None else self.head.version

    @property
    def tenant(self) -> str:
        """Of the conversation's stream."""
        assert self.head is not None  # noqa: S101 - look() comes first
        return self.head.tenant

    @property
    def fence(self) -> Fence:
        """What an append to the conversation's own stream carries."""
        return Fence(RUNNER_LEASE, self.holder, self.epoch)

    @property
    def fence_of_turn(self) -> Fence:
        """What an append to a turn's stream carries."""
        return Fence(RUNNER_LEASE, self.holder, self.epoch, self.stream)

    @property
    def is_sure(self) -> bool:
        """Whether nobody else can have the lease: a process that was stopped for a while does not know better."""
        return asyncio.get_running_loop().time() < self.sure_until

    @property
    def sure_until(self) -> float:
        """Loop time until which nobody else can have the lease."""
        return self._renewed_at + LEASE_TTL_S - SURE_MARGIN_S

    @property
    def renewed_at(self) -> float:
        """Loop time before the last append that the lease let through."""
        return self._renewed_at

    def renewed(self, asked_at: float) -> None:
        """An append that was begun then carried the lease."""
        self._renewed_at = max(self._renewed_at, asked_at)

    async def look(self) -> Conversation:
        """The conversation as it is now. Raises NotVisible where it is gone, Unavailable, TimedOut."""

        last: list[tuple[Conversation, Head]] = []

        def decide(state: Conversation, head: Head) -> Decided:
            last[:] = [(state, head)]  # a look at what is not stored yet is repeated
            return Decided((), (), False, {})

        await self._dispatcher.run(self.kind, self.stream, _anybody, decide)
        self._saw(*last[0])
        return self.state

    async def decide(self, decision: Decide, redactions: Sequence[str] = ()) -> bool:
        """Append what the newest state leads to; whether there was anything. `state` is what it came to.

        Raises LeaseLost; Unavailable and TimedOut, after which it may have landed all the same.
        """
        last: list[tuple[Conversation, Head, Decided]] = []

        def decide(state: Conversation, head: Head) -> Decided:
            made = self._scribe.encode(self.stream, head.version, decision(state, head), redactions)
            last[:] = [(state, head, made)]
            return made

        asked_at = asyncio.get_running_loop().time()
        await self._dispatcher.run(self.kind, self.stream, _anybody, decide, fence=self.fence)
        self.renewed(asked_at)
        state, head, made = last[0]
        for seq, (actor, event) in enumerate(made.events, head.version + 1):
            state = self.kind.evolve(state, Recorded(seq, actor, None, None, event))
        self._saw(state, msgspec.structs.replace(head, version=head.version + len(made.events)))
        return bool(made.events)

    async def renew(self) -> None:
        """Keep the lease, and see what others appended. Raises as decide."""

        def nothing(state: Conversation, head: Head) -> Decision:  # noqa: ARG001 - the shape of Decide
            return Decision()

        await self.decide(nothing)

    def _saw(self, state: Conversation, head: Head) -> None:
        """Two who look at once may hear in either order."""
        if self.head is None or head.version >= self.head.version:
            self.state, self.head = state, head


def _anybody(state: Conversation, head: Head) -> None:
    """The runner asks nobody: the lease is its right."""
