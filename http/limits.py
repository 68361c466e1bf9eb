"""What one principal may take of this process: commands a second, open streams, a place among a room's followers.

Every limit is looked at once the caller is authorized: who may not see a room hears 404, never 429 (rooms.md, Limits).
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator
from typing import TypeVar

from msgspec import Struct

from ..domain.errors import RateLimited
from ..domain.principals import Caller
from ..infra.settings import LimitSettings

MAX_PRINCIPALS = 10_000
"""Principals whose pace is remembered; who was silent for the longest is forgotten first, with a full burst."""

RETRY_STREAM_MS = 5_000
"""When whoever met a full house may try again: a place is free once somebody leaves."""

Who = tuple[str, str]
T = TypeVar("T")


class _Pace(Struct):
    tokens: float
    at: float


class Limits:
    """One per process. clock: seconds that never run back."""

    def __init__(self, settings: LimitSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._paces: OrderedDict[Who, _Pace] = OrderedDict()
        self._streams: Counter[Who] = Counter()
        self._rooms: dict[str, Counter[Who]] = {}

    def admit(self, caller: Caller) -> Callable[[], None]:
        """The limit on commands (commands.beside.Admit): each counts once, however often it is decided."""
        refusal: RateLimited | None = None
        is_counted = False

        def once() -> None:
            nonlocal refusal, is_counted
            if not is_counted:
                is_counted = True
                refusal = self._take(who_of(caller))
            if refusal is not None:
                raise refusal

        return once

    def _take(self, who: Who) -> RateLimited | None:
        now, settings = self._clock(), self._settings
        pace = self._paces.get(who)
        if pace is None:
            pace = self._paces[who] = _Pace(float(settings.action_burst), now)
            if len(self._paces) > MAX_PRINCIPALS:
                self._paces.popitem(last=False)
        else:
            self._paces.move_to_end(who)
            regained = (now - pace.at) * settings.actions_per_second
            pace.tokens, pace.at = min(float(settings.action_burst), pace.tokens + regained), now
        if pace.tokens < 1:
            wait_ms = int((1 - pace.tokens) / settings.actions_per_second * 1000) + 1
            return RateLimited(
                f"At most {settings.actions_per_second} commands a second are taken from one caller, and"
                f" {settings.action_burst} at once; slow down.",
                retryAfterMs=wait_ms,
            )
        pace.tokens -= 1
        return None

    def check_stream(self, caller: Caller, room_id: str, *, is_always_admitted: bool) -> None:
        """Whether the caller may follow that room, too. Raises RateLimited.

        is_always_admitted: driver, owner or approver, who find a place in a full room; their own streams count all the
        same.
        """
        who = who_of(caller)
        if self._streams[who] >= self._settings.streams_per_principal:
            raise RateLimited(
                f"You have {self._settings.streams_per_principal} streams open; close one first.",
                retryAfterMs=RETRY_STREAM_MS,
            )
        here = self._rooms.get(room_id, Counter())
        is_full = len(here) >= self._settings.people_per_room and who not in here
        if is_full and caller.principal.kind == "human" and not is_always_admitted:
            raise RateLimited(
                f"{self._settings.people_per_room} people follow this room already; try again later.",
                retryAfterMs=RETRY_STREAM_MS,
            )

    @contextlib.contextmanager
    def stream(self, caller: Caller, room_id: str) -> Generator[None]:
        """Counts a stream for as long as the block runs; to be entered right after `check_stream`, with nothing awaited
        between them. Only people count among a room's followers."""
        who = who_of(caller)
        self._streams[who] += 1
        here = self._rooms.setdefault(room_id, Counter())
        if caller.principal.kind == "human":
            here[who] += 1
        try:
            yield
        finally:
            less(self._streams, who)
            less(here, who)
            if not here:
                self._rooms.pop(room_id, None)


def who_of(caller: Caller) -> Who:
    """Whom a limit counts: a principal of a tenant."""
    return caller.tenant, str(caller.principal)


def less(counts: Counter[T], key: T) -> None:
    """One less of it; nothing is kept of what there is none of."""
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
