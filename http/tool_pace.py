"""How often a run may use its room tools (rooms.md, Room tools over MCP)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from ..domain.errors import RateLimited

Run = tuple[str, str]
"""Tenant and run id."""

MAX_PACED_RUNS = 10_000
"""Runs that are remembered; beyond it the one whose call is longest ago is forgotten first."""


class ToolPace:
    """One call an interval for each run, counted in this process. clock: seconds that never go back.

    A refused call counts for nothing, so that whoever asks too often is not locked out.
    """

    def __init__(self, interval_s: float, clock: Callable[[], float]) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._last: OrderedDict[Run, float] = OrderedDict()

    def take(self, run: Run) -> None:
        """Count a call of the run. Raises RateLimited, with `retryAfterMs`, where its last one is too short ago."""
        now = self._clock()
        self._forget(now)
        last = self._last.get(run)
        if last is not None:
            wait_ms = max(1, round((last + self._interval_s - now) * 1000))
            raise RateLimited(
                f"A run has one call of its room tools every {self._interval_s:g} s; wait, then call again.",
                retryAfterMs=wait_ms,
            )
        self._last[run] = now

    def admit(self, run: Run) -> Callable[[], None]:
        """`take` for a command, which is decided again where somebody else appended first: it counts once."""
        is_counted = False

        def once() -> None:
            nonlocal is_counted
            if not is_counted:
                self.take(run)
                is_counted = True

        return once

    @property
    def remembered(self) -> int:
        """Runs that are remembered now."""
        return len(self._last)

    def _forget(self, now: float) -> None:
        """Drop the runs that may call again: the oldest call comes first."""
        while self._last:
            run, last = next(iter(self._last.items()))
            if now - last < self._interval_s and len(self._last) < MAX_PACED_RUNS:
                return
            del self._last[run]
