"""One call of a model: its parts as they come, its limits, and its end at the next part once the turn is stopped."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Literal

import structlog
from msgspec import Struct

from ...domain.conversations.turn_events import WantedCall
from .ports import CallDelta, ModelError, ModelPart, ModelProvider, ModelRequest, TextDelta, Usage

CANCEL_S = 1.0
"""A provider that has not let go this long after it was cancelled is left to itself; nothing that it says is heard."""

MAX_CALLS = 64
"""Tool calls that one answer may want."""

BREATH_PARTS = 64
"""A provider that never waits lets others run after so many parts."""

log = structlog.get_logger(__name__)


class Limits(Struct, frozen=True):
    """Of a turn, in seconds. first: to a call's first part. idle: between two parts. turn: the whole attempt."""

    first_s: float = 60.0
    idle_s: float = 60.0
    turn_s: float = 600.0


class Heard(Struct):
    """What a call came to. cut: why it ended early. The text went to `hear` as it came."""

    calls: list[WantedCall]
    usage: Usage | None = None
    cut: Literal["interrupted", "too-long"] | None = None


class ModelCall:
    """One call. stopped: set from outside once the turn is interrupted. ends_at: loop time of the end of the turn.

    hear: takes each piece of text; False where the reply has become too long and the call ends.
    """

    def __init__(
        self,
        provider: ModelProvider,
        request: ModelRequest,
        limits: Limits,
        stopped: asyncio.Event,
        ends_at: float,
        hear: Callable[[str], bool],
    ) -> None:
        self._provider = provider
        self._request = request
        self._limits = limits
        self._stopped = stopped
        self._ends_at = ends_at
        self._hear = hear
        self._parts: deque[ModelPart] = deque()
        self._moved = asyncio.Event()
        self._is_over = False

    async def run(self) -> Heard:
        """Raises ModelError, also where a limit is passed. Whatever happens, the provider is let go."""
        heard = Heard([])
        pump = asyncio.create_task(self._pump(), name="model call")
        stop = asyncio.create_task(self._stopped.wait(), name="model call stopped")
        stop.add_done_callback(lambda _: self._moved.set())
        pump.add_done_callback(lambda _: self._moved.set())
        try:
            await self._listen(pump, heard)
        finally:
            self._is_over = True
            stop.cancel()
            await _let_go(pump)
        return heard

    async def _listen(self, pump: asyncio.Task[None], heard: Heard) -> None:
        loop = asyncio.get_running_loop()
        patience = self._limits.first_s
        while True:
            if self._stopped.is_set():
                heard.cut = "interrupted"
                return
            if loop.time() >= self._ends_at:
                raise ModelError("the turn took too long")
            if self._parts:
                patience = self._limits.idle_s
                if not self._take(self._parts.popleft(), heard):
                    heard.cut = "too-long"
                    return
                continue
            if pump.done():
                pump.result()
                return
            self._moved.clear()
            until = min(loop.time() + patience, self._ends_at)
            try:
                async with asyncio.timeout_at(until):
                    await self._moved.wait()
            except TimeoutError:
                raise ModelError("the model was silent for too long") from None

    def _take(self, part: ModelPart, heard: Heard) -> bool:
        match part:
            case TextDelta():
                return self._hear(part.text)
            case CallDelta():
                if len(heard.calls) >= MAX_CALLS:
                    raise ModelError(f"the model wanted more than {MAX_CALLS} calls at once")
                heard.calls.append(part.call)
            case Usage():
                heard.usage = part
        return True

    async def _pump(self) -> None:
        count = 0
        try:
            async for part in self._provider.stream(self._request):
                if self._is_over:
                    return
                self._parts.append(part)
                self._moved.set()
                count += 1
                if count % BREATH_PARTS == 0:
                    await asyncio.sleep(0)
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(f"{type(error).__name__}: {error}") from error


async def _let_go(pump: asyncio.Task[None]) -> None:
    """Cancel the call and wait for it a little; a provider that ignores it keeps its task, and nobody listens."""
    pump.cancel()
    await asyncio.wait((pump,), timeout=CANCEL_S)
    if pump.done():
        if not pump.cancelled():
            pump.exception()
        return
    log.warning("a model call ignores its cancellation")
    _ignored.add(pump)
    pump.add_done_callback(_forget)


_ignored: set[asyncio.Task[None]] = set()
"""Calls that go on although nobody listens: a task without a reference could vanish in mid-air."""


def _forget(pump: asyncio.Task[None]) -> None:
    _ignored.discard(pump)
    if not pump.cancelled():
        pump.exception()
