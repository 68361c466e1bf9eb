"""A delivery under any course of claims, answers, crashes, operators and clocks keeps what it promises."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any, get_args

import msgspec
from delivery_samples import NOW, planning
from gwt import recorded
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from minutebook.domain.deliveries.decide import Sent, claim, note_receipt, plan, settle
from minutebook.domain.deliveries.events import (
    DELIVERY_EVENTS,
    AttemptEnded,
    AttemptStarted,
    DeliveryReplayed,
    PartKind,
    ReceiptState,
)
from minutebook.domain.deliveries.operate import cancel, purge, replay
from minutebook.domain.deliveries.retry import Policy
from minutebook.domain.deliveries.state import INITIAL, Delivery, evolve
from minutebook.domain.errors import MinutebookError
from minutebook.domain.principals import Principal

POLICY = Policy(attempts=3, expiry_s=3600, replay_s=7200, receipt_s=7200)
OPERATOR = Principal("human", "op")
SPANS = [0.0, 1, 5, 21, 21, 61, 700, 4000, 8000]
kinds: st.SearchStrategy[PartKind] = st.sampled_from(get_args(PartKind))
draws = st.floats(0, 0.999)


class DeliveryMachine(RuleBasedStateMachine):
    """What was sent is counted apart from the events: `sent` is the outside world."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.delivery = INITIAL
        self.events: list[Any] = []
        self.keyed = True
        self.flying: dict[int, int] = {}
        self.sent: Counter[int] = Counter()
        self.accepted: set[int] = set()

    @initialize(parts=st.lists(kinds, min_size=1, max_size=3), keyed=st.booleans())
    def begin(self, parts: list[PartKind], keyed: bool) -> None:
        self.keyed = keyed
        self.do(lambda _state: plan(planning(*parts, keyed=keyed), self.now, POLICY))

    @rule(draw=draws)
    def work(self, draw: float) -> None:
        """A worker claims and sends; what comes of it is said later, or never."""
        for event in self.do(lambda state: claim(state, self.now, POLICY, draw)):
            if isinstance(event, AttemptStarted):
                assert event.part not in self.accepted, "what was accepted is never sent again"
                self.sent[event.part] += 1
                self.flying[event.n] = event.part

    @rule(outcome=st.sampled_from(["accepted", "retry", "permanent", "unknown"]), draw=draws, data=st.data())
    def answer(self, outcome: Any, draw: float, data: st.DataObject) -> None:
        """Some answer arrives, perhaps of an attempt that everybody has given up."""
        if not self.flying:
            return
        n = data.draw(st.sampled_from(sorted(self.flying)))
        part = self.flying.pop(n)
        self.do(lambda state: settle(state, n, Sent(outcome, "said"), self.now, POLICY, draw))
        if any(
            isinstance(event, AttemptEnded) and event.n == n and event.outcome == "accepted" for event in self.events
        ):
            self.accepted.add(part)

    @rule(span=st.sampled_from(SPANS))
    def wait(self, span: float) -> None:
        self.now += timedelta(seconds=span)

    @rule()
    def wait_until_due(self) -> None:
        attempt = self.delivery.attempt
        until = attempt.lease_until if self.delivery.status == "attempting" and attempt else self.delivery.next_at
        if until:
            self.now = max(self.now, msgspec.convert(until, type=type(self.now)))

    @rule(span=st.sampled_from([-5.0, -4000]))
    def step_back(self, span: float) -> None:
        """A clock that somebody sets back."""
        self.now += timedelta(seconds=span)

    @rule(reason=st.sampled_from(["unlink", "redaction", "why not"]))
    def revoke(self, reason: str) -> None:
        self.do(lambda state: cancel(state, reason, self.now, OPERATOR))

    @rule()
    def erase(self) -> None:
        self.do(lambda state: purge(state, "operator", self.now, OPERATOR))

    @rule(resend=st.booleans())
    def send_again(self, resend: bool) -> None:
        self.do(lambda state: replay(state, self.now, POLICY, OPERATOR, resend_unknown=resend))

    @rule(part=st.integers(1, 3), state=st.sampled_from(get_args(ReceiptState)))
    def receive(self, part: int, state: ReceiptState) -> None:
        self.do(lambda each: note_receipt(each, part, state, self.now))

    @invariant()
    def holds_its_promises(self) -> None:
        if self.keyed:
            return
        replays = sum(isinstance(event, DeliveryReplayed) for event in self.events)
        lost: Counter[int] = Counter()
        started = {event.n: event.part for event in self.events if isinstance(event, AttemptStarted)}
        last: dict[int, str] = {event.n: event.outcome for event in self.events if isinstance(event, AttemptEnded)}
        for n, outcome in last.items():
            lost[started[n]] += outcome == "unknown"
        assert all(count <= 2 * (replays + 1) for count in lost.values()), "keyless: twice over all crashes"

    @invariant()
    def is_read_back_as_it_was(self) -> None:
        stored = [
            DELIVERY_EVENTS.decode(each.type, each.version, msgspec.json.encode(each.payload())) for each in self.events
        ]
        assert stored == self.events

    def do(self, decide: Any) -> list[Any]:
        """Decide, fold, and see that an end is an end."""
        before = self.delivery
        try:
            decision = decide(before)
        except MinutebookError:
            return []
        added = [new.event for new in decision.events]
        for event in recorded(added, len(self.events)):
            self.delivery = evolve(self.delivery, event)
        self.events += added
        self._check(before, self.delivery, added)
        return added

    def _check(self, before: Delivery, now: Delivery, added: list[Any]) -> None:
        if before.is_ended and now.status != before.status:
            assert before.status == "dead", "only a dead letter comes back"
            assert isinstance(added[-1], DeliveryReplayed)
        if before.status == "accepted":
            assert not any(isinstance(event, AttemptStarted | AttemptEnded) for event in added)
        if now.is_ended and not before.is_ended:
            assert now.attempt is None or not now.attempt.is_open, "nothing is open behind an end"
        if now.is_purged and not before.is_purged:
            assert now.is_ended or now.is_withdrawn
        assert len(added) <= 3


DeliveryMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestDelivery = DeliveryMachine.TestCase
