"""What one viewer sees of a conversation's records, as the one function of domain/conversations/visibility.py says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from ..commands.conversations.clearances import Clearances, Granted
from ..commands.conversations.handlers import Looked
from ..commands.conversations.ports import Viewer
from ..domain.conversations.events import Mode
from ..domain.conversations.visibility import Sight, sight
from .conversation_entries import Record

Look = Callable[[], Awaitable[Looked]]
"""Another look at the conversation, for the same caller."""


class Sees(Protocol):
    """Somebody's sight of records."""

    async def of(self, records: Sequence[Record]) -> list[Sight]:
        """What they see of each."""
        ...


class Sights:
    """Of one viewer, who takes part in the conversation; what they are cleared for is recorded before they see."""

    def __init__(
        self,
        clearances: Clearances,
        looked: Looked,
        granted: Granted,
        viewer: Viewer,
        look: Callable[[], Awaitable[Looked]],
    ) -> None:
        self._clearances = clearances
        self._mode: Mode = looked.conversation.mode
        self._granted = granted
        self._viewer = viewer
        self._look = look

    async def renew(self, looked: Looked, claims: Mapping[str, Sequence[str]]) -> None:
        """Look at them again: with the claims of a token that was verified just now. Raises as Clearances.grant."""
        self._viewer = Viewer(looked.who, claims)
        self._granted = await self._clearances.grant(self._viewer, looked, self._granted.asked or ())

    async def of(self, records: Sequence[Record]) -> list[Sight]:
        """See Sees. A callable is asked about all of them each time, and what changed is recorded.

        Raises as Clearances.grant, and NotVisible for who takes part no more, where it is asked.
        """
        mode, who = self._mode, self._viewer.identity
        found: list[Sight] = [sight(mode, record.event, who, {}) for record in records]
        restricted = [record.event for record, seen in zip(records, found, strict=True) if seen == "restricted"]
        classes = frozenset(label for event in restricted for label in event.classes)
        if not classes:
            return found
        granted = self._granted
        if not granted.knows(classes) or not await self._clearances.holds(self._viewer, granted, classes):
            asked = classes | (self._granted.asked or frozenset())
            self._granted = await self._clearances.grant(self._viewer, await self._look(), asked)
        cleared = self._granted.cleared({event.classes for event in restricted})
        return [
            sight(mode, record.event, who, cleared) if seen == "restricted" else seen
            for record, seen in zip(records, found, strict=True)
        ]


async def sights_of(clearances: Clearances, looked: Looked, claims: Mapping[str, Sequence[str]], look: Look) -> Sights:
    """Those of who was looked at just now, by the claims of their token. Raises as Clearances.grant."""
    viewer = Viewer(looked.who, claims)
    return Sights(clearances, looked, await clearances.grant(viewer, looked, ()), viewer, look)
