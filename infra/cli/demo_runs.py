"""The runs of the demo: one that plays a recording, is steered, asks for leave and hands over; and its reviewer."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from ...domain.jsontext import compact
from ...domain.rooms.commands import ClaimedReason
from ..api_client import Api
from ..bridge_approvals import Request, Verdict
from ..bridge_client import Bridge
from ..bridge_feed import Delivery
from ..harness_log import HarnessItem, Recording
from ..swe_agent import Run
from .play import Pace, end_reason

PULL_REQUEST = "https://github.example/acme/release-notes/pull/7"
ACTION = {"command": "gh pr create --fill", "branch": "fix/oldest-release"}
COMMIT = "0123abcd"
HANDOFF = "The oldest release has its notes again, and a test says so. Please look at the change."
REVIEW = "Reads well, and the test fails without the change."
CALL = "open-pull-request"

T = TypeVar("T")


class RunFailed(Exception):
    """A run ended before it was to, or a room tool refused it."""


class Worker:
    """The implementer's run. Its items stop in the middle until it was steered, and at the end until it has its answer.

    Its own bridge's source and handler.
    """

    def __init__(self, api: Api, run_id: str, run: Run, pace: Pace) -> None:
        self._api = api
        self._recording = Recording(run.items, end_reason(run), pace.wait_s)
        self._total = len(run.items)
        self._bridge = Bridge(api, run_id, self, handler=self, asks=True, most=1, told=self._told)
        self._verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self.reason: ClaimedReason = self._recording.reason
        self.is_halfway = asyncio.Event()
        self.is_steered = asyncio.Event()
        self.is_asking = asyncio.Event()

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncGenerator[asyncio.Task[None]]:
        """Say hello, and work for the time of the block. Raises as Bridge.hello."""
        await self._bridge.hello()
        task = asyncio.create_task(self._bridge.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def items(self, after: int) -> AsyncGenerator[HarnessItem]:
        """See Source.items."""
        async with contextlib.aclosing(self._recording.items(after)) as items:
            async for item in items:
                if item.seq > self._total // 2:
                    await self.is_steered.wait()
                yield item
        call = {"callId": CALL, "tool": "bash", "args": ACTION, "decidedBy": None}
        yield HarnessItem(self._total + 1, "tool_call", compact(call))
        status, output = ("ok", PULL_REQUEST) if (await self._verdict).allow else ("rejected", "It was not allowed.")
        result = {"callId": CALL, "status": status, "output": output, "truncated": False, "bytes": len(output)}
        yield HarnessItem(self._total + 2, "tool_result", compact(result))

    def _told(self, stored: int) -> None:
        if stored >= self._total // 2:
            self.is_halfway.set()
        if stored > self._total:
            self.is_asking.set()

    async def take(self, delivery: Delivery) -> None:
        """See Handler.take."""
        if delivery.kind == "deliver":
            self.is_steered.set()

    async def close(self) -> None:
        """See Handler.close."""

    async def ask(self) -> Verdict:
        """Ask for leave to open a pull request; it goes on with the answer."""
        verdict = await self._bridge.ask(Request("1", CALL, "forge.pr", ACTION))
        self._verdict.set_result(verdict)
        return verdict

    async def hand_over(self, task: asyncio.Task[None]) -> None:
        """Hand over to a reviewer once all is done, and end. Raises as `use_tool` and Bridge.run."""
        await task
        await use_tool(self._api, "room_handoff", toRole="reviewer", summary=HANDOFF, commit=COMMIT)
        await self._bridge.bye()


async def review(api: Api) -> int:
    """The reviewer's run, from its hello to its end; the room's last seq. Raises as `use_tool`."""
    hello = await api.call("POST", "/v1/bridge/hello")
    await use_tool(api, "room_verdict", verdict="approve", summary=REVIEW, commit=COMMIT)
    params = {"lease": str(hello["lease"])}
    ended = await api.call("POST", "/v1/bridge/bye", {"reason": "finished"}, params=params)
    return int(ended["seq"])


async def use_tool(api: Api, name: str, **arguments: Any) -> None:
    """Call one of a run's room tools. Raises RunFailed, Refused, Unreachable."""
    params = {"name": name, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await api.call("POST", "/mcp", body, key=secrets.token_hex(16))
    if answer.get("result", {}).get("isError", True):
        raise RunFailed(f"The room tool {name} was refused.")


async def meanwhile(task: asyncio.Task[None], step: Coroutine[Any, Any, T]) -> T:
    """What `step` comes to while the run works. Raises what the run fails with, and RunFailed where it ends before."""
    stepping = asyncio.ensure_future(step)
    try:
        await asyncio.wait({task, stepping}, return_when=asyncio.FIRST_COMPLETED)
        if not stepping.done():
            task.result()
            raise RunFailed("The run ended before it was to.")
        return stepping.result()
    finally:
        stepping.cancel()
