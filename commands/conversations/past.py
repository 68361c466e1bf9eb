"""Reads of what was, as a port, and what a viewer's changes in the log say once they are verified."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from ...domain.conversations.events import ClearanceRecorded, ParticipantAdded, ParticipantRemoved
from ...domain.conversations.identity import Identity
from ...domain.conversations.past import Change, Standing, first_seen, standing
from ...domain.conversations.state import Conversation
from .kind import Verifier
from .ports import At

NEWEST = 8
"""Events of one person and kind that a look-up brings: more than one only where somebody without the key wrote some."""

MAX_CHANGES = 256
"""Changes of one person between two records that are looked at; what comes behind them stays unknown."""


class Past(Protocol):
    """Looks by key into a conversation's past. Every method raises Unavailable."""

    async def newest_of(self, stream_id: int, viewer: Identity, through: int) -> list[At]:
        """The newest participant events, and the newest clearances, of a person up to a seq: NEWEST each, ascending."""
        ...

    async def changes_of(self, stream_id: int, viewer: Identity, after: int, before: int) -> list[At]:
        """Those with `after < seq < before`, ascending, at most MAX_CHANGES."""
        ...

    async def seq_at(self, stream_id: int, moment: datetime) -> int:
        """The last seq that was recorded up to that moment, by the database's clock; 0 where there is none."""
        ...

    async def record_at(self, stream_id: int, seq: int) -> At | None:
        """The newest record at or before a seq."""
        ...


class Viewpoint(Struct, frozen=True):
    """One person in one conversation. conversation: as it is now, for its owner and mode, which never change."""

    stream_id: int
    conversation: Conversation
    verifier: Verifier
    viewer: Identity

    @property
    def is_owner(self) -> bool:
        """Whether they are the one who cannot be removed."""
        return self.conversation.owner == self.viewer

    def changes(self, found: Iterable[At]) -> list[Change]:
        """Those of the events that are verifiably ours, about this person, and written by who may."""
        decoded = ((at, self.verifier.decode(at.event)) for at in found)
        return [event for at, event in decoded if self._counts(at, event)]

    def _counts(self, at: At, event: object) -> bool:
        actor = f"{at.event.actor_kind}:{at.event.actor_id}"
        if isinstance(event, ParticipantAdded | ParticipantRemoved):
            owner = self.conversation.owner
            return event.participant == self.viewer and event.by == owner and event.by.actor == actor
        return isinstance(event, ClearanceRecorded) and event.viewer == self.viewer and self.viewer.actor == actor


async def standing_at(past: Past, point: Viewpoint, seq: int) -> Standing:
    """Where a viewer stood when that event was the newest: two look-ups by key."""
    return standing(point.is_owner, point.changes(await past.newest_of(point.stream_id, point.viewer, seq)))


async def standing_while(past: Past, point: Viewpoint, record: int, following: int) -> Standing:
    """How a viewer saw the record with seq `record` while it was the newest: until the one with seq `following` came.

    See first_seen.
    """
    at_record = await standing_at(past, point, record)
    if at_record.is_settled:
        return at_record
    later: Sequence[At] = await past.changes_of(point.stream_id, point.viewer, record, following)
    return first_seen(point.is_owner, at_record, point.changes(later))
