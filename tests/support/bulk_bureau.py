"""Operators of many deliveries at once, on a test's own database."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from bulk_worker import runner_of
from delivery_desk import Desk, Receiver, desk_of, wanted, webhook
from minutebook.commands.beside import Admit
from minutebook.commands.deliveries.bulk import BulkFilter, BulkPlans, PlanBulk, Progress
from minutebook.commands.deliveries.bulk_run import BulkRunner
from minutebook.commands.deliveries.pausing import Pausing
from minutebook.commands.deliveries.watching import ChannelWatch
from minutebook.commands.dispatcher import Bounds, Dispatcher, Fingerprints
from minutebook.domain.deliveries.retry import Policy
from minutebook.domain.principals import Caller, Principal
from msgspec.structs import replace
from outside import status
from ulid_transform import ulid_now

OPERATOR = Caller(Principal("human", "op"), "acme", frozenset({"agents-operator"}))
STRANGER = replace(OPERATOR, tenant="other")
POLICY = Policy(first_s=0.01, growth=1, timeout_s=5.0, attempts=2)
NOBODY_IS_LIMITED: Admit = lambda _caller: lambda: None  # noqa: E731
ALL = BulkFilter(channel="hook")


class Bureau:
    """A desk, and operators of many deliveries at once."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.now = datetime.now(UTC)
        dispatcher = Dispatcher(desk.store, Fingerprints(b"k" * 32), Bounds())
        self.watch = ChannelWatch(desk.board, {"hook": "acme", "theirs": "other"})
        self.plans = BulkPlans(
            desk.bulk, desk.rows, desk.store, dispatcher, lambda: self.now, ulid_now, NOBODY_IS_LIMITED
        )
        self.pausing = Pausing(
            self.watch, desk.store, dispatcher, desk.rows, desk.queue, lambda: self.now, ulid_now, NOBODY_IS_LIMITED
        )

    async def plan(self, action: Any, wish: BulkFilter = ALL, **fields: Any) -> tuple[str, dict[str, int]]:
        """The plan's id, and what it counted."""
        command = PlanBulk(action, wish, "mended", **{"rate_per_second": 100, **fields})
        answer = await self.plans.plan(OPERATOR, command, None)
        return answer.body["planId"], {name: count for name, count in answer.body["counts"].items() if count}

    def runner(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> BulkRunner:
        """A process of jobs."""
        return runner_of(self.desk, POLICY, pause)

    async def progress(self, plan_id: str) -> tuple[str, Progress]:
        """Where a plan stands."""
        view = await self.plans.show(OPERATOR, plan_id)
        return view.state, view.progress


@contextlib.asynccontextmanager
async def bureau(database: Any, receiver: Receiver, policy: Policy = POLICY) -> AsyncGenerator[Bureau]:
    """Operators of many deliveries at once."""
    async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}, policy=policy) as desk:
        yield Bureau(desk)


async def dead(desk: Desk, receiver: Receiver, count: int) -> list[str]:
    """Dead letters that their destination refused for good."""
    ids = await desk.planner.plan([wanted() for _ in range(count)])
    receiver.mischief = [status(410)] * count
    await desk.drain()
    assert not receiver.mischief
    return ids
