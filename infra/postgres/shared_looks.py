"""Look-ups of many at the same moment as one: those that ask while a look is under way share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from ...commands.deliveries.ports import Bound, Encoded
from .delivery_payloads import PostgresPayloads
from .delivery_rows import PostgresDeliveryRows

K = TypeVar("K")
V = TypeVar("V")

MOST = 64
"""Asked for by one look: each payload may be large."""


class SharedLooks(Generic[K, V]):
    """find: what there is of these keys."""

    def __init__(self, find: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._find = find
        self._asked: dict[K, asyncio.Future[V | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def of(self, key: K) -> V | None:
        """None where there is none. The look begins after this call. Raises as `find` does."""
        future = self._asked.get(key)
        if future is None:
            future = self._asked[key] = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._look())
        return await asyncio.shield(future)

    async def _look(self) -> None:
        while self._asked:
            keys = list(self._asked)[:MOST]
            asked = {key: self._asked.pop(key) for key in keys}
            try:
                found = await self._find(keys)
            except Exception as error:  # noqa: BLE001 - whoever asked is told
                for future in asked.values():
                    future.set_exception(error)
                continue
            for key, future in asked.items():
                future.set_result(found.get(key))
        self._task = None


class PostgresHeads(SharedLooks[int, int]):
    """Heads of commands/deliveries/sending.py."""

    def __init__(self, rows: PostgresDeliveryRows) -> None:
        super().__init__(rows.versions)


class PostgresSealed(SharedLooks[str, tuple[Bound, Encoded]]):
    """Sealed of commands/deliveries/sending.py."""

    def __init__(self, payloads: PostgresPayloads) -> None:
        super().__init__(self._get)
        self._payloads = payloads

    async def _get(self, ids: Sequence[str]) -> Mapping[str, tuple[Bound, Encoded]]:
        return await self._payloads.get(ids)
