"""Channels stopped and let go: what each command appends, and until when it holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from minutebook.domain.channels.pausing import (
    INITIAL,
    ChannelPaused,
    ChannelResumed,
    ChannelState,
    evolve,
    pause,
    resume,
)
from minutebook.domain.errors import Invalid
from minutebook.domain.events import Opaque, Recorded
from minutebook.domain.principals import Principal
from minutebook.domain.times import stamp

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SOON = NOW + timedelta(minutes=5)
OP = Principal("human", "op")


def after(*events: ChannelPaused | ChannelResumed | Opaque) -> ChannelState:
    """The state behind these."""
    state = INITIAL
    for event in events:
        state = evolve(state, Recorded(0, OP, None, None, event))
    return state


def events(state: ChannelState, reason: str = "maintenance", until: datetime | None = None) -> list[object]:
    """What pausing appends."""
    return [new.event for new in pause(state, "hook", reason, until, NOW, OP).events]


def test_a_pause_holds_until_its_end_or_a_resume() -> None:
    for_ever, for_a_while = ChannelPaused("hook", "maintenance"), ChannelPaused("hook", "maintenance", stamp(SOON))
    assert not after().is_paused(NOW)
    assert after(for_ever).is_paused(NOW + timedelta(days=999))
    assert (after(for_a_while).is_paused(NOW), after(for_a_while).is_paused(SOON)) == (True, False)
    assert not after(for_ever, ChannelResumed("hook", "mended")).is_paused(NOW)


def test_the_same_pause_again_changes_nothing_and_another_one_does() -> None:
    paused = after(ChannelPaused("hook", "maintenance"))
    assert events(after()) == [ChannelPaused("hook", "maintenance")]
    assert events(paused) == []
    assert events(paused, "overload") == [ChannelPaused("hook", "overload")]
    assert events(paused, until=SOON) == [ChannelPaused("hook", "maintenance", stamp(SOON))]
    lapsed = after(ChannelPaused("hook", "maintenance", stamp(NOW)))
    assert events(lapsed) == [ChannelPaused("hook", "maintenance")]


def test_words_of_an_operator_do_not_enter_the_log() -> None:
    assert events(after(), "Because Olga said so.") == [ChannelPaused("hook", "operator")]


def test_an_end_that_is_over_is_refused() -> None:
    for until in (NOW, NOW - timedelta(days=1)):
        with pytest.raises(Invalid):
            events(after(), until=until)


def test_only_what_is_stopped_is_let_go() -> None:
    def resumed(state: ChannelState) -> list[object]:
        return [new.event for new in resume(state, "hook", "mended", NOW, OP).events]

    assert resumed(after()) == []
    assert resumed(after(ChannelPaused("hook", "maintenance", stamp(NOW)))) == []
    assert resumed(after(ChannelPaused("hook", "maintenance"))) == [ChannelResumed("hook", "mended")]
