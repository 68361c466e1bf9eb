"""Who may speak in a conversation: one point read for every request, before everything else (conversations.md)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from msgspec import UNSET, Struct

from ...domain.conversations.events import ConversationStarted, Mode, ParticipantAdded
from ...domain.conversations.identity import Identity, identity_of
from ...domain.conversations.signing import Keyring
from ...domain.errors import NotVisible
from ...domain.ids import is_conversation_id
from ...domain.principals import Caller
from ..ports import StoredEvent
from .kind import Verifier, conversation_kind, stream_of
from .ports import ConversationLog, Listed

MAX_REMEMBERED = 10_000
"""Conversations of which the owner is remembered, so that their next command costs no read."""

Mapped = Callable[[Identity], Identity | None]
"""As whom somebody who acts for another takes part in shared conversations, by the settings; None for nobody."""


class Seat(Struct, frozen=True):
    """A conversation that the caller may speak in. who: as whom they do."""

    stream_id: int
    who: Identity
    owner: Identity
    agent: str
    mode: Mode

    @property
    def is_owner(self) -> bool:
        """Whether it is theirs."""
        return self.who == self.owner


class Part(Struct, frozen=True):
    """Somebody's part in a conversation. who: as whom they take it. started: its first event."""

    who: Identity
    started: ConversationStarted


class Access:
    """One per process."""

    def __init__(self, log: ConversationLog, keyring: Keyring, mapped: Mapped) -> None:
        self._log = log
        self._keyring = keyring
        self._mapped = mapped
        self._owned_here: OrderedDict[str, Seat] = OrderedDict()

    def acting(self, caller: Caller, mode: Mode) -> Identity | None:
        """As whom a caller takes part in conversations of that mode; None for who acts for another and is not mapped
        to anybody, where it is shared."""
        identity = identity_of(caller)
        is_delegated = mode == "shared" and identity.on_behalf_of is not UNSET
        return self._mapped(identity) if is_delegated else identity

    async def seat(self, caller: Caller, conversation_id: str) -> Seat:
        """The caller's place in a conversation. Raises NotVisible, Unavailable.

        Only an owner is remembered: whether anybody else takes part is read every time, also where another process
        changed it a moment ago, and to a stranger a conversation that exists costs what one costs that does not.
        """
        known = self._owned_here.get(conversation_id)
        if known is not None and self.acting(caller, known.mode) == known.owner:
            self._owned_here.move_to_end(conversation_id)
            return known
        if not is_conversation_id(conversation_id):
            raise NotVisible
        found = await self._log.first(stream_of(conversation_id), self.acting(caller, "shared"))
        if found is None:
            raise NotVisible
        stream_id, tenant, first, newest = found
        part = self._part(caller, conversation_id, first, newest)
        if part is None or tenant != caller.tenant:
            raise NotVisible
        started = part.started
        seat = Seat(stream_id, part.who, started.owner, started.agent, started.mode)
        if seat.is_owner:
            self._remember(conversation_id, seat)
        return seat

    async def listed(self, caller: Caller, limit: int, before: str | None) -> list[tuple[Listed, Part | None]] | None:
        """A page of the conversations that the caller takes part in; without a part where that is not verifiably so.
        None where `before` is none of their list. Raises Unavailable."""
        found = await self._log.listed(identity_of(caller), self.acting(caller, "shared"), limit, before)
        if found is None:
            return None
        return [(each, self._part(caller, each.conversation_id, each.first.event, each.newest)) for each in found]

    def _part(
        self, caller: Caller, conversation_id: str, first: StoredEvent, newest: StoredEvent | None
    ) -> Part | None:
        """The caller's part, by a conversation's first event and the newest one about them."""
        verifier = conversation_kind(self._keyring, conversation_id).verifier
        started = verifier.decode(first)
        if not isinstance(started, ConversationStarted) or not _wrote(started.owner, first):
            return None
        who = self.acting(caller, started.mode)
        if who is None or not (who == started.owner or _is_participant(verifier, started, who, newest)):
            return None
        return Part(who, started)

    def _remember(self, conversation_id: str, seat: Seat) -> None:
        self._owned_here[conversation_id] = seat
        if len(self._owned_here) > MAX_REMEMBERED:
            self._owned_here.popitem(last=False)


def _wrote(owner: Identity, event: StoredEvent) -> bool:
    return owner.actor == f"{event.actor_kind}:{event.actor_id}"


def _is_participant(
    verifier: Verifier, started: ConversationStarted, who: Identity, newest: StoredEvent | None
) -> bool:
    """What the newest event about somebody's part says; as the fold reads it, but that a forged one closes the door."""
    added = None if newest is None or started.mode != "shared" else verifier.decode(newest)
    return (
        newest is not None
        and isinstance(added, ParticipantAdded)
        and added.participant == who
        and added.by == started.owner
        and _wrote(started.owner, newest)
    )
