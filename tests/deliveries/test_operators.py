"""Operators: pages, inspection, replay, revocation, purge; what cannot be proven; and what goes by its age."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import pytest
from append_helpers import expire
from delivery_desk import Desk, Receiver, desk_of, logged, postpone, states, wanted, webhook
from minutebook.commands.deliveries.keeping import Keeping, Kept
from minutebook.commands.deliveries.operators import Operators, PurgeDelivery, ReplayDelivery, RevokeDelivery
from minutebook.commands.deliveries.planning import ChannelTerms
from minutebook.commands.deliveries.ports import Filter
from minutebook.commands.deliveries.reconcile import Reconciler, Report
from minutebook.commands.deliveries.watching import BreakerView, ChannelView, ChannelWatch
from minutebook.commands.dispatcher import Bounds, Dispatcher, Fingerprints
from minutebook.domain.deliveries.retry import Policy
from minutebook.domain.errors import Forbidden, InvalidCursor, NotReplayable, NotVisible
from minutebook.domain.principals import Caller, Principal
from minutebook.infra.postgres.delivery_gates import FAILURES
from minutebook.infra.postgres.retention import purge_expired
from msgspec.structs import replace
from outside import lost_after, serving, status
from ulid_transform import ulid_now

OPERATOR = Caller(Principal("human", "op"), "acme", frozenset({"agents-operator"}))
STRANGER = replace(OPERATOR, tenant="other")
POLICY = Policy(first_s=0.01, growth=1, timeout_s=0.5)


@contextlib.asynccontextmanager
async def office(database: Any, receiver: Receiver) -> AsyncGenerator[tuple[Desk, Operators]]:
    """A desk with its operators."""
    async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}, policy=POLICY) as desk:
        dispatcher = Dispatcher(desk.store, Fingerprints(b"k" * 32), Bounds())
        yield (
            desk,
            Operators(
                desk.board,
                desk.store,
                dispatcher,
                desk.payloads,
                desk.queue,
                lambda _name: ChannelTerms(POLICY),
                lambda: datetime.now(UTC),
                ulid_now,
                lambda _caller: lambda: None,
            ),
        )


@pytest.fixture
def receiver() -> Any:
    """Where `hook` leads to."""
    with serving(Receiver()) as made:
        yield made


def test_pages_are_of_the_own_tenant_and_come_by_place(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with office(database, receiver) as (desk, operators):
            talk = "conv" * 6 + "aa"
            await desk.planner.plan([wanted(conversation=talk, run_id=f"run-{n}") for n in range(5)])
            first = await operators.page(OPERATOR, Filter(), 3)
            second = await operators.page(OPERATOR, Filter(), 3, first.cursor)
            assert (len(first.deliveries), len(second.deliveries), second.cursor) == (3, 2, None)
            every = [*first.deliveries, *second.deliveries]
            assert len({each.id for each in every}) == 5
            for wish in (
                Filter(state="planned"),
                Filter(channel="hook"),
                Filter(destination=every[0].destination),
                Filter(conversation=talk),
            ):
                assert len((await operators.page(OPERATOR, wish)).deliveries) == 5
            for wish in (Filter(run="run-3"), Filter(correlation=every[0].correlation_id)):
                assert len((await operators.page(OPERATOR, wish)).deliveries) == 1
            assert (await operators.page(OPERATOR, Filter(state="dead"))).deliveries == []
            assert (await operators.page(STRANGER, Filter())).deliveries == []
            with pytest.raises(Forbidden):
                await operators.page(replace(OPERATOR, groups=frozenset()), Filter())
            with pytest.raises(InvalidCursor):
                await operators.page(OPERATOR, Filter(), 3, "007")
            with pytest.raises(NotVisible):
                await operators.inspect(STRANGER, every[0].id)

    asyncio.run(scenario())


def test_a_dead_letter_is_seen_replayed_and_sent_under_the_same_key(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with office(database, receiver) as (desk, operators):
            (delivery_id,) = await desk.planner.plan([wanted()])
            receiver.mischief = [status(410)]
            await desk.drain()
            view, attempts = await operators.inspect(OPERATOR, delivery_id)
            assert (view.state, view.reason, view.attempts) == ("dead", "gone", 1)
            assert [(each.n, each.outcome, each.reason) for each in attempts] == [(1, "permanent", "gone")]
            again = ReplayDelivery("fixed")
            answer = await operators.replay(OPERATOR, delivery_id, again, "key-1")
            assert (answer.status, answer.body["state"]) == (202, "planned")
            assert (await operators.replay(OPERATOR, delivery_id, again, "key-1")).is_replay
            await desk.drain()
            assert receiver.took == {f"{delivery_id}.1": 1}
            with pytest.raises(NotReplayable) as refused:
                await operators.replay(OPERATOR, delivery_id, again, None)
            assert refused.value.attributes == {"cause": "accepted"}

    asyncio.run(scenario())


def test_what_is_revoked_or_purged_goes_nowhere(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with office(database, receiver) as (desk, operators):
            revoked, purged = await desk.planner.plan([wanted(), wanted()])
            assert (await operators.revoke(OPERATOR, revoked, RevokeDelivery("no"), None)).body["state"] == "cancelled"
            assert (await operators.purge(OPERATOR, purged, PurgeDelivery("no"), None)).body["state"] == "cancelled"
            assert await desk.payloads.get([revoked, purged]) != {}
            assert await desk.payloads.get([purged]) == {}
            await desk.drain()
            assert receiver.requests == []
            for delivery_id, cause in ((revoked, "revoked"), (purged, "purge")):
                with pytest.raises(NotReplayable) as refused:
                    await operators.replay(OPERATOR, delivery_id, ReplayDelivery("please"), None)
                assert refused.value.attributes == {"cause": cause}

    asyncio.run(scenario())


def test_a_channel_shows_what_waits_and_which_destinations_are_left_alone(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with office(database, receiver) as (desk, _):
            watch = ChannelWatch(desk.board, {"hook": "acme", "quiet": "acme", "theirs": "other"})
            idle = [ChannelView(name, 0, BreakerView(0), paused=False) for name in ("hook", "quiet")]
            assert await watch.channels(OPERATOR) == idle
            await desk.planner.plan([wanted(), wanted()])
            destination = desk.hashes.destination("acme", "hook", wanted().address)
            for _ in range(FAILURES):
                await desk.gates.told("hook", destination, is_alive=False, wait_s=None)
            hook, quiet = await watch.channels(OPERATOR)
            assert quiet == idle[1]
            assert (hook.name, hook.waiting, hook.breaker.shut) == ("hook", 2, 1)
            assert hook.breaker.retry_at
            assert hook.oldest
            assert [each.name for each in await watch.channels(STRANGER)] == ["theirs"]
            with pytest.raises(Forbidden):
                await watch.channels(replace(OPERATOR, groups=frozenset()))

    asyncio.run(scenario())


class Asked:
    """A channel that can be asked for a key."""

    def __init__(self, inner: Any, known: bool) -> None:
        self._inner, self._known = inner, known
        self.can = replace(inner.can, look_up=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def look_up(self, _address: Any, _key: str) -> bool:
        return self._known


@pytest.mark.parametrize(
    ("known", "report", "state"), [(True, Report(1, 1, 0, 0, 0), "accepted"), (False, Report(1, 0, 1, 0, 0), "waiting")]
)
def test_what_a_platform_can_be_asked_is_proven(
    database: Any, receiver: Receiver, known: bool, report: Report, state: str
) -> None:
    async def scenario() -> None:
        channels: dict[str, Any] = {"hook": Asked(webhook("hook", receiver.url), known)}
        async with desk_of(database.url(), channels, policy=replace(POLICY, first_s=60)) as desk:
            (delivery_id,) = await desk.planner.plan([wanted()])
            receiver.mischief = [lost_after]
            await desk.drain()
            assert states(database) == {delivery_id: "unknown"}
            reconciler = Reconciler(desk.board, desk.rows, desk.payloads, desk.means)
            assert await reconciler.run("acme") == report
            assert states(database) == {delivery_id: "unknown"}
            assert await reconciler.run("acme", "hook", repair=True) == report
            assert states(database) == {delivery_id: state}
            assert await reconciler.run("acme", "other") == Report(0, 0, 0, 0, 0)
            assert await reconciler.run("other", repair=True) == Report(0, 0, 0, 0, 0)

    asyncio.run(scenario())


def test_payloads_receipts_and_streams_are_kept_for_their_time(database: Any, receiver: Receiver) -> None:
    async def scenario() -> None:
        async with office(database, receiver) as (desk, _):
            accepted, dead = await desk.planner.plan([wanted(), wanted()])
            receiver.mischief = [status(410)]
            receiver.troubles = lambda request: request.headers["webhook-id"].startswith(dead)
            await desk.drain()
            keeping = Keeping(desk.board, desk.payloads, desk.store, desk.bulk)
            assert await keeping.run() == Kept(0, 0)
            postpone(database, "ended_at", "-25 hours")
            assert (await keeping.run()).payloads == 1
            assert set(await desk.payloads.get([accepted, dead])) == {dead}
            postpone(database, "seal_at", "-8 days")
            assert (await keeping.run()).sealed == 2
            assert (await keeping.run()).sealed == 0
            postpone(database, "ended_at", "-14 days")
            assert (await keeping.run()).payloads == 1
            with database.connect("postgres") as superuser:
                for delivery_id in (accepted, dead):
                    expire(superuser, f"delivery:{delivery_id}")
            report = await purge_expired(database.url("retention"), database.url("auditor"))
            assert report.ok
            assert states(database) == {}
            assert logged(database, accepted) == []

    asyncio.run(scenario())
