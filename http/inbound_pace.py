"""How much a process takes in over channels: of each channel, and of each of its senders."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from msgspec import Struct

from ..domain.errors import RateLimited

CHANNEL_PER_SECOND = 100.0
CHANNEL_BURST = 1000
"""Proven requests of one channel."""

SENDER_PER_SECOND = 1.0
SENDER_BURST = 30
"""Messages for the agent of one sender."""

MAX_SENDERS = 10_000
"""Senders whose pace is remembered; who was silent for the longest is forgotten first, with a full burst."""


class _Left(Struct):
    tokens: float
    at: float


class _Buckets:
    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._left: OrderedDict[Hashable, _Left] = OrderedDict()

    def take(self, who: Hashable) -> None:
        now = self._clock()
        left = self._left.setdefault(who, _Left(self._burst, now))
        self._left.move_to_end(who)
        if len(self._left) > MAX_SENDERS:
            self._left.popitem(last=False)
        left.tokens = min(self._burst, left.tokens + (now - left.at) * self._per_second)
        left.at = now
        if left.tokens < 1:
            wait_ms = int((1 - left.tokens) / self._per_second * 1000) + 1
            raise RateLimited("Too many messages come in; slow down.", retryAfterMs=wait_ms)
        left.tokens -= 1


class InboundPace:
    """Pace of commands/channels/inbound_ports.py. One per process. clock: seconds that never run back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._channels = _Buckets(CHANNEL_PER_SECOND, CHANNEL_BURST, clock)
        self._senders = _Buckets(SENDER_PER_SECOND, SENDER_BURST, clock)

    def of_channel(self, channel: str) -> None:
        """See Pace."""
        self._channels.take(channel)

    def of_sender(self, tenant: str, channel: str, native: str) -> None:
        """See Pace."""
        self._senders.take((tenant, channel, native))
