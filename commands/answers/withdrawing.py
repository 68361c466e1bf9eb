"""An answer whose question was deleted on its platform: what of it waits goes out no more.

What is planned at the very moment is not among what is cancelled here: it meets the permit at its send, which finds the
question deleted.
"""

from __future__ import annotations

from ...domain.principals import SERVER
from ..deliveries.noting import Notes
from ..deliveries.ports import Hashes
from ..ports import EventStore
from .kind import answer_id_of, load

REDACTION = "redaction"
"""Reason of what is cancelled: as that of what the permit finds deleted or erased at its send."""


class Withdrawing:
    """Answers of commands/channels/deleting.py. One per process."""

    def __init__(self, store: EventStore, hashes: Hashes, notes: Notes) -> None:
        self._store = store
        self._hashes = hashes
        self._notes = notes

    async def withdraw(self, tenant: str, conversation_id: str, envelope: str) -> int:
        """See Answers."""
        state, _ = await load(self._store, answer_id_of(self._hashes, tenant, conversation_id, envelope))
        if state.resolved is None:
            return 0
        return await self._notes.cancel([each.delivery_id for each in state.resolved.intended], REDACTION, SERVER)
