"""What comes in over channels has a pace before anything of it is stored."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import RateLimited
from minutebook.http.inbound_pace import CHANNEL_BURST, MAX_SENDERS, SENDER_BURST, InboundPace


def refused_at(pace: InboundPace, native: str, most: int) -> int:
    """How many messages of a sender are taken at one moment."""
    for number in range(most):
        try:
            pace.of_sender("acme", "hook", native)
        except RateLimited:
            return number
    return most


def test_inbound_has_a_pace() -> None:
    now = 0.0
    pace = InboundPace(lambda: now)
    assert refused_at(pace, "ann", 100) == SENDER_BURST
    assert refused_at(pace, "bob", 100) == SENDER_BURST, "each sender has their own"
    now = 5.0
    assert refused_at(pace, "ann", 100) == 5
    for _ in range(CHANNEL_BURST):
        pace.of_channel("hook")
    with pytest.raises(RateLimited) as refused:
        pace.of_channel("hook")
    assert 0 < refused.value.attributes["retryAfterMs"] <= 11
    pace.of_channel("other")


def test_senders_that_are_forgotten_cost_no_memory() -> None:
    pace = InboundPace(lambda: 0.0)
    for number in range(MAX_SENDERS + 10):
        pace.of_sender("acme", "hook", str(number))
    assert refused_at(pace, str(MAX_SENDERS), 100) == SENDER_BURST - 1
    assert refused_at(pace, "0", 100) == SENDER_BURST, "it was silent for the longest, and begins anew"
