"""What goes with a link: deliveries that wait for its end, and background turns that were begun from it."""

from __future__ import annotations

from ...domain.linking.events import LinkedEnd
from ...domain.principals import SERVER
from ..deliveries.noting import Notes
from .ports import Continuations, Recipients

BATCH = 100
MAX_CANCELLED = 10_000
"""Of one call. What is left of more meets the permit at its send, which finds the end with another account."""

UNLINK = "unlink"


class Unlinked:
    """Unlinking of ports.py. One per process.

    What is planned at the very moment is not among what is cancelled here: it meets the permit at its send, which finds
    the end with another account.
    """

    def __init__(self, recipients: Recipients, notes: Notes, continuations: Continuations) -> None:
        self._recipients = recipients
        self._notes = notes
        self._continuations = continuations

    async def unlinked(self, tenant: str, account: str, end: LinkedEnd) -> tuple[int, int]:
        """See Unlinking."""
        cancelled = seen = 0
        while seen < MAX_CANCELLED and (ids := await self._recipients.waiting(tenant, account, end, BATCH)):
            done = await self._notes.cancel(ids, UNLINK, SERVER)
            cancelled, seen = cancelled + done, seen + len(ids)
            if done == 0 or len(ids) < BATCH:
                break
        return cancelled, await self._continuations.end_all(tenant, account, end)
