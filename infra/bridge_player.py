"""A recorded run, played into a room by a bridge as its harness would have fed it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ..domain.rooms.commands import ClaimedReason
from .api_client import Api
from .bridge_client import Bridge, Hello
from .bridge_pusher import BATCH_ITEMS
from .harness_log import Recording
from .swe_agent import Item

Progress = Callable[[int, int], None]
"""Told how many items the room has, and how many there are in all."""


class Played(msgspec.Struct, frozen=True, rename="camel"):
    """What came of it. already: items that the room had from an earlier try. seq: the room's last one."""

    room: str
    run_id: str
    items: int
    already: int
    reason: str
    seq: int


class Player:
    """Pushes the items of one run, in order, each exactly once whatever the connection does.

    wait_s: how long to wait before an item. `together`: push as many items as one batch takes and wait for nothing;
    else each item is a batch of its own, so that an item can name what caused it by its seq in the room.
    """

    def __init__(
        self,
        api: Api,
        run_id: str,
        items: Sequence[Item],
        reason: ClaimedReason,
        *,
        wait_s: Callable[[Item], float],
        together: bool = False,
        told: Progress | None = None,
    ) -> None:
        self._run_id = run_id
        self._total = len(items)
        self._reason: ClaimedReason = reason
        source = Recording(items, reason, wait_s)
        most = BATCH_ITEMS if together else 1
        self._bridge = Bridge(api, run_id, source, most=most, told=None if told is None else self._teller(told))

    def _teller(self, told: Progress) -> Callable[[int], None]:
        return lambda stored: told(min(stored, self._total), self._total)

    async def hello(self) -> Hello:
        """See Bridge.hello."""
        return await self._bridge.hello()

    async def play(self, hello: Hello) -> Played:
        """Push what the room does not have yet, then say bye. Raises as Bridge.run does."""
        await self._bridge.run()
        seq = await self._bridge.bye()
        already = min(hello.after_harness_seq, self._total)
        return Played(hello.room_id, self._run_id, self._total, already, self._reason, seq)
