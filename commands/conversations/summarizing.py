"""Turns that left the window, folded into the rolling summary by the agent's summarizer, one summary at a time.

A summary that fails keeps the one before it, and is recorded so; a close, a lost lease or a spent budget is no such
failure (conversations.md, Context budget).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from ...domain.conversations.fit import cut_summary
from ...domain.conversations.state import Conversation
from ...domain.conversations.summarizing import Covered, SummaryRequest, summary_request
from ...domain.conversations.turns import NewSummary, keep_summary, record_summary
from ...domain.conversations.window import common_summary, to_summarize
from .context import Words
from .held import Held
from .means import RunnerMeans
from .model_call import ModelCall
from .ports import Agent, Agents, ModelError, ModelRequest
from .steps import NotOurs

MAX_SUMMARY_CHARS = 256 * 1024
"""Of a summarizer's answer; what follows is not heard."""

log = structlog.get_logger(__name__)


def summarizer_of(agents: Agents, state: Conversation) -> tuple[Agent, Agent] | None:
    """The conversation's agent and its summarizer, where something waits to be summarized."""
    agent = agents.get(state.agent)
    if agent is None or agent.summarizer is None or not to_summarize(state) or state.is_closing:
        return None
    summarizer = agents.get(agent.summarizer)
    return None if summarizer is None else (agent, summarizer)


async def summarize(means: RunnerMeans, held: Held, agent: Agent, summarizer: Agent, stopped: asyncio.Event) -> None:
    """Record a new summary, or that there is none. stopped: set once it is of no use any more.

    Raises LeaseLost, Unavailable, TimedOut.
    """
    state = held.state
    execution = f"summary {held.conversation_id} {state.turns}"
    try:
        request = await _request(means, held, summarizer)
        if request is None or state.owner is None or not await _reserve(means, execution, state, summarizer):
            return
        await means.at("before summary")
        text, usage = await _ask(means, summarizer, request, stopped)
    except (ModelError, NotOurs, ValueError) as error:
        said = means.scribe.redact(f"{type(error).__name__}: {error}")[0]
        log.error("a summary failed", agent=agent.name, error=said)  # noqa: TRY400 - the place says nothing
        await held.decide(lambda state, _: keep_summary(state, "model-error"))
        return
    if summarizer.tokens_per_day:
        await means.tokens.settle(execution, sum(usage.values()))
    if stopped.is_set():
        return
    text = cut_summary(text, agent.context_window, agent.counter)
    new = NewSummary(text, agent.counter.count(text), request.through_turn)
    await held.decide(lambda state, _: record_summary(state, new))
    await means.at("after summary")


async def _request(means: RunnerMeans, held: Held, summarizer: Agent) -> SummaryRequest | None:
    """None where the words of all that waits for a summary were erased."""
    turns, before = to_summarize(held.state), common_summary(held.state)
    words = await Words.read(means, held, turns, before)
    there = words.there(turns)
    if not there:
        return None
    covered = [Covered(turn.turn, told) for turn, told in zip(there, words.turns(there), strict=True)]
    return summary_request(
        means.scribe.keyring,
        held.conversation_id,
        summarizer.system,
        words.summary(before),
        covered,
        summarizer.context_window - summarizer.reserve_output_tokens,
        summarizer.counter,
    )


async def _reserve(means: RunnerMeans, execution: str, state: Conversation, summarizer: Agent) -> bool:
    if not summarizer.tokens_per_day or state.owner is None:
        return True
    tokens, ceiling = summarizer.tokens_per_turn, summarizer.tokens_per_day
    return await means.tokens.reserve(execution, state.owner, summarizer.name, tokens, ceiling)


async def _ask(
    means: RunnerMeans, summarizer: Agent, request: SummaryRequest, stopped: asyncio.Event
) -> tuple[str, Mapping[str, int]]:
    """The summarizer's words without secrets, and the tokens that they took."""
    stream = means.redactor()
    pieces: list[str] = []
    size = 0

    def hear(piece: str) -> bool:
        nonlocal size
        pieces.append(stream.feed(piece))
        size += len(piece)
        return size < MAX_SUMMARY_CHARS

    prompt = request.prompt
    asked = ModelRequest(prompt.system, prompt.messages, (), summarizer.reserve_output_tokens)
    ends_at = asyncio.get_running_loop().time() + means.limits.turn_s
    heard = await ModelCall(summarizer.provider, asked, means.limits, stopped, ends_at, hear).run()
    if heard.cut is None:
        pieces.append(stream.finish())
    text = "".join(pieces)
    if heard.usage is not None:
        return text, {"input": heard.usage.input, "output": heard.usage.output}
    said = sum(summarizer.counter.count(message.text) for message in prompt.messages)
    return text, {"input": said, "output": summarizer.counter.count(text)}
