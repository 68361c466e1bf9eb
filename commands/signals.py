"""What operators follow of an answer on its way, from the inbound request to every attempt (delivery.md, Operators)."""

from __future__ import annotations

from typing import Literal, Protocol

Signal = Literal[
    "link_attempt", "authz_decision", "delivery_scheduled", "delivery_attempt", "retry", "replay", "dead_letter"
]
"""One thing that happened. Names of spans, counters and lines of the log, so they are never changed."""


class Signals(Protocol):
    """Hears of each, for metrics, traces and the log. It neither raises nor waits."""

    def tell(
        self,
        signal: Signal,
        channel: str,
        outcome: str,
        reason: str = "",
        *,
        correlation_id: str = "",
        seconds: float = 0.0,
    ) -> None:
        """Something has happened just now, and took so long.

        channel: its name in the settings. outcome, reason: codes of ours, never words of anybody. correlation_id: the
        ULID of the inbound request that it all comes from, where it is known.
        """
        ...


class Silence:
    """Signals that nobody hears."""

    def tell(
        self,
        signal: Signal,
        channel: str,
        outcome: str,
        reason: str = "",
        *,
        correlation_id: str = "",
        seconds: float = 0.0,
    ) -> None:
        """See Signals."""


SILENCE = Silence()
