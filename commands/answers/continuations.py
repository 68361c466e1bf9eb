"""Handles of background turns: begun before the turn is sent, found by a token that is stored nowhere.

A handle has exactly one end, whichever way it is seen. Three things can be it, and each is recorded once in any case:
the record of the conversation's log that ends the turn (a reply, or the rejection of the message), the event of the
account that unlinks the end it was begun from, and time, which is over without anybody's decision. So no event of its
own says it again; the row remembers which of the three was first, in the record's own transaction or in an update that
changes nothing behind another end, and what the log says later changes it no more.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from ...domain.conversations.identity import identity_of
from ...domain.errors import NotVisible, TooManyPending
from ...domain.ids import long_id
from ...domain.linking.events import LinkedEnd
from ...domain.principals import Caller
from ...domain.times import stamp
from ..conversations.access import Access
from .ports import UNLINKED, Continuation, ContinuationRows, KeptContinuation, NewContinuation, Origin, TokenMaker

URL = "/v1/continuations/"
"""What the path of every handle begins with."""

MAX_OPEN = 1000
"""Handles of one identity without an end."""

OPEN_S = 7 * 86_400
"""Longest time of a handle whose turn has no end."""

FORGET_BATCH = 1000


class KeyedContinuations:
    """Continuations of ports.py. ttl_s: how long the outcome is told after the end. entropy: 130 random bits."""

    def __init__(
        self, rows: ContinuationRows, tokens: TokenMaker, access: Access, ttl_s: int, entropy: Callable[[], int]
    ) -> None:
        self._rows = rows
        self._tokens = tokens
        self._access = access
        self._ttl_s = ttl_s
        self._entropy = entropy

    async def begin(self, caller: Caller, conversation_id: str, envelope_id: str, origin: Origin) -> Continuation:
        """See Continuations.begin."""
        seat, who = await self._access.seat(caller, conversation_id), identity_of(caller)
        token = self._tokens.token(caller.tenant, who, conversation_id, envelope_id)
        new = NewContinuation(
            long_id(self._entropy()),
            caller.tenant,
            self._tokens.handle(caller.tenant, token),
            who,
            seat.stream_id,
            conversation_id,
            envelope_id,
            origin.account,
            origin.end,
            OPEN_S,
            self._ttl_s,
        )
        kept = await self._rows.put(new, MAX_OPEN)
        if kept is None:
            raise TooManyPending(f"{MAX_OPEN} of your background turns have not ended; wait for some, or cancel them.")
        expires_at, made = kept
        return _shown(token, expires_at, made)

    async def again(self, caller: Caller, conversation_id: str, envelope_id: str) -> Continuation | None:
        """See Continuations.again. Nobody would end one that is made now: what is recorded of the turn may be past."""
        token = self._tokens.token(caller.tenant, identity_of(caller), conversation_id, envelope_id)
        expires_at = await self._rows.expires(caller.tenant, self._tokens.handle(caller.tenant, token))
        return None if expires_at is None else _shown(token, expires_at)

    async def withdraw(self, caller: Caller, begun: Continuation) -> None:
        """See Continuations.withdraw."""
        if begun.made:
            await self._rows.withdraw(caller.tenant, self._tokens.handle(caller.tenant, begun.token), begun.made)

    async def end_all(self, tenant: str, account: str, end: LinkedEnd) -> int:
        """See Continuations.end_all."""
        return await self._rows.end_all(tenant, account, end, UNLINKED)

    async def find(self, caller: Caller, token: str) -> KeptContinuation:
        """The caller's own, with its end where its time is over. Raises NotVisible for any other, and for none."""
        handle, who = self._tokens.handle(caller.tenant, token), identity_of(caller)
        found = await self._rows.find(caller.tenant, handle, who)
        if found is not None and found.is_due:
            await self._rows.expire(caller.tenant, handle)
            found = await self._rows.find(caller.tenant, handle, who)
        if found is None:
            raise NotVisible
        return found


async def forget_all(rows: ContinuationRows) -> int:
    """Part of the retention job: expire what is due, delete all whose time is over; how many were deleted."""
    gone = 0
    while True:
        batch = await rows.forget(FORGET_BATCH)
        gone += batch
        if batch < FORGET_BATCH:
            return gone


def _shown(token: str, expires_at: datetime, made: str = "") -> Continuation:
    return Continuation(token, f"{URL}{token}", stamp(expires_at.astimezone(UTC)), made)
