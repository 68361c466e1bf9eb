"""The tool calls of a turn: each is recorded before it runs and once it has its result, which is data for the model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from ...domain.conversations.state import Running
from ...domain.conversations.turn_events import UNCLASSIFIED, ToolEnded, ToolStarted, ToolStatus, WantedCall
from ...domain.conversations.wording import repaired
from .means import RunnerMeans
from .ports import ModelError, Tool
from .steps import Progress, Steps

UNKNOWN_OUTCOME = "outcome unknown: the call may have run before the server stopped; it was not run again"

MAX_OUTPUT_CHARS = 64 * 1024
"""Of a tool's result; what is longer is cut and says so."""

GROUPS = "groups"
"""The claim that names the groups of the asker."""

_CUT = "\n(cut: the rest of this result is too long)"


def classes_of(tools: Iterable[Tool], progress: Progress) -> tuple[str, ...]:
    """The declared class of every tool that a turn called, as it was recorded with the result; of a call that was
    started and has none, as the settings have it now."""
    named = {tool.spec.name: tool for tool in tools}
    cut_off = (call.name for call in progress.waiting() if call.call_id in progress.started)
    return tuple(sorted({*progress.classes, *(_class_of(named.get(name)) for name in cut_off)}))


def _class_of(tool: Tool | None) -> str:
    return UNCLASSIFIED if tool is None else tool.data_class


class Toolbox:
    """The tools of one attempt. claims: of the asker's token. ends_at: loop time of the end of the turn."""

    def __init__(
        self,
        means: RunnerMeans,
        steps: Steps,
        tools: Iterable[Tool],
        running: Running,
        claims: Mapping[str, Sequence[str]],
        ends_at: float,
    ) -> None:
        self._means = means
        self._steps = steps
        self._tools = {tool.spec.name: tool for tool in tools}
        self._running = running
        self._groups = frozenset(claims.get(GROUPS, ()))
        self._ends_at = ends_at

    async def run(self, call: WantedCall, stopped: asyncio.Event) -> bool:
        """Run a call that has no result; False where the turn was stopped while it ran: then nothing is recorded.

        Once more only if the tool is declared idempotent. Raises ModelError where the turn takes too long.
        """
        tool = self._tools.get(call.name)
        times = self._steps.progress.started.get(call.call_id, 0)
        if times and (tool is None or not tool.is_idempotent):
            return await self._record(call, "unknown", UNKNOWN_OUTCOME, tool)
        if tool is None:
            return await self._record(call, "error", "there is no such tool", tool)
        if tool.groups and not tool.groups & self._groups:
            return await self._record(call, "denied", "whoever asks may not use this tool", tool)
        problem = tool.problem(call.arguments)
        if problem is not None:
            return await self._record(call, "error", problem, tool)
        await self._means.at("before tool start")
        await self._steps.record(ToolStarted(call.call_id, times + 1, "", ""))
        await self._means.at("after tool start")
        try:
            async with asyncio.timeout_at(self._ends_at):
                result = await tool.run(call.arguments, self._running.asker)
        except TimeoutError:
            raise ModelError("the turn took too long: a tool was still running") from None
        await self._means.at("after tool")
        if stopped.is_set():
            return False
        return await self._record(call, result.status, result.output, tool, result.classes)

    async def _record(
        self, call: WantedCall, status: ToolStatus, output: str, tool: Tool | None, made_of: Iterable[str] = ()
    ) -> bool:
        """A result, with the class of the tool that was called, whatever came of the call. made_of: further classes."""
        output = repaired(output)
        is_cut = len(output) > MAX_OUTPUT_CHARS
        if is_cut:
            output = output[:MAX_OUTPUT_CHARS] + _CUT
        classes = tuple(sorted({_class_of(tool), *made_of}))
        await self._means.at("before tool end")
        await self._steps.record(ToolEnded(call.call_id, status, output, classes, "", "", is_cut))
        await self._means.at("after tool end")
        return True
