"""When a job is tried again."""

from __future__ import annotations

import random

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """Exponential with full jitter, so that an outage does not end in a storm (field fault B69): the n-th wait is
    anything up to first_s * growth ** (n - 1), at most cap_s. Times in seconds."""

    attempts: int = 8
    first_s: float = 1
    growth: float = 4
    cap_s: float = 3600

    def wait_s(self, attempt: int, asked_s: float | None = None) -> float:
        """The wait after that attempt (1 is the first), not shorter than what the other side asked for, up to cap_s."""
        longest = min(self.cap_s, self.first_s * self.growth ** min(attempt - 1, 32))
        wait = random.uniform(0, longest)  # noqa: S311 - spreads load only
        return wait if asked_s is None else min(self.cap_s, max(0.0, asked_s) + wait)
