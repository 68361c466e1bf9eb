"""A delivery on its way: retries, parts, crash windows, expiry, receipts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from delivery_samples import HERE, ID, NOW, planning
from gwt import Given, recorded
from minutebook.domain.deliveries.decide import Planning, Sent, claim, note_receipt, plan, settle
from minutebook.domain.deliveries.events import AttemptEnded, AttemptStarted, OrderReleased, PartKind
from minutebook.domain.deliveries.lanes import LANE, lane_of
from minutebook.domain.deliveries.operate import cancel, purge, replay
from minutebook.domain.deliveries.retry import MAX_SENDS, Policy
from minutebook.domain.deliveries.state import INITIAL, Delivery, evolve
from minutebook.domain.errors import AlreadyEnded, Invalid, NotReplayable, NotVisible
from minutebook.domain.principals import Principal

POLICY = Policy()
OPERATOR = Principal("human", "op")
DAY = timedelta(days=1)


class Course:
    """A delivery that is moved by decisions, with a clock of its own."""

    def __init__(self, *parts: PartKind, keyed: bool = True, policy: Policy = POLICY) -> None:
        self.now = NOW
        self.policy = policy
        self.events: list[Any] = []
        self.do(lambda _state: plan(planning(*parts, keyed=keyed), self.now, policy))

    @property
    def state(self) -> Delivery:
        return Given(evolve, INITIAL, tuple(self.events)).state

    def do(self, decide: Callable[[Delivery], Any]) -> list[Any]:
        """What the decision adds."""
        added = [new.event for new in decide(self.state).events]
        self.events += added
        return added

    def claim(self, behind: str | None = None) -> list[Any]:
        return self.do(lambda state: claim(state, self.now, self.policy, 0.5, behind))

    def settle(self, outcome: Any, reason: str = "", n: int | None = None, asked: float | None = None) -> list[Any]:
        sent = Sent(outcome, reason, asked)
        return self.do(lambda state: settle(state, n or state.attempts, sent, self.now, self.policy, 0.5))

    def pass_time(self, **spans: float) -> None:
        self.now += timedelta(**spans)

    def until_due(self) -> None:
        """To the moment at which something is due again."""
        self.now = max(self.now, datetime.fromisoformat(self.state.next_at))

    def attempt(self, outcome: Any, reason: str = "") -> None:
        self.until_due()
        assert isinstance(self.claim()[-1], AttemptStarted)
        self.settle(outcome, reason)


def test_a_send_is_accepted_and_never_begun_again() -> None:
    course = Course()
    (started,) = course.claim()
    assert (started.n, started.part, started.key) == (1, 1, f"{ID}.1")
    assert course.claim() == []
    course.settle("accepted")
    assert course.state.status == "accepted"
    course.pass_time(days=30)
    assert course.claim() == []
    assert course.settle("unknown") == []


def test_a_failing_send_is_tried_eight_times_and_dies() -> None:
    course = Course()
    waits = []
    for _ in range(7):
        course.attempt("retry", "http_503")
        assert course.state.status == "waiting"
        waits.append((datetime.fromisoformat(course.state.next_at) - course.now).total_seconds())
    assert waits == [0.5, 2, 8, 32, 128, 512, 1800]
    course.attempt("retry", "http_503")
    assert (course.state.status, course.state.reason) == ("dead", "attempts_used")


def test_all_parts_and_replays_together_have_a_bound() -> None:
    """Else a stream could become longer than what is read of it, and its delivery would have no end."""
    course = Course("reply", "reply", policy=Policy(attempts=100_000, first_s=0, expiry_s=10**9))
    for _ in range(MAX_SENDS):
        course.attempt("retry", "http_503")
    assert (course.state.status, course.state.reason, course.state.attempts) == ("dead", "attempts_used", MAX_SENDS)
    course.do(lambda state: replay(state, course.now, POLICY, OPERATOR))
    course.attempt("retry", "http_503")
    assert course.state.status == "dead", "a replay has one send left"


def test_what_the_platform_asks_for_is_clamped() -> None:
    course = Course()
    course.claim()
    (ended,) = course.settle("retry", "http_429", asked=86_400)
    assert ended.retry_after_s == 3600
    assert course.state.next_at == "2026-11-30T13:00:00.500000Z"
    assert course.claim() == []


@pytest.mark.parametrize("asked", [120, 3600, 86_400])
def test_what_the_platform_asks_for_counts_beyond_the_channel_s_own_longest_wait(asked: float) -> None:
    """And whoever was told the same second does not come back in it, at the clamp as little as below."""
    policy = Policy(cap_s=10)
    waits = [policy.wait_s(5, draw, asked) - min(asked, 3600) for draw in (0, 0.25, 0.5)]
    assert waits == [0, 2.5, 5]
    course = Course(policy=policy)
    course.claim()
    (ended,) = course.settle("retry", "http_429", asked=asked)
    assert ended.retry_after_s == min(asked, 3600)
    assert (datetime.fromisoformat(course.state.next_at) - course.now).total_seconds() >= min(asked, 3600)


def test_a_permanent_error_is_not_tried_again() -> None:
    course = Course()
    course.attempt("permanent", "http_410")
    assert (course.state.status, course.state.reason) == ("dead", "http_410")


def test_accepted_parts_are_skipped() -> None:
    course = Course("reply", "reply", "reply")
    course.attempt("accepted")
    course.attempt("retry", "http_500")
    course.attempt("accepted")
    course.attempt("accepted")
    parts = [event.part for event in course.events if isinstance(event, AttemptStarted)]
    assert (parts, course.state.status) == ([1, 2, 2, 3], "accepted")


@pytest.mark.parametrize("outcome", ["retry", "permanent", "unknown"])
def test_a_failed_echo_never_blocks_the_reply(outcome: str) -> None:
    course = Course("echo", "reply")
    course.attempt(outcome, "http_400")
    course.attempt("accepted")
    assert course.state.status == "accepted"
    assert [part.state for part in course.state.parts] == ["dropped", "accepted"]


def test_a_lone_echo_that_fails_is_a_dead_letter() -> None:
    course = Course("echo")
    course.attempt("permanent", "http_410")
    assert (course.state.status, course.state.reason) == ("dead", "http_410")


def test_an_attempt_without_an_end_becomes_unknown_once_its_lease_is_gone() -> None:
    course = Course()
    course.claim()
    course.pass_time(seconds=19)
    assert course.claim() == []
    course.pass_time(seconds=1)
    (ended,) = course.claim()
    assert (ended.outcome, ended.state, ended.reason) == ("unknown", "unknown", "crash")
    course.until_due()
    (started,) = course.claim()
    assert (started.n, started.key) == (2, f"{ID}.1")


def crash(course: Course) -> None:
    course.until_due()
    course.claim()
    course.pass_time(seconds=21)
    course.claim()


def test_without_a_key_a_part_is_sent_twice_over_all_crashes() -> None:
    course = Course(keyed=False)
    crash(course)
    assert course.state.status == "unknown"
    crash(course)
    assert (course.state.status, course.state.reason) == ("dead", "unknown_outcome")
    assert course.state.attempts == 2


def test_with_a_key_it_is_sent_again_within_the_bound() -> None:
    course = Course()
    for _ in range(8):
        crash(course)
    assert (course.state.status, course.state.reason, course.state.attempts) == ("dead", "unknown_outcome", 8)


def test_a_late_answer_counts_while_nothing_was_sent_again() -> None:
    course = Course(keyed=False)
    crash(course)
    course.settle("accepted", n=1)
    assert course.state.status == "accepted"
    again = Course(keyed=False)
    crash(again)
    again.until_due()
    again.claim()
    assert again.settle("accepted", n=1) == []


def test_proof_that_nothing_arrived_takes_the_doubt_back() -> None:
    course = Course(keyed=False)
    crash(course)
    course.settle("retry", "not_arrived", n=1)
    assert (course.state.status, course.state.is_in_doubt) == ("waiting", False)
    crash(course)
    assert course.state.status == "unknown"


def test_it_expires_and_says_so_once() -> None:
    course = Course()
    course.attempt("retry", "http_500")
    course.now = NOW + DAY
    assert [type(event).__name__ for event in course.claim()] == ["DeliveryExpired"]
    assert course.claim() == []
    assert course.state.status == "expired"


def test_what_may_have_arrived_does_not_expire_but_dies() -> None:
    course = Course()
    crash(course)
    course.now = NOW + DAY
    course.claim()
    assert (course.state.status, course.state.reason) == ("dead", "unknown_outcome")


def test_a_wait_is_never_longer_than_the_expiry() -> None:
    course = Course(policy=Policy(expiry_s=60))
    course.claim()
    course.settle("retry", "http_429", asked=3600)
    assert course.state.next_at == course.state.expires_at


def test_what_goes_before_its_turn_says_so_once() -> None:
    course = Course()
    first = course.claim(behind="deli" * 6 + "bb")
    assert [type(event) for event in first] == [OrderReleased, AttemptStarted]
    course.settle("retry", "http_500")
    course.until_due()
    assert [type(event) for event in course.claim(behind="deli" * 6 + "bb")] == [AttemptStarted]


def test_a_cancelled_delivery_is_not_sent() -> None:
    course = Course()
    course.do(lambda state: cancel(state, "unlink", course.now, OPERATOR))
    assert course.claim() == []
    assert course.do(lambda state: cancel(state, "again", course.now, OPERATOR)) == []
    assert (course.state.status, course.state.reason) == ("cancelled", "unlink")


@pytest.mark.parametrize(
    ("outcome", "state"),
    [("accepted", "accepted"), ("retry", "cancelled"), ("unknown", "cancelled"), ("withdrawn", "cancelled")],
)
def test_a_send_that_has_begun_is_recorded_as_what_it_became(outcome: str, state: str) -> None:
    course = Course()
    course.claim()
    course.do(lambda each: cancel(each, "unlink", course.now, OPERATOR))
    assert course.state.status == "attempting"
    course.settle(outcome)
    assert course.state.status == state
    assert course.claim() == []


def test_a_cancelled_send_whose_sender_died_is_cancelled() -> None:
    course = Course("reply", "reply")
    course.claim()
    course.do(lambda each: cancel(each, "unlink", course.now, OPERATOR))
    course.pass_time(seconds=21)
    course.claim()
    assert (course.state.status, course.state.reason) == ("cancelled", "unlink")


def test_what_has_ended_is_not_cancelled() -> None:
    course = Course()
    course.attempt("accepted")
    with pytest.raises(AlreadyEnded):
        cancel(course.state, "unlink", course.now, OPERATOR)
    with pytest.raises(NotVisible):
        cancel(INITIAL, "unlink", course.now, OPERATOR)


def test_a_replay_is_the_same_delivery_with_its_accepted_parts() -> None:
    course = Course("reply", "reply")
    course.attempt("accepted")
    course.attempt("permanent", "http_410")
    course.pass_time(days=6)
    course.do(lambda state: replay(state, course.now, POLICY, OPERATOR))
    assert (course.state.status, course.state.next_part) != ("dead", None)
    course.attempt("accepted")
    assert course.state.status == "accepted"
    assert [event.key for event in course.events if isinstance(event, AttemptStarted)] == [
        f"{ID}.1",
        f"{ID}.2",
        f"{ID}.2",
    ]


def dead(outcome: str = "permanent") -> Course:
    course = Course()
    course.attempt(outcome, "gone")
    return course


def purged() -> Course:
    course = dead()
    course.do(lambda state: purge(state, "operator", course.now, OPERATOR))
    return course


def old() -> Course:
    course = dead()
    course.pass_time(days=7)
    return course


def ended(reason: str) -> Course:
    course = Course()
    course.do(lambda state: cancel(state, reason, course.now, OPERATOR))
    return course


def doubtful() -> Course:
    course = Course(keyed=False)
    crash(course)
    crash(course)
    return course


def expired() -> Course:
    course = Course()
    course.pass_time(days=1)
    course.claim()
    return course


REFUSED: dict[str, Callable[[], Course]] = {
    "inFlight": Course,
    "accepted": partial(dead, "accepted"),
    "expired": expired,
    "revoked": partial(ended, "because I say so"),
    "unlink": partial(ended, "unlink"),
    "redaction": partial(ended, "redaction"),
    "purge": purged,
    "replayWindow": old,
    "unknownOutcome": doubtful,
}


@pytest.mark.parametrize("cause", REFUSED)
def test_a_replay_is_refused_with_its_cause(cause: str) -> None:
    course = REFUSED[cause]()
    with pytest.raises(NotReplayable) as refused:
        replay(course.state, course.now, POLICY, OPERATOR)
    assert refused.value.attributes == {"cause": cause}


def test_an_unknown_outcome_is_sent_again_where_the_operator_says_so() -> None:
    course = doubtful()
    course.do(lambda state: replay(state, course.now, POLICY, OPERATOR, resend_unknown=True))
    crash(course)
    assert course.state.status == "unknown"


def test_a_purge_ends_what_has_not_ended_and_leaves_the_tombstone() -> None:
    course = Course()
    course.do(lambda state: purge(state, "operator", course.now, OPERATOR))
    assert (course.state.status, course.state.is_purged) == ("cancelled", True)
    assert course.do(lambda state: purge(state, "operator", course.now, OPERATOR)) == []


def test_receipts_go_forward_only_on_what_was_accepted() -> None:
    course = Course()

    def receive(state: Any) -> list[Any]:
        return course.do(lambda each: note_receipt(each, 1, state, course.now))

    assert receive("delivered") == []
    course.attempt("accepted")
    assert len(receive("delivered")) == 1
    assert receive("delivered") == receive("failed") == []
    assert len(receive("observed")) == 1
    assert receive("delivered") == []
    assert course.do(lambda each: note_receipt(each, 2, "observed", course.now)) == []
    course.pass_time(days=7)
    assert course.do(lambda each: note_receipt(each, 1, "observed", course.now)) == []
    assert course.state.status == "accepted"


def test_a_receipt_is_taken_of_the_part_that_is_being_sent_alone() -> None:
    course = Course("reply", "reply")

    def receive(part: int) -> list[Any]:
        return course.do(lambda each: note_receipt(each, part, "delivered", course.now))

    course.claim()
    assert receive(2) == []
    assert len(receive(1)) == 1
    course.settle("accepted")
    assert course.state.parts[0].receipt == "delivered"
    course.attempt("unknown")
    assert receive(2) == [], "nobody is sending it"


def test_operators_words_stay_out_of_the_log() -> None:
    (event,) = cancel(Course().state, "the customer Ann called", NOW, OPERATOR).events
    assert event.event.payload() == {"reason": "operator"}


@pytest.mark.parametrize("bad", [{"delivery_id": "short"}, {"destination": "ann@example.org"}, {"parts": ()}])
def test_a_plan_is_what_it_must_be(bad: dict[str, Any]) -> None:
    good = planning()
    fields = {name: getattr(good, name) for name in good.__struct_fields__}
    with pytest.raises(Invalid):
        plan(Planning(**{**fields, **bad}), NOW, POLICY)


def test_lanes_follow_the_conversation() -> None:
    def planned(end: str) -> Any:
        return plan(planning(conversation="conv" * 6 + "aa", id_="deli" * 6 + end), NOW, POLICY).events[0].event

    first, second = planned("aa"), planned("bb")
    assert (first.lane, first.order) == (second.lane, second.order)
    assert {lane_of(HERE, str(n)) for n in range(100)} == {f"{HERE}/{n}" for n in range(4)}
    assert all(LANE.fullmatch(lane_of(HERE, str(n), 999)) for n in range(100))


def test_an_end_of_another_attempt_changes_nothing() -> None:
    course = Course()
    course.claim()
    assert course.settle("accepted", n=2) == []
    stranger = recorded([AttemptEnded(9, "accepted", "accepted")])[0]
    assert evolve(course.state, stranger) == course.state
