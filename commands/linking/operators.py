"""What operators see and end of links, codes that wait and handles of background turns: by id, of their tenant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import UNSET, Struct, UnsetType

from ...domain.errors import Invalid, InvalidCursor, NotVisible
from ...domain.principals import Caller
from ...domain.times import stamp
from ..beside import Admit
from ..deliveries.operators import check_operator, check_reason
from ..dispatcher import Dispatcher
from ..mailbox import Answer
from ..ports import Key
from .callers import CallerLinks
from .handling import Linking

PAGE = 100
"""Most rows of one page."""

MAX_CURSOR_CHARS = 256


class EndByOperator(Struct, frozen=True, forbid_unknown_fields=True):
    """Ends it. reason: for whoever reads the server's log; the event says that an operator did it."""

    reason: str


class LinkRow(Struct, frozen=True, rename="camel"):
    """A linked end. account, native: keyed hashes. linked_at: or when it was linked anew."""

    id: str
    channel: str
    native: str
    account: str
    linked_at: str


class ChallengeRow(Struct, frozen=True, rename="camel"):
    """A link that has begun and not ended. account: keyed hash. Never its code."""

    id: str
    account: str
    expires_at: str


class ContinuationRow(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A handle of a background turn. status: absent while it has no end. Never its token."""

    id: str
    conversation_id: str
    begun_at: str
    expires_at: str
    turn: int | UnsetType = UNSET
    status: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class Rows(Struct, frozen=True):
    """A page. cursor: of the next one, None at the end."""

    rows: list[Any]
    cursor: str | None


class OperatorTables(Protocol):
    """The rows beside the log, for operators. Every method raises Unavailable."""

    async def links(
        self, tenant: str, after: tuple[str, str], limit: int
    ) -> Sequence[tuple[str, str, str, str, datetime]]:
        """Link id, channel, native, holder and time of linked ends, by channel and native from behind a place."""
        ...

    async def challenges(self, tenant: str, after: str, limit: int) -> Sequence[tuple[str, str, datetime]]:
        """Id, account and expiry of links that have begun, by id from behind one."""
        ...

    async def continuations(self, tenant: str, after: str, limit: int) -> Sequence[tuple[Any, ...]]:
        """Id, conversation, begin, expiry, turn, status and reason of handles, by id from behind one."""
        ...

    async def end_continuation(self, tenant: str, id_: str) -> tuple[int, str] | None:
        """Cancel a handle; where its conversation's stream stands. None where there is no such handle."""
        ...


class LinkOperators:
    """Handlers. Who is not in the group gets Forbidden; what is of another tenant is not there."""

    def __init__(
        self, tables: OperatorTables, linking: Linking, callers: CallerLinks, dispatcher: Dispatcher, admit: Admit
    ) -> None:
        self._tables = tables
        self._linking = linking
        self._callers = callers
        self._dispatcher = dispatcher
        self._admit = admit

    async def links(self, caller: Caller, limit: int, cursor: str | None) -> Rows:
        """Linked ends. Raises Forbidden, Invalid, InvalidCursor."""
        _check(caller, limit, cursor)
        channel, dot, native = (cursor or ".").partition(".")
        if not dot:
            raise InvalidCursor("The cursor is none of this list; begin without one.")
        found = await self._tables.links(caller.tenant, (channel, native), limit + 1)
        rows = [LinkRow(id_, on, native, holder, stamp(at)) for id_, on, native, holder, at in found[:limit]]
        return Rows(rows, f"{rows[-1].channel}.{rows[-1].native}" if len(found) > limit else None)

    async def challenges(self, caller: Caller, limit: int, cursor: str | None) -> Rows:
        """Links that wait for their confirmation. Raises as links."""
        _check(caller, limit, cursor)
        found = await self._tables.challenges(caller.tenant, cursor or "", limit + 1)
        rows = [ChallengeRow(id_, account, stamp(at)) for id_, account, at in found[:limit]]
        return Rows(rows, rows[-1].id if len(found) > limit else None)

    async def continuations(self, caller: Caller, limit: int, cursor: str | None) -> Rows:
        """Handles of background turns. Raises as links."""
        _check(caller, limit, cursor)
        found = await self._tables.continuations(caller.tenant, cursor or "", limit + 1)
        rows = [
            ContinuationRow(
                id_,
                conversation,
                stamp(begun),
                stamp(expires),
                UNSET if turn is None else turn,
                UNSET if status is None else status,
                reason or UNSET,
            )
            for id_, conversation, begun, expires, turn, status, reason in found[:limit]
        ]
        return Rows(rows, rows[-1].id if len(found) > limit else None)

    async def unlink(self, caller: Caller, link_id: str, command: EndByOperator, key: str | None) -> Answer:
        """200 `{"seq", "cancelled"}`: unlinked, with what goes with it. Raises Forbidden, NotVisible, KeyReused."""
        own, answer = await self._keyed(caller, "unlink_for", f"link:{link_id}", command, key)
        if answer is None:
            answer = (await self._linking.unlink_for(caller.tenant, link_id, caller.principal, own)).answer
        return await self._callers.ended(caller.tenant, answer)

    async def void(self, caller: Caller, link_id: str, command: EndByOperator, key: str | None) -> Answer:
        """200 `{"seq"}`: its code works no more. Raises Forbidden, NotVisible, KeyReused."""
        own, answer = await self._keyed(caller, "void_challenge", f"link:{link_id}", command, key)
        return answer or await self._linking.void(caller.tenant, link_id, caller.principal, own)

    async def end_continuation(self, caller: Caller, id_: str, command: EndByOperator) -> Answer:
        """200 `{"seq"}`: the handle says that it was cancelled; its turn, which the conversation has, goes on. One that
        has ended stays as it is. Raises Forbidden, NotVisible."""
        await self._keyed(caller, "end_continuation", id_, command, None)
        at = await self._tables.end_continuation(caller.tenant, id_)
        if at is None:
            raise NotVisible
        return Answer(200, {"seq": at[0], "chain": at[1]}, is_replay=False, seq=at[0])

    async def _keyed(
        self, caller: Caller, operation: str, scope: str, command: EndByOperator, key: str | None
    ) -> tuple[Key | None, Answer | None]:
        """The key to store the answer under, and the answer that is there already."""
        check_operator(caller)
        own = self._dispatcher.key(caller, operation, scope, key, command, 200)
        stored = await self._dispatcher.replayed(own)
        if stored is None:
            self._admit(caller)()
            check_reason(command.reason)
        return own, stored


def _check(caller: Caller, limit: int, cursor: str | None) -> None:
    check_operator(caller)
    if not 1 <= limit <= PAGE:
        raise Invalid.at("$.limit", f"must be 1 to {PAGE}")
    if cursor is not None and not (0 < len(cursor) <= MAX_CURSOR_CHARS and cursor.isprintable()):
        raise InvalidCursor("The cursor is none of this list; begin without one.")
