"""A provider with limits in time that hold whatever it does, also where it ignores that it was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import structlog

from ...commands.conversations.ports import ModelError, ModelPart, ModelProvider, ModelRequest

MAX_WAITING_PARTS = 64
"""Parts of an answer that are read ahead of whoever wants them."""

GRACE_S = 1.0
"""How long a provider may take to end a call that nobody waits for."""

_END = object()

log = structlog.get_logger(__name__)


class LimitedProvider:
    """first_s: longest wait for the first part, the provider's own retries included; idle_s: for every next one."""

    def __init__(self, provider: ModelProvider, first_s: float, idle_s: float) -> None:
        self._provider = provider
        self._first_s = first_s
        self._idle_s = idle_s
        self.name = provider.name
        self._stray: set[asyncio.Task[None]] = set()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """See ModelProvider."""
        parts: asyncio.Queue[object] = asyncio.Queue(MAX_WAITING_PARTS)
        reading = asyncio.create_task(_read(self._provider, request, parts))
        limit_s, wanted = self._first_s, "first"
        try:
            while (part := await _next(parts, limit_s, wanted)) is not _END:
                if isinstance(part, Exception):
                    raise part
                yield part  # pyright: ignore[reportReturnType] - what _read puts beside its end and its error
                limit_s, wanted = self._idle_s, "next"
        finally:
            await self._ended(reading)

    async def _ended(self, reading: asyncio.Task[None]) -> None:
        if reading.done():
            return
        reading.cancel()
        self._stray.add(reading)
        reading.add_done_callback(self._stray.discard)
        await asyncio.wait({reading}, timeout=GRACE_S)
        if not reading.done():
            log.warning("a model call goes on though it was cancelled", model=self.name)


async def _next(parts: asyncio.Queue[object], limit_s: float, wanted: str) -> object:
    if not parts.empty():
        return parts.get_nowait()
    try:
        async with asyncio.timeout(limit_s):
            return await parts.get()
    except TimeoutError:
        raise ModelError(f"the {wanted} part of the answer did not come within {limit_s:g} s") from None


async def _read(provider: ModelProvider, request: ModelRequest, parts: asyncio.Queue[object]) -> None:
    try:
        stream = provider.stream(request)
        async with aclosing(stream):  # pyright: ignore[reportArgumentType] - a generator, in every provider
            async for part in stream:
                await parts.put(part)
        await parts.put(_END)
    except Exception as error:  # noqa: BLE001 - raised to whoever reads the parts
        await parts.put(error)
