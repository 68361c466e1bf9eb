"""When a part is sent again, and the bounds of a delivery. Randomness and time are handed in."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from ..times import stamp

MAX_PARTS = 64
"""Of one delivery, split pieces included."""

MAX_SENDS = 1000
"""Of one delivery, all parts and replays together; a replay beyond has one. What reads its stream reads all of it."""

UNKNOWN_SENDS = 2
"""Sends of a part without any known outcome, where the platform takes no key of ours."""

MAX_ASKED_S = 3600.0
"""Longest wait that a platform may ask for, whatever the channel's own longest wait is."""

DAY_S = 86_400.0


class Policy(Struct, frozen=True):
    """Bounds of a channel's deliveries, in seconds. attempts: sends of one part, until it is replayed.

    first_s, growth, cap_s: the n-th wait is anything up to first_s * growth ** (n - 1), at most cap_s. timeout_s: of an
    attempt, whose lease is longer by grace_s: time to record its end. expiry_s: from the plan, or the replay. order_s:
    how long a delivery holds back later ones of its conversation and destination. replay_s: from the death; receipt_s:
    from acceptance.
    """

    attempts: int = 8
    first_s: float = 1.0
    growth: float = 4.0
    cap_s: float = 3600.0
    timeout_s: float = 10.0
    grace_s: float = 10.0
    expiry_s: float = DAY_S
    order_s: float = 600.0
    replay_s: float = 7 * DAY_S
    receipt_s: float = 7 * DAY_S

    @property
    def lease_s(self) -> float:
        """After so long whoever began an attempt is gone."""
        return self.timeout_s + self.grace_s

    def wait_s(self, tries: int, draw: float, asked_s: float | None = None) -> float:
        """The wait after so many tries; `draw` is uniform in [0, 1). What the platform asks for is honoured, up to
        MAX_ASKED_S, with the jitter behind it: a crowd that was told the same second does not come back in it."""
        longest = min(self.cap_s, self.first_s * self.growth ** min(max(tries, 1) - 1, 32))
        wait = longest * draw
        return wait if asked_s is None else clamped(asked_s) + wait


def clamped(asked_s: float) -> float:
    """A wait that a platform asks for, as far as it is honoured."""
    return min(MAX_ASKED_S, max(0.0, asked_s))


def after(now: datetime, seconds: float) -> str:
    """A moment as events write it."""
    return stamp(now + timedelta(seconds=seconds))
