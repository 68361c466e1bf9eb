"""The process of jobs at the plans that run: a few deliveries a second, each once, whoever is killed meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import reduce

import structlog
from msgspec import Struct

from ...domain.decisions import Decision
from ...domain.deliveries.bulk import INITIAL, Action, Bulk, finish, lapse
from ...domain.deliveries.operate import cancel, purge, replay
from ...domain.deliveries.state import Delivery
from ...domain.errors import Damaged, MinutebookError
from ...domain.principals import SERVER, Principal
from ..ports import Append, EventStore, Key, Outcome, StoredEvent
from ..signals import SILENCE, Signals
from .bulk import BULK_KIND, STREAM
from .bulk_ports import BulkTable, Claimed, Item, ItemState
from .kind import NewId, folded, rows_of, stream_of
from .planning import Terms
from .ports import LaneQueue, Payloads, Rows

SWEEP_EVERY_S = 5
RUN_S = 45.0
"""After so long a run is left to the next sweep."""

LEASE_S = 20.0
"""A plan whose worker says nothing for so long is another's."""

PLANS = 8
"""At once in one process."""

BATCH = 50
TICK_S = 1.0
"""Between two batches; a plan is stopped within it."""

MAX_EVENTS = 1000
LAPSED = 100

CHANGED = "changed"

log = structlog.get_logger(__name__)

Mark = tuple[int, ItemState, str]


class BulkMeans(Struct, frozen=True):
    """What a run needs."""

    table: BulkTable
    store: EventStore
    rows: Rows
    payloads: Payloads
    queue: LaneQueue
    terms: Terms
    new_id: NewId
    signals: Signals = SILENCE
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep


class BulkRunner:
    """One per process. What it did of a plan is in the log and in the table: whoever comes next goes on there.

    Each change is one append, at the version of the plan and under the plan's key, so that what was done right before a
    crash is found again, and neither lost nor done twice.
    """

    def __init__(self, means: BulkMeans, is_stopping: Callable[[], bool]) -> None:
        self._means = means
        self._is_stopping = is_stopping
        self._holder = means.new_id()
        self._clock = asyncio.get_running_loop().time

    async def sweep(self) -> None:
        """Go on with every plan that runs and that nobody works on; end those that nobody ran in time."""
        for each in await self._means.table.lapsed(LAPSED):
            bulk, version = await self._read(each)
            await self._append(each, version, lapse(bulk, datetime.now(UTC)))
        claimed = await self._means.table.claim(self._holder, LEASE_S, PLANS)
        await asyncio.gather(*(self._work(each) for each in claimed))

    async def _work(self, claimed: Claimed) -> None:
        try:
            await self._run(claimed)
        except MinutebookError as error:
            log.warning("a bulk run stopped; the sweep goes on with it", plan=claimed.plan_id, error=error.code)
        finally:
            await self._means.table.release(claimed.plan_id, self._holder)

    async def _run(self, claimed: Claimed) -> None:
        bulk, version = await self._read(claimed)
        table, plan = self._means.table, bulk.plan
        if plan is None:
            return
        began = self._clock()
        taken = 0
        while not self._is_stopping() and self._clock() - began < RUN_S:
            if not await table.renew(claimed.plan_id, self._holder, LEASE_S):
                return
            allowed = int((self._clock() - began + TICK_S) * plan.rate) - taken
            items = await table.left(claimed.plan_id, min(BATCH, allowed)) if allowed > 0 else []
            if allowed > 0 and not items:
                await self._finish(claimed, bulk, version)
                return
            if items:
                taken += len(items)
                await table.mark(claimed.plan_id, await self._batch(claimed, bulk, items))
            if taken >= int((self._clock() - began + TICK_S) * plan.rate):
                await self._means.pause(TICK_S)

    async def _finish(self, claimed: Claimed, bulk: Bulk, version: int) -> None:
        counted = await self._means.table.progress(claimed.plan_id)
        done, skipped, failed = (
            sum(count for (_, state), count in counted.items() if state == wanted)
            for wanted in ("done", "skipped", "failed")
        )
        await self._append(claimed, version, finish(bulk, done, skipped, failed))

    async def _batch(self, claimed: Claimed, bulk: Bulk, items: Sequence[Item]) -> list[Mark]:
        """Change what has not changed since the plan, in one append; what became of each."""
        means = self._means
        streams = await means.rows.events_of([each.stream_id for each in items])
        marks: list[Mark] = []
        appends: list[tuple[Item, Append]] = []
        for item in items:
            key = _key(claimed, item)
            events = streams.get(item.stream_id, [])
            if not events or events[-1].seq != item.version:
                # Perhaps it was changed right here, before a crash.
                is_ours = bool(events) and await means.store.find_answer(key.place) is not None
                marks.append((item.place, "done", "") if is_ours else (item.place, "skipped", CHANGED))
                continue
            try:
                decision = self._decide(bulk, folded(events))
            except (MinutebookError, Damaged) as error:
                marks.append((item.place, "skipped", str(getattr(error, "code", "damaged"))))
                continue
            rows = rows_of(decision, means.new_id).rows
            appends.append((item, Append(stream_of(item.delivery_id), item.version, rows, key=key)))
        if appends:
            outcomes = await means.store.append([append for _, append in appends])
            marks += [
                (item.place, *_became(bulk, outcome)) for (item, _), outcome in zip(appends, outcomes, strict=True)
            ]
        await self._afterwards(bulk, items, streams, marks)
        return marks

    async def _afterwards(
        self, bulk: Bulk, items: Sequence[Item], streams: dict[int, list[StoredEvent]], marks: Sequence[Mark]
    ) -> None:
        """What follows a change, before it counts as done: a payload goes, a lane is woken."""
        done = {place for place, state, _ in marks if state == "done"}
        changed = [item for item in items if item.place in done]
        if not changed or bulk.plan is None:
            return
        if bulk.plan.action == "purge":
            await self._means.payloads.purge([each.delivery_id for each in changed])
        if bulk.plan.action == "replay":
            plans = [folded(streams[each.stream_id]).plan for each in changed]
            replayed = [each for each in plans if each is not None]
            for each in replayed:
                self._means.signals.tell("replay", each.channel, "accepted", correlation_id=each.correlation_id)
            await self._means.queue.wake({each.lane for each in replayed})

    def _decide(self, bulk: Bulk, delivery: Delivery) -> Decision:
        plan, now = bulk.plan, datetime.now(UTC)
        actor: Principal = bulk.actor or SERVER
        assert plan is not None  # noqa: S101 - looked at by _run
        action: Action = plan.action
        match action:
            case "replay":
                policy = self._means.terms("" if delivery.plan is None else delivery.plan.channel).policy
                return replay(delivery, now, policy, actor, resend_unknown=plan.resend_unknown)
            case "revoke":
                return cancel(delivery, plan.reason, now, actor)
            case "purge":
                return purge(delivery, plan.reason, now, actor)

    async def _read(self, claimed: Claimed) -> tuple[Bulk, int]:
        events = await self._means.store.read_for_fold(claimed.stream_id, 0, MAX_EVENTS)
        return reduce(BULK_KIND.fold, events, INITIAL), events[-1].seq if events else 0

    async def _append(self, claimed: Claimed, version: int, decision: Decision) -> None:
        """Nothing where somebody was quicker: the next sweep looks again."""
        if decision.events:
            rows = rows_of(decision, self._means.new_id)
            item = Append(f"{STREAM}{claimed.plan_id}", version, rows.rows, seal=decision.seal)
            await self._means.store.append([item])


def _key(claimed: Claimed, item: Item) -> Key:
    """By which a change of this plan is known again."""
    print_ = hashlib.sha256(claimed.plan_id.encode()).hexdigest()
    return Key(claimed.tenant, "server:bulk", "bulk", stream_of(item.delivery_id), claimed.plan_id, print_, 202, {})


def _became(bulk: Bulk, outcome: Outcome) -> tuple[ItemState, str]:
    if outcome.kind in ("appended", "duplicate"):
        return "done", ""
    is_purge = bulk.plan is not None and bulk.plan.action == "purge"
    if outcome.kind == "sealed":
        # What takes no event any more may have a payload all the same.
        return ("done", "sealed") if is_purge else ("skipped", "sealed")
    return "skipped", CHANGED
