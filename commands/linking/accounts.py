"""Streams of accounts: folded, decided on, and appended to behind what was decided on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from ...domain.decisions import Decision
from ...domain.errors import Conflict, KeyReused, Unavailable
from ...domain.linking.events import ACCOUNT_EVENTS
from ...domain.linking.state import INITIAL, SCHEMA, Account, evolve
from ..deliveries.kind import NewId, rows_of
from ..mailbox import REUSED, Answer, replay
from ..ports import Append, Creation, EventStore, Key, Outcome
from ..streams import Kind, left_as_it_is, load
from .ports import STREAM

ACCOUNT = "account"

RETENTION_DAYS = 90
"""Of an account's stream, from its seal on."""

MAX_TRIES = 8
"""Times that a step is decided again because somebody appended first."""


ACCOUNT_KIND: Kind[Account] = Kind(ACCOUNT, SCHEMA, INITIAL, Account, ACCOUNT_EVENTS, evolve, left_as_it_is)


class Held(Struct, frozen=True):
    """An account and where its stream stands; at 0 it has none yet."""

    state: Account
    at: int
    chain: str


class Accounts:
    """Every method raises Unavailable."""

    def __init__(self, store: EventStore, new_id: NewId) -> None:
        self._store = store
        self._new_id = new_id

    async def load(self, key: str) -> Held:
        """An account by its isolation key."""
        found = await load(self._store, ACCOUNT_KIND, f"{STREAM}{key}")
        return Held(INITIAL, 0, "") if found is None else Held(found.state, found.head.version, found.head.chain)

    async def change(
        self, tenant: str, key: str, decide: Callable[[Account], Awaitable[Decision]], idempotency: Key | None = None
    ) -> Answer:
        """Decide, and once more where somebody appended first. Raises what `decide` raises, a decision's refusal once
        its events are stored, and KeyReused."""
        for _ in range(MAX_TRIES):
            held = await self.load(key)
            answer = await self.append(tenant, key, held, await decide(held.state), idempotency)
            if answer is not None:
                return answer
        raise Unavailable("Others change the same account; try again.")

    async def append(
        self, tenant: str, key: str, held: Held, decision: Decision, idempotency: Key | None = None
    ) -> Answer | None:
        """The answer once it is stored, the first one of that idempotency key; None where somebody appended first.

        Raises the refusal of the decision, which burns no key, and KeyReused.
        """
        if decision.refusal is not None:
            idempotency = None
        answer = Answer(200, {"seq": held.at, "chain": held.chain, **decision.answer}, False, held.at)
        if decision.events or idempotency is not None:
            outcome = await self._store_it(tenant, key, held, decision, idempotency)
            if outcome is None:
                return None
            answer = _answer(outcome, decision)
        if decision.refusal is not None:
            raise decision.refusal
        return answer

    async def _store_it(
        self, tenant: str, key: str, held: Held, decision: Decision, idempotency: Key | None
    ) -> Outcome | None:
        if idempotency is not None:
            idempotency = replace(idempotency, answer={**idempotency.answer, **decision.answer})
        rows = rows_of(decision, self._new_id).rows
        creation = None if held.at else Creation(ACCOUNT, tenant, RETENTION_DAYS)
        item = Append(f"{STREAM}{key}", held.at, rows, create=creation, key=idempotency)
        try:
            (outcome,) = await self._store.append([item])
        except Conflict:
            return None
        if outcome.kind == "key_reused":
            raise KeyReused(REUSED)
        return outcome if outcome.kind in ("appended", "duplicate") else None


def _answer(outcome: Outcome, decision: Decision) -> Answer:
    if outcome.body is not None:
        stored = replay(outcome.status, outcome.body)
        return replace(stored, is_replay=outcome.kind == "duplicate")
    fields = {"seq": outcome.seq, "chain": outcome.chain}
    if outcome.event_id is not None:
        fields["id"] = outcome.event_id
    return Answer(200, {**fields, **decision.answer}, False, outcome.seq)
