"""Bulk plans of operators: always a dry run first; then a run, its progress, its stop. Never a payload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...domain.decisions import Decision
from ...domain.deliveries.bulk import (
    BULK_EVENTS,
    CLASSES,
    INITIAL,
    SCHEMA,
    Action,
    Bulk,
    Class,
    Seen,
    begin,
    class_of,
    evolve,
    is_run,
    planned,
    stop,
)
from ...domain.deliveries.decide import UNKNOWN_OUTCOME
from ...domain.deliveries.state import Status
from ...domain.errors import Invalid, NotVisible
from ...domain.principals import Caller
from ..beside import Admit
from ..dispatcher import Dispatcher
from ..mailbox import Answer, Decided
from ..ports import Creation, EventStore, Head
from ..streams import Kind, left_as_it_is, load
from .bulk_ports import MAX_PLAN, BulkTable, Found, Item
from .kind import NewId, folded, rows_of
from .operators import check_operator, check_reason
from .ports import Filter, Rows

BULK = "bulk"
STREAM = "bulk:"
COLLECTION = "bulk plans"

RETENTION_DAYS = 90
"""Of a plan's stream, from its end on."""

MAX_RATE = 100
"""Deliveries a second."""

MAX_WISH_CHARS = 256

FOLDED = 200
"""Streams read at a time to tell whether a dead letter may have arrived."""

Wish = Annotated[str, Meta(min_length=1, max_length=MAX_WISH_CHARS)]


class BulkFilter(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which deliveries: what is given has to fit at once, and something must be."""

    state: Status | UnsetType = UNSET
    channel: Wish | UnsetType = UNSET
    destination: Wish | UnsetType = UNSET
    correlation: Wish | UnsetType = UNSET
    run: Wish | UnsetType = UNSET
    conversation: Wish | UnsetType = UNSET


class PlanBulk(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Counts what a run would do, and does nothing. resend_unknown: a replay takes those that may have arrived, too."""

    action: Action
    filter: BulkFilter
    reason: str
    rate_per_second: Annotated[int, Meta(ge=1, le=MAX_RATE)] = 10
    resend_unknown: bool = False


class Progress(Struct, frozen=True, rename="camel"):
    """Deliveries, by what became of them."""

    done: int = 0
    skipped: int = 0
    failed: int = 0
    left: int = 0


class BulkView(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A plan. counts: deliveries by class, when it was planned; progress and by_class: what became of them."""

    plan_id: str
    action: Action
    state: str
    counts: Mapping[str, int]
    rate_per_second: int
    reason: str
    expires_at: str
    progress: Progress
    by_class: Mapping[str, Progress]
    resend_unknown: bool


BULK_KIND: Kind[Bulk] = Kind(BULK, SCHEMA, INITIAL, Bulk, BULK_EVENTS, evolve, left_as_it_is)


class BulkPlans:
    """Handlers. Who is not in the group gets Forbidden; a plan of another tenant is not there."""

    def __init__(
        self,
        table: BulkTable,
        rows: Rows,
        store: EventStore,
        dispatcher: Dispatcher,
        now: Callable[[], datetime],
        new_id: NewId,
        admit: Admit,
    ) -> None:
        self._table = table
        self._rows = rows
        self._store = store
        self._dispatcher = dispatcher
        self._now = now
        self._new_id = new_id
        self._admit = admit

    async def plan(self, caller: Caller, command: PlanBulk, key: str | None) -> Answer:
        """201 `{"planId", "counts", "expiresAt"}`: a dry run. Raises Forbidden, Invalid, KeyReused, RateLimited."""
        check_operator(caller)
        idempotency = self._dispatcher.key(caller, "plan_bulk", COLLECTION, key, command, 201)
        stored = await self._dispatcher.replayed(idempotency)
        if stored is not None:
            return stored
        self._admit(caller)()
        check_reason(command.reason)
        wish: dict[str, str] = msgspec.to_builtins(command.filter)
        if not wish:
            raise Invalid.at("$.filter", "must name at least one of state, channel, destination and so on")
        found = await self._table.find(caller.tenant, _filter(command.filter), MAX_PLAN + 1)
        if len(found) > MAX_PLAN:
            raise Invalid.at("$.filter", f"finds more than {MAX_PLAN} deliveries; narrow it")
        now, plan_id = self._now(), self._new_id()
        items = await self._items(command, found, now)
        await self._table.put(plan_id, caller.tenant, items)
        counts = {**dict.fromkeys(CLASSES, 0), **Counter[str](each.class_ for each in items)}
        decision = planned(
            plan_id,
            command.action,
            wish,
            counts,
            command.rate_per_second,
            command.reason,
            now,
            caller.principal,
            resend_unknown=command.resend_unknown,
        )
        answer = {"planId": plan_id, "counts": counts, "expiresAt": _expiry(decision)}
        if idempotency is not None:
            idempotency = msgspec.structs.replace(idempotency, answer=answer)
        decided = msgspec.structs.replace(rows_of(decision, self._new_id), answer=answer)
        creation = Creation(BULK, caller.tenant, RETENTION_DAYS)
        return await self._dispatcher.create(f"{STREAM}{plan_id}", creation, decided, key=idempotency, status=201)

    async def run(self, caller: Caller, plan_id: str, key: str | None) -> Answer:
        """202 `{"seq"}`: the process of jobs does it. Raises Forbidden, NotVisible, AlreadyEnded, Conflict."""
        return await self._tell(
            caller, plan_id, "run_bulk", key, lambda bulk: begin(bulk, self._now(), caller.principal)
        )

    async def stop(self, caller: Caller, plan_id: str, key: str | None) -> Answer:
        """202 `{"seq"}`: nothing is touched after the batch under way. Raises Forbidden, NotVisible."""
        return await self._tell(caller, plan_id, "stop_bulk", key, lambda bulk: stop(bulk, caller.principal))

    async def show(self, caller: Caller, plan_id: str) -> BulkView:
        """Where a plan stands. Raises Forbidden, NotVisible."""
        stream = await self._own(caller, plan_id)
        loaded = await load(self._store, BULK_KIND, stream)
        plan = None if loaded is None else loaded.state.plan
        if loaded is None or plan is None:
            raise NotVisible
        counted = await self._table.progress(plan_id)
        ended = loaded.state.ended
        whole = _progress(counted, None)
        if not counted and ended is not None:  # its ids have gone
            whole = Progress(ended.done, ended.skipped, ended.failed)
        return BulkView(
            plan_id,
            plan.action,
            loaded.state.state,
            plan.counts,
            plan.rate,
            plan.reason,
            plan.expires_at,
            whole,
            {name: _progress(counted, name) for name in CLASSES if any(of == name for of, _ in counted)},
            plan.resend_unknown,
        )

    async def _items(self, command: PlanBulk, found: list[Found], now: datetime) -> list[Item]:
        doubtful = await self._doubtful(found)
        items: list[Item] = []
        for place, each in enumerate(found, 1):
            seen = Seen(each.status, each.reason, each.has_payload, each.stream_id in doubtful, each.open_until)
            class_: Class = class_of(command.action, seen, now)
            is_left = is_run(command.action, class_, resend_unknown=command.resend_unknown)
            state = "left" if is_left else "skipped"
            items.append(Item(place, each.delivery_id, each.stream_id, each.version, class_, state))
        return items

    async def _doubtful(self, found: list[Found]) -> set[int]:
        """Dead letters that may have arrived: the row says so of those that died of it, the stream of the others."""
        dead = [each for each in found if each.status == "dead"]
        doubtful = {each.stream_id for each in dead if each.reason == UNKNOWN_OUTCOME}
        others = [each.stream_id for each in dead if each.stream_id not in doubtful and each.attempts > 1]
        for first in range(0, len(others), FOLDED):
            streams = await self._rows.events_of(others[first : first + FOLDED])
            doubtful |= {stream_id for stream_id, events in streams.items() if folded(events).is_in_doubt}
        return doubtful

    async def _tell(
        self, caller: Caller, plan_id: str, operation: str, key: str | None, decide: Callable[[Bulk], Decision]
    ) -> Answer:
        stream, admit = await self._own(caller, plan_id), self._admit(caller)

        def authorize(_state: Bulk, head: Head) -> None:
            if head.tenant != caller.tenant:
                raise NotVisible
            admit()

        def decided(state: Bulk, _head: Head) -> Decided:
            return rows_of(decide(state), self._new_id)

        idempotency = self._dispatcher.key(caller, operation, stream, key, {}, 202)
        return await self._dispatcher.run(BULK_KIND, stream, authorize, decided, key=idempotency, status=202)

    async def _own(self, caller: Caller, plan_id: str) -> str:
        """The name of the plan's stream."""
        check_operator(caller)
        if await self._table.tenant_of(plan_id) != caller.tenant:
            raise NotVisible
        return f"{STREAM}{plan_id}"


def _filter(wish: BulkFilter) -> Filter:
    return Filter(wish.state, wish.channel, wish.destination, wish.correlation, wish.run, wish.conversation)


def _expiry(decision: Decision) -> str:
    return decision.events[0].payload()["expiresAt"]


def _progress(counted: Mapping[tuple[str, str], int], class_: str | None) -> Progress:
    numbers = Counter[str]()
    for (of, state), count in counted.items():
        if class_ is None or of == class_:
            numbers[state] += count
    return Progress(numbers["done"], numbers["skipped"], numbers["failed"], numbers["left"])
