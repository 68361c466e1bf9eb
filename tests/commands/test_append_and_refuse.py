"""A command that finds something the log must say says it, and is refused: stored first, no key burnt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from append_helpers import one
from appender_helpers import Pool, run
from approval_scenes import APPROVER, ASK, DIGEST, OTHER_APPROVER, opened
from minutebook.commands.dispatcher import Bounds, Dispatcher, Fingerprints
from minutebook.commands.mailbox import Answer, Decided
from minutebook.commands.ports import Creation, EventRow, Head
from minutebook.commands.rooms import ROOM as KIND
from minutebook.domain.errors import AlreadyDecided, DigestMismatch
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.approval_events import ApprovalDecided
from minutebook.domain.rooms.context import Decision, NewEvent
from minutebook.domain.rooms.decide_approvals import DecideApproval, decide_approval, request_approval
from minutebook.domain.rooms.events import MessagePosted
from minutebook.domain.rooms.state import Room
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.store import PostgresStore
from room_scenes import FRESH_ULID, NOW, OWNER, RUNNING, STARTED, TENANT, context_of
from ulid_transform import ulid_now

STREAM = "room:abcd2345"
PRESENT = Creation("room", TENANT, 90)
EXPIRED = NOW + timedelta(minutes=30)
BY_OWNER = Caller(OWNER.principal, TENANT)


class Desk:
    """A room's commands over a real log, at moments that the test chooses."""

    def __init__(self, store: PostgresStore) -> None:
        self.dispatcher = Dispatcher(store, Fingerprints(b"k" * 32), Bounds())

    async def begin(self) -> None:
        """A room with a running run whose request waits for a person."""
        first = tuple(NewEvent(event, OWNER.principal) for event in (opened(), *STARTED))
        await self.dispatcher.create(STREAM, PRESENT, encoded(Decision(first)), key=None, status=201)
        await self.run(RUNNING, lambda room, context: request_approval(room, ASK, context, {}))

    async def run(
        self, caller: Caller, decide: Callable[[Room, Any], Decision], *, now: Any = NOW, key: str | None = None
    ) -> Answer:
        """One command."""

        def decided(room: Room, head: Head) -> Decided:
            return encoded(decide(room, context_of(caller, head.version, now=now)))

        idempotency = self.dispatcher.key(caller, "decide", STREAM, key, "the same body", 200)
        return await self.dispatcher.run(KIND, STREAM, lambda room, head: None, decided, key=idempotency)

    async def decide(
        self,
        caller: Caller,
        decision: Any = "approved",
        *,
        digest: str = DIGEST,
        now: Any = NOW,
        key: str | None = None,
    ) -> Answer:
        """A person's decision on the one request."""
        command = DecideApproval(FRESH_ULID, decision, digest)
        return await self.run(caller, lambda room, context: decide_approval(room, command, context), now=now, key=key)

    async def say(self, text: str) -> Answer:
        """A message, as any command that shares a round."""
        event = NewEvent(MessagePosted(text), OWNER.principal)
        return await self.run(OWNER, lambda room, context: Decision((event,)))


def encoded(decision: Decision) -> Decided:
    """A decision as the handlers of rooms encode it."""
    rows = [
        EventRow(
            ulid_now(),
            new.event.type,
            new.event.version,
            msgspec.Raw(msgspec.json.encode(new.payload())),
            new.actor.kind,
            new.actor.id,
            new.origin,
            run_id=msgspec.UNSET if new.run_id is None else new.run_id,
            origin_client=msgspec.UNSET if new.origin_client is None else new.origin_client,
            origin_key=msgspec.UNSET if new.origin_key is None else new.origin_key,
        )
        for new in decision.events
    ]
    events = [(new.actor, new.event) for new in decision.events]
    return Decided(rows, events, decision.seal, decision.answer, decision.refusal)


def at_a_desk(database: Any, work: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    """Run a test's body on a fresh database where a request waits."""

    async def go(appender: Appender, pool: Pool) -> None:
        desk = Desk(PostgresStore(pool, appender))
        await desk.begin()
        await work(desk)

    run(go, database.url())


def decisions(database: Any) -> list[str]:
    """The decisions in the log."""
    with database.connect("app") as app:
        rows = app.execute(
            "SELECT payload->>'decision' FROM minutebook.events WHERE type = %s ORDER BY seq", (ApprovalDecided.type,)
        )
        return [row[0] for row in rows]


def test_a_late_decision_is_refused_and_the_expiry_is_stored(database: Any) -> None:
    async def go(desk: Desk) -> None:
        with pytest.raises(AlreadyDecided) as caught:
            await desk.decide(APPROVER, now=EXPIRED)
        assert caught.value.attributes == {"decision": "expired"}
        assert decisions(database) == ["expired"]
        with pytest.raises(AlreadyDecided):
            await desk.decide(OTHER_APPROVER, "denied", now=EXPIRED)

    at_a_desk(database, go)
    assert decisions(database) == ["expired"]


def test_a_refused_command_burns_no_key(database: Any) -> None:
    async def go(desk: Desk) -> None:
        for _ in range(2):
            with pytest.raises(AlreadyDecided):
                await desk.decide(APPROVER, now=EXPIRED, key="k")
        assert (await desk.say("and on")).seq == 6

    at_a_desk(database, go)
    assert decisions(database) == ["expired"]
    with database.connect("app") as app:
        assert one(app, "SELECT count(*) FROM minutebook.idempotency") == 0


def test_neighbours_in_the_round_get_their_answers(database: Any) -> None:
    async def go(desk: Desk) -> None:
        results = await asyncio.gather(
            desk.say("before"),
            desk.decide(APPROVER, now=EXPIRED),
            desk.say("after"),
            desk.decide(OTHER_APPROVER, now=EXPIRED),
            return_exceptions=True,
        )
        kinds = [type(result) for result in results]
        assert kinds == [Answer, AlreadyDecided, Answer, AlreadyDecided]
        assert [result.seq for result in results if isinstance(result, Answer)] == [5, 7]

    at_a_desk(database, go)
    assert decisions(database) == ["expired"]


def test_sc_5_fifty_decisions_at_once_are_one(database: Any) -> None:
    """B58: one event, and everybody else hears which it was; the winner's retry hears its own answer again."""

    async def go(desk: Desk) -> None:
        callers = [APPROVER, OTHER_APPROVER, BY_OWNER]
        asked = [(callers[n % 3], "approved" if n % 2 else "denied") for n in range(50)]
        results = await asyncio.gather(
            *(desk.decide(caller, decision, key=f"k{n}") for n, (caller, decision) in enumerate(asked)),
            return_exceptions=True,
        )
        won = [n for n, result in enumerate(results) if isinstance(result, Answer)]
        assert len(won) == 1
        winning = asked[won[0]][1]
        lost = [result for result in results if not isinstance(result, Answer)]
        assert {type(error) for error in lost} == {AlreadyDecided}
        assert {error.attributes["decision"] for error in lost if isinstance(error, AlreadyDecided)} == {winning}
        again = await desk.decide(*asked[won[0]], key=f"k{won[0]}")
        assert (again.is_replay, again.body["decision"]) == (True, winning)

    at_a_desk(database, go)
    assert len(decisions(database)) == 1


def test_two_processes_decide_once(database: Any) -> None:
    """Each has folded the room; the one that comes second conflicts, decides again, and hears who was first."""

    async def go(appender: Appender, pool: Pool) -> None:
        one_, other = (Desk(PostgresStore(pool, appender)) for _ in range(2))
        await one_.begin()
        with pytest.raises(DigestMismatch):
            await other.decide(APPROVER, digest="0" * 64)
        await one_.decide(APPROVER, "denied")
        with pytest.raises(AlreadyDecided) as caught:
            await other.decide(OTHER_APPROVER)
        assert caught.value.attributes == {"decision": "denied"}

    run(go, database.url())
    assert decisions(database) == ["denied"]
