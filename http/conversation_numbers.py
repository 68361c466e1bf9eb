"""The work on conversations in numbers, for Prometheus. No label ever holds a conversation, a person or words."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

FIRST_DELTA_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TURN_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0)


class ConversationNumbers:
    """Notes of commands/conversations/means.py. One per process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._turns = Counter("minutebook_turns", "Turns that ended here, by status.", ["status"], registry=registry)
        self._attempts = Counter("minutebook_turn_attempts", "Times that a turn was taken up here.", registry=registry)
        self._first_delta = Histogram(
            "minutebook_first_delta_seconds",
            "From taking a turn up to the first words of its reply.",
            buckets=FIRST_DELTA_S,
            registry=registry,
        )
        self._seconds = Histogram(
            "minutebook_turn_seconds", "From taking a turn up to its end.", buckets=TURN_S, registry=registry
        )
        for status in ("completed", "interrupted", "failed"):
            self._turns.labels(status)

    def attempt(self) -> None:
        """See Notes.attempt."""
        self._attempts.inc()

    def first_delta(self, seconds: float) -> None:
        """See Notes.first_delta."""
        self._first_delta.observe(seconds)

    def turn(self, status: str, seconds: float) -> None:
        """See Notes.turn."""
        self._turns.labels(status).inc()
        self._seconds.observe(seconds)
