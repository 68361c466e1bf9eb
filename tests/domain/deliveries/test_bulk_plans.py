"""Bulk plans: the class of each delivery, what a run touches, and the life of a plan."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from minutebook.domain.deliveries.bulk import (
    INITIAL,
    Bulk,
    BulkEnded,
    BulkPlanned,
    BulkStarted,
    Seen,
    begin,
    class_of,
    evolve,
    finish,
    is_run,
    lapse,
    planned,
    stop,
)
from minutebook.domain.errors import AlreadyEnded, Conflict, NotVisible
from minutebook.domain.events import Recorded
from minutebook.domain.principals import Principal
from minutebook.domain.times import stamp

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
OP = Principal("human", "op")
PLAN = BulkPlanned("p1", "replay", {"state": "dead"}, {"safe": 1}, 10, "mended", stamp(LATER))


def seen(status: Any, reason: str = "", *, payload: bool = True, doubt: bool = False, until: Any = LATER) -> Seen:
    """A delivery as its row shows it."""
    return Seen(status, reason, payload, doubt, until)


@pytest.mark.parametrize(
    ("of", "replay", "revoke", "purge"),
    [
        (seen("planned"), "would_duplicate", "safe", "safe"),
        (seen("waiting"), "would_duplicate", "safe", "safe"),
        (seen("attempting"), "would_duplicate", "unknown_outcome", "unknown_outcome"),
        (seen("unknown"), "would_duplicate", "unknown_outcome", "unknown_outcome"),
        (seen("accepted"), "would_duplicate", "would_duplicate", "safe"),
        (seen("dead"), "safe", "expired", "safe"),
        (seen("dead", doubt=True), "unknown_outcome", "expired", "safe"),
        (seen("dead", until=NOW), "expired", "expired", "safe"),
        (seen("dead", payload=False), "redacted", "redacted", "redacted"),
        (seen("cancelled", "wrong_person"), "revoked", "revoked", "safe"),
        (seen("cancelled", "redaction"), "redacted", "revoked", "safe"),
        (seen("expired"), "expired", "expired", "safe"),
    ],
)
def test_each_delivery_has_a_class(of: Seen, replay: str, revoke: str, purge: str) -> None:
    assert [class_of(action, of, NOW) for action in ("replay", "revoke", "purge")] == [replay, revoke, purge]


def test_a_run_touches_what_is_safe_and_what_is_in_doubt_where_that_was_said() -> None:
    assert is_run("replay", "safe", resend_unknown=False)
    assert not is_run("replay", "unknown_outcome", resend_unknown=False)
    assert is_run("replay", "unknown_outcome", resend_unknown=True)
    assert is_run("revoke", "unknown_outcome", resend_unknown=False)
    for class_ in ("would_duplicate", "revoked", "expired", "redacted"):
        assert not any(is_run(action, class_, resend_unknown=True) for action in ("replay", "revoke", "purge"))


def after(*events: Any) -> Bulk:
    """The state behind these."""
    state = INITIAL
    for event in events:
        state = evolve(state, Recorded(0, OP, None, None, event))
    return state


def test_a_plan_says_what_it_is_and_for_how_long() -> None:
    decision = planned("p1", "replay", {"state": "dead"}, {"safe": 1}, 10, "mended", NOW, OP, resend_unknown=False)
    assert [new.event for new in decision.events] == [PLAN]


def test_a_plan_is_run_once_and_in_time() -> None:
    with pytest.raises(NotVisible):
        begin(after(), NOW, OP)
    assert [new.event for new in begin(after(PLAN), NOW, OP).events] == [BulkStarted("p1")]
    assert begin(after(PLAN, BulkStarted("p1")), LATER, OP).events == ()
    with pytest.raises(Conflict):
        begin(after(PLAN), LATER, OP)
    for outcome in ("done", "stopped", "expired"):
        with pytest.raises(AlreadyEnded):
            begin(after(PLAN, BulkEnded("p1", outcome)), NOW, OP)


def test_a_plan_ends_once() -> None:
    running, ended = after(PLAN, BulkStarted("p1")), after(PLAN, BulkStarted("p1"), BulkEnded("p1", "stopped"))
    assert running.actor == OP
    assert [new.event for new in stop(running, OP).events] == [BulkEnded("p1", "stopped")]
    assert [new.event for new in finish(running, 3, 2, 1).events] == [BulkEnded("p1", "done", 3, 2, 1)]
    assert stop(running, OP).seal
    assert finish(running, 0, 0, 0).seal
    for decision in (stop(ended, OP), finish(ended, 1, 0, 0), finish(after(PLAN), 1, 0, 0), lapse(running, LATER)):
        assert decision.events == ()
    assert lapse(after(PLAN), NOW).events == ()
    assert [new.event for new in lapse(after(PLAN), LATER).events] == [BulkEnded("p1", "expired")]
    with pytest.raises(NotVisible):
        stop(after(), OP)
