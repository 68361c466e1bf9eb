"""What one viewer sees of a conversation's records, as the one function of domain/conversations/visibility.py says."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..commands.conversations.ports import Clearance, Viewer
from ..domain.conversations.events import Mode
from ..domain.conversations.visibility import Sight, sight
from .conversation_entries import Record


class Sights(msgspec.Struct, frozen=True):
    """Of one viewer, who takes part in the conversation."""

    clearance: Clearance
    viewer: Viewer
    mode: Mode

    async def of(self, records: Sequence[Record]) -> list[Sight]:
        """What they see of each now. The policy is asked once for all of them, about the classes that decide it."""
        mode, who = self.mode, self.viewer.identity
        found: list[Sight] = [sight(mode, record.event, who, {}) for record in records]
        sets = {
            frozenset(record.event.classes)
            for record, seen in zip(records, found, strict=True)
            if seen == "restricted" and record.event.classes
        }
        if not sets:
            return found
        cleared = await self.clearance.resolve(self.viewer, sets)
        return [sight(mode, record.event, who, cleared) for record in records]
