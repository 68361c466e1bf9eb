"""What operators do with deliveries of their own tenant: list, inspect, replay, revoke, purge. Never a payload."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import structlog
from msgspec import UNSET, Struct, UnsetType

from ...domain.decisions import Decision
from ...domain.deliveries.events import AttemptEnded, AttemptStarted
from ...domain.deliveries.operate import cancel, purge, replay
from ...domain.deliveries.state import Delivery, Status, evolve
from ...domain.errors import Forbidden, Invalid, InvalidCursor, NotReplayable, NotVisible
from ...domain.events import Recorded
from ...domain.ids import is_conversation_id
from ...domain.principals import Caller
from ...domain.times import stamp
from ..beside import Admit
from ..dispatcher import Dispatcher
from ..mailbox import Answer, Decided
from ..ports import EventStore, Head
from ..signals import SILENCE, Signals
from .kind import DELIVERY_KIND, MAX_EVENTS, NewId, rows_of, stream_of
from .planning import Terms
from .ports import PAGE, Board, Filter, LaneQueue, Listed, Payloads

OPERATORS = "agents-operator"
"""The group whose members see and mend deliveries of their tenant."""

MAX_REASON_CHARS = 500

log = structlog.get_logger(__name__)


class ReplayDelivery(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Sends a dead letter again. resend_unknown: although it may have arrived."""

    reason: str
    resend_unknown: bool = False


class RevokeDelivery(Struct, frozen=True, forbid_unknown_fields=True):
    """Lets nothing of it go out any more."""

    reason: str


class PurgeDelivery(Struct, frozen=True, forbid_unknown_fields=True):
    """Erases its payload for good; what has not ended is revoked."""

    reason: str


class DeliveryView(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A delivery as operators see it (http.md)."""

    id: str
    channel: str
    destination: str
    state: str
    attempts: int
    expires_at: str
    correlation_id: str
    codec: str
    version: int
    run_id: str | UnsetType = UNSET
    conversation_id: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    next_attempt_at: str | UnsetType = UNSET


class AttemptView(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One attempt, with its end as it was said last."""

    n: int
    part: int
    key: str
    outcome: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    next_attempt_at: str | UnsetType = UNSET
    retry_after_s: float | UnsetType = UNSET


class DeliveryPage(Struct, frozen=True):
    """Newest first. cursor: of the next page, None at the end."""

    deliveries: list[DeliveryView]
    cursor: str | None


class Operators:
    """Handlers. Who is not in the group gets Forbidden; what is of another tenant is not there."""

    def __init__(
        self,
        board: Board,
        store: EventStore,
        dispatcher: Dispatcher,
        payloads: Payloads,
        queue: LaneQueue,
        terms: Terms,
        now: Callable[[], datetime],
        new_id: NewId,
        admit: Admit,
        signals: Signals = SILENCE,
    ) -> None:
        self._board = board
        self._store = store
        self._dispatcher = dispatcher
        self._payloads = payloads
        self._queue = queue
        self._terms = terms
        self._now = now
        self._new_id = new_id
        self._admit = admit
        self._signals = signals

    async def page(self, caller: Caller, wanted: Filter, limit: int = 50, cursor: str | None = None) -> DeliveryPage:
        """A page of the caller's tenant. Raises Forbidden, Invalid for a limit of more than PAGE, InvalidCursor."""
        check_operator(caller)
        if not 1 <= limit <= PAGE:
            raise Invalid.at("$.limit", f"must be 1 to {PAGE}")
        before = None if cursor is None else place_of(cursor)
        rows = await self._board.page(caller.tenant, wanted, before, limit + 1)
        more = str(rows[limit - 1].stream_id) if len(rows) > limit else None
        return DeliveryPage([_view(row) for row in rows[:limit]], more)

    async def inspect(self, caller: Caller, delivery_id: str) -> tuple[DeliveryView, list[AttemptView]]:
        """A delivery and its attempts. Raises Forbidden, NotVisible."""
        row = await self._own(caller, delivery_id)
        attempts: dict[int, AttemptView] = {}
        for event in await self._store.read_for_fold(row.stream_id, 0, MAX_EVENTS):
            decoded = DELIVERY_KIND.registry.decode(event.type, event.version, event.payload)
            match decoded:
                case AttemptStarted(n=n, part=part, key=key):
                    attempts[n] = AttemptView(n, part, key)
                case AttemptEnded() if decoded.n in attempts:
                    attempts[decoded.n] = msgspec.structs.replace(
                        attempts[decoded.n],
                        outcome=decoded.outcome,
                        reason=decoded.reason or UNSET,
                        next_attempt_at=decoded.next_at,
                        retry_after_s=decoded.retry_after_s,
                    )
                case _:
                    pass
        return _view(row), [attempts[n] for n in sorted(attempts)]

    async def replay(self, caller: Caller, delivery_id: str, command: ReplayDelivery, key: str | None) -> Answer:
        """202 `{"seq", "state"}`. Raises Forbidden, NotVisible, NotReplayable with its cause, KeyReused."""
        row = await self._own(caller, delivery_id)
        policy = self._terms(row.channel).policy

        def decide(state: Delivery) -> Decision:
            check_reason(command.reason)
            return replay(state, self._now(), policy, caller.principal, resend_unknown=command.resend_unknown)

        try:
            answer = await self._run(caller, row, "replay_delivery", command, key, decide)
        except NotReplayable as error:
            self._told(row, "refused", str(error.attributes.get("cause", error.code)))
            raise
        self._told(row, "accepted", "")
        await self._queue.wake([await self._lane(row)])
        return answer

    async def revoke(self, caller: Caller, delivery_id: str, command: RevokeDelivery, key: str | None) -> Answer:
        """202 `{"seq", "state"}`; once more changes nothing. Raises Forbidden, NotVisible, AlreadyEnded, KeyReused."""
        row = await self._own(caller, delivery_id)

        def decide(state: Delivery) -> Decision:
            check_reason(command.reason)
            return cancel(state, command.reason, self._now(), caller.principal)

        return await self._run(caller, row, "revoke_delivery", command, key, decide)

    async def purge(self, caller: Caller, delivery_id: str, command: PurgeDelivery, key: str | None) -> Answer:
        """202 `{"seq", "state"}`: the payload is gone when this returns. Raises Forbidden, NotVisible, KeyReused."""
        row = await self._own(caller, delivery_id)
        head = await self._store.head(stream_of(delivery_id))
        if head is not None and head.sealed:
            return await self._forget_sealed(caller, row, head, command)

        def decide(state: Delivery) -> Decision:
            check_reason(command.reason)
            return purge(state, command.reason, self._now(), caller.principal)

        answer = await self._run(caller, row, "purge_delivery", command, key, decide)
        await self._payloads.forget([delivery_id])
        return answer

    def _told(self, row: Listed, outcome: str, reason: str) -> None:
        self._signals.tell("replay", row.channel, outcome, reason, correlation_id=row.correlation_id)

    async def _forget_sealed(self, caller: Caller, row: Listed, head: Head, command: PurgeDelivery) -> Answer:
        """A stream that takes no event any more says nothing of it; its payload goes all the same."""
        self._admit(caller)()
        check_reason(command.reason)
        await self._payloads.purge([row.delivery_id])
        log.info("the payload of a sealed delivery is purged", delivery=row.delivery_id, tenant=caller.tenant)
        fields = {"seq": head.version, "chain": head.chain, "state": row.state}
        return Answer(202, fields, is_replay=False, seq=head.version)

    async def _run(
        self,
        caller: Caller,
        row: Listed,
        operation: str,
        command: ReplayDelivery | RevokeDelivery | PurgeDelivery,
        key: str | None,
        decide: Callable[[Delivery], Decision],
    ) -> Answer:
        stream, admit = stream_of(row.delivery_id), self._admit(caller)

        def authorize(_state: Delivery, head: Head) -> None:
            if head.tenant != caller.tenant:
                raise NotVisible
            admit()

        def decided(state: Delivery, _head: Head) -> Decided:
            rows = rows_of(decide(state), self._new_id)
            return msgspec.structs.replace(rows, answer={**rows.answer, "state": _after(state, rows)})

        idempotency = self._dispatcher.key(caller, operation, stream, key, command, 202)
        return await self._dispatcher.run(DELIVERY_KIND, stream, authorize, decided, key=idempotency, status=202)

    async def _own(self, caller: Caller, delivery_id: str) -> Listed:
        check_operator(caller)
        row = await self._board.one(caller.tenant, delivery_id) if is_conversation_id(delivery_id) else None
        if row is None:
            raise NotVisible
        return row

    async def _lane(self, row: Listed) -> str:
        (first,) = await self._store.read_for_fold(row.stream_id, 0, 1)
        planned: dict[str, Any] = msgspec.json.decode(first.payload)
        return planned["lane"]


def check_operator(caller: Caller) -> None:
    """Raises Forbidden for who is none."""
    if OPERATORS not in caller.groups:
        raise Forbidden(f"Only members of {OPERATORS} see deliveries.")


def check_reason(reason: str) -> None:
    """Raises Invalid."""
    if not 1 <= len(reason.strip()) <= MAX_REASON_CHARS:
        raise Invalid.at("$.reason", f"must be 1 to {MAX_REASON_CHARS} characters")


def _after(state: Delivery, decided: Decided) -> Status:
    """Where the delivery stands once that is appended."""
    for actor, event in decided.events:
        state = evolve(state, Recorded(0, actor, None, None, event))
    return state.status


def place_of(cursor: str) -> int:
    """The place that a cursor names. Raises InvalidCursor."""
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19 and str(int(cursor)) == cursor):
        raise InvalidCursor("The cursor is none of this list; begin without one.")
    return int(cursor)


def _view(row: Listed) -> DeliveryView:
    return DeliveryView(
        row.delivery_id,
        row.channel,
        row.destination,
        row.state,
        row.attempts,
        stamp(row.expires_at),
        row.correlation_id,
        row.codec,
        row.version,
        row.run_id or UNSET,
        row.conversation_id or UNSET,
        row.reason or UNSET,
        UNSET if row.is_ended else stamp(row.due_at),
    )
