"""One turn, from its question to its one end: every step is recorded before the next is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ...domain.conversations.events import EnvelopeReceived, Failure, ReplyStatus
from ...domain.conversations.judge import judge_interrupt, judge_removal
from ...domain.conversations.prompt import unique_calls
from ...domain.conversations.state import Conversation, Running
from ...domain.conversations.turn_events import AttemptStarted, ModelAnswered
from ...domain.conversations.turns import Outcome, acknowledged_by, end_turn
from ...domain.decisions import Decision
from ...domain.errors import LeaseLost, MinutebookError, TimedOut, Unavailable
from ..ports import Head
from .context import Prompt, Request, rebuild, request_of, stored_envelope
from .held import Decide, Held
from .means import RunnerMeans
from .memory import memory_tools
from .model_call import Heard, ModelCall
from .ports import MAX_ATTEMPTS, Agent, Delta, ModelError, ModelRequest, Tool
from .reply import Reply
from .sealing import finish
from .steps import NotOurs, Progress, Steps
from .tools import Toolbox, classes_of

UNSIGNED = ""

log = structlog.get_logger(__name__)


class _Failed(Exception):
    """The turn fails: what its asker is told, and for the log what happened."""

    def __init__(self, reason: Failure, cause: str) -> None:
        super().__init__(cause)
        self.reason: Failure = reason


class Turn:
    """The running turn of a conversation that this runner has. prompt: what its model is shown, where that is known.

    `consider` is told from outside of every move of the conversation; what interrupts the turn stops it at the next
    place between two steps, or in the middle of the model's answer.
    """

    def __init__(self, means: RunnerMeans, held: Held, running: Running, prompt: Prompt | None) -> None:
        self._means = means
        self._held = held
        self._running = running
        self._prompt = prompt
        self._stopped = asyncio.Event()
        self._judged: dict[int, EnvelopeReceived | None] = {}
        self._steps: Steps | None = None
        self._execution = ""
        self._reply: Reply | None = None
        self._unsent: tuple[int, str] | None = None
        self._sent = 0
        self._unrecorded: dict[str, int] = {}
        self._is_reserved = False
        self._began_at = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Take the turn to its end. Raises LeaseLost; Unavailable and TimedOut where the database is away."""
        try:
            outcome = await self._outcome()
        except (LeaseLost, Unavailable, TimedOut):
            raise
        except _Failed as failed:
            outcome = self._failure(failed.reason, failed)
        except ModelError as failed:
            outcome = self._failure("model-error", failed)
        except (NotOurs, LookupError, MinutebookError) as failed:
            outcome = self._failure("turn-failed", failed)
        except Exception as failed:  # noqa: BLE001 - a defect in one turn must not stop the conversation
            outcome = self._failure("turn-failed", failed)
        await self._end(outcome)

    async def consider(self, state: Conversation) -> None:
        """Judge what came behind the turn: a verified envelope of its asker's, a close, or their removal stops it."""
        new = self._unjudged(state)
        if not new:
            return
        keyring = self._means.scribe.keyring
        for found in await self._means.log.at(self._held.stream_id, new):
            envelope = judge_interrupt(state, stored_envelope(found), keyring)
            self._judged[found.event.seq] = envelope
            if envelope is not None or judge_removal(state, self._held.kind.verifier.decode(found.event)):
                self._stopped.set()

    def _unjudged(self, state: Conversation) -> list[int]:
        """Seqs of what may stop the turn, and was not looked at yet."""
        running = state.running
        if running is None or not self._is_running(state):
            return []
        return [seq for seq in running.interrupts if seq not in self._judged]

    def _is_running(self, state: Conversation) -> bool:
        """Whether the turn has no end yet."""
        return state.running is not None and state.running.turn == self._running.turn

    async def _outcome(self) -> Outcome:
        means, running, held = self._means, self._running, self._held
        await self.consider(held.state)
        agent = means.agents.get(held.state.agent)
        self._execution = means.scribe.execution(held.conversation_id, running.ord, running.kid)
        steps = Steps(means.store, means.scribe, held, self._execution, means.retention_days(held.tenant))
        # A turn that was taken up a moment ago has no steps: were there any, the first append would meet them.
        progress = (
            Progress() if self._prompt is not None else await steps.read(running.turn, running.ord, running.asker)
        )
        if progress.version:
            self._steps = steps
        if self._stopped.is_set():
            return self._interrupted(progress.text)
        if progress.made and not progress.waiting() and not progress.made[-1].answer.calls:
            return self._ended("completed", progress.text)  # all but the reply was recorded before a crash
        if agent is None or not running.context_seq:
            raise _Failed("turn-failed", "the agent is not in the settings, or has no context")
        if progress.attempts >= MAX_ATTEMPTS:
            raise _Failed("turn-failed", f"the turn was taken up {progress.attempts} times")
        await self._reserve(agent)
        prompt = self._prompt or await rebuild(means, held, running)
        await means.at("before attempt")
        self._steps = steps
        await steps.record(
            AttemptStarted(
                held.conversation_id,
                running.turn,
                running.ord,
                progress.attempts + 1,
                held.epoch,
                UNSIGNED,
                UNSIGNED,
                running.asker,
            )
        )
        await means.at("after attempt")
        means.notes.attempt()
        means.deltas.began(held.stream_id, running.turn, progress.attempts + 1, held.epoch)
        self._reply = Reply(means.redactor, self._show, progress.text)
        return await self._generate(agent, prompt, self._reply)

    async def _generate(self, agent: Agent, prompt: Prompt, reply: Reply) -> Outcome:
        """Model calls and tool calls in turn, until an answer wants no tool."""
        assert self._steps is not None  # noqa: S101 - _outcome made it
        ends_at = asyncio.get_running_loop().time() + self._means.limits.turn_s
        tools = self._tools(self._steps, agent, prompt.claims)
        toolbox = Toolbox(self._means, self._steps, tools, self._running, prompt.claims, ends_at)
        while True:
            self._refuse_denied()
            for call in self._steps.progress.waiting():
                if await self._is_stopped() or not await toolbox.run(call, self._stopped):
                    return self._interrupted(reply.text)
                self._refuse_denied()
            progress = self._steps.progress
            if progress.made and not progress.made[-1].answer.calls:
                return self._ended("completed", reply.text)
            if await self._is_stopped():
                return self._interrupted(reply.text)
            request = self._next_request(agent, prompt, progress)
            heard = await self._ask(agent, request, reply, ends_at)
            if heard.cut == "interrupted":
                return self._interrupted(reply.text)
            await self._record(request, reply, heard)
            if heard.cut is not None:
                return self._ended("completed", reply.text)

    def _tools(self, steps: Steps, agent: Agent, claims: Mapping[str, Sequence[str]]) -> tuple[Tool, ...]:
        return (*agent.tools, *memory_tools(self._means, self._held, steps, agent, self._running, claims))

    def _classes(self) -> tuple[str, ...]:
        """Of the tools that were called, as the settings have them where no result says so."""
        if self._steps is None:
            return ()
        agent = self._means.agents.get(self._held.state.agent)
        return classes_of(() if agent is None else self._tools(self._steps, agent, {}), self._steps.progress)

    def _refuse_denied(self) -> None:
        """In shared mode a turn that reaches for what its asker may not is over."""
        if self._held.state.mode == "shared" and self._steps is not None and self._steps.progress.is_denied:
            raise _Failed("denied", "the asker may not use a tool that was called")

    def _next_request(self, agent: Agent, prompt: Prompt, progress: Progress) -> Request:
        if len(progress.made) >= agent.max_steps:
            raise _Failed("turn-failed", f"the turn took more than {agent.max_steps} model calls")
        request = request_of(self._means, self._held, agent, prompt, progress)
        if isinstance(request, str):
            raise _Failed("denied" if request == "budget" else "turn-failed", f"the request is over its {request}")
        return request

    async def _ask(self, agent: Agent, request: Request, reply: Reply, ends_at: float) -> Heard:
        reply.begin()
        asked = ModelRequest(request.system, request.messages, request.tools, request.max_output_tokens)
        call = ModelCall(agent.provider, asked, self._means.limits, self._stopped, ends_at, reply.hear)
        await self._means.at("before model")
        # Whatever becomes of the call, its prompt was paid for.
        self._unrecorded = {"input": request.tokens, "output": 0}
        try:
            heard = await call.run()
        finally:
            self._unrecorded["output"] = agent.counter.count(reply.answer)
        if heard.usage is not None:
            self._unrecorded = {"input": heard.usage.input, "output": heard.usage.output}
        await self._means.at("after model")
        if heard.cut is None and not self._stopped.is_set():
            reply.finish()
        if self._stopped.is_set():
            heard.cut = "interrupted"
        return heard

    async def _record(self, request: Request, reply: Reply, heard: Heard) -> None:
        assert self._steps is not None  # noqa: S101 - _outcome made it
        made = self._steps.progress.made
        taken = [call.call_id for each in made for call in each.answer.calls]
        event = ModelAnswered(
            step=len(made) + 1,
            text=reply.answer,
            calls=unique_calls(heard.calls, taken) if heard.cut is None else (),
            usage=self._unrecorded,
            kid=UNSIGNED,
            mac=UNSIGNED,
            cut=UNSET if heard.cut is None else heard.cut,
            request_cut=request.cut,
        )
        await self._means.at("before answer")
        await self._steps.record(event, reply.redactions)
        self._unrecorded = {}
        await self._means.at("after answer")

    async def _reserve(self, agent: Agent) -> None:
        """The whole turn's tokens, before the first call (rules.md, law 26)."""
        if not agent.tokens_per_day:
            return
        self._is_reserved = True
        asker, tokens = self._running.asker, agent.tokens_per_turn
        if not await self._means.tokens.reserve(self._execution, asker, agent.name, tokens, agent.tokens_per_day):
            raise _Failed("denied", "the asker's tokens of the day do not suffice for another turn")

    async def _is_stopped(self) -> bool:
        """Look once more: what was appended a moment ago counts, too."""
        if not self._stopped.is_set():
            await self.consider(await self._held.look())
        return self._stopped.is_set()

    def _show(self, offset: int, text: str) -> None:
        """Hand on what viewers may see. While the lease is in doubt it waits, and goes with what comes after it."""
        if self._stopped.is_set():
            return
        if self._unsent is not None:
            offset, text = self._unsent[0], self._unsent[1] + text
        if not self._held.is_sure:
            self._unsent = (offset, text)
            return
        self._unsent = None
        if not self._sent:
            self._means.notes.first_delta(asyncio.get_running_loop().time() - self._began_at)
        self._sent = offset + len(text)
        attempt = self._steps.progress.attempts if self._steps is not None else 0
        self._means.deltas.put(Delta(self._held.stream_id, self._running.turn, attempt, offset, text, self._held.epoch))

    def _interrupted(self, text: str) -> Outcome:
        return self._ended("interrupted", text)

    def _failure(self, reason: Failure, cause: Exception) -> Outcome:
        """The asker gets a fixed reason and a number; the log gets the cause, once and without secrets."""
        error_id = self._means.new_id()
        said = self._means.scribe.redact(f"{type(cause).__name__}: {cause}")[0]
        log.error("a turn failed", error_id=error_id, reason=reason, agent=self._held.state.agent, error=said)
        recorded = "" if self._steps is None else self._steps.progress.text
        text = recorded if self._reply is None else self._reply.text
        return self._ended("failed", text, reason=reason, error_id=error_id)

    def _ended(
        self, status: ReplyStatus, text: str, *, reason: Failure | UnsetType = UNSET, error_id: str | UnsetType = UNSET
    ) -> Outcome:
        progress = Progress() if self._steps is None else self._steps.progress
        usage = dict(progress.usage)
        for kind, tokens in self._unrecorded.items():
            usage[kind] = usage.get(kind, 0) + tokens
        return Outcome(
            status,
            text,
            progress.attempts,
            self._classes(),
            reason,
            error_id,
            usage or UNSET,
            sent=max(self._sent, len(progress.text)),
        )

    def _unless_stopped(self, outcome: Outcome) -> Decide:
        """The reply; nothing where something before it in the log may have stopped the turn (rules.md, law 23)."""

        def decide(state: Conversation, _: Head) -> Decision:
            return Decision() if self._unjudged(state) else end_turn(state, self._running.turn, outcome)

        return decide

    async def _acknowledged(self, outcome: Outcome) -> Outcome:
        """With what the asker of an interrupted turn said to have received."""
        if outcome.status != "interrupted":
            return outcome
        stops = [each for each in self._judged.values() if each is not None]
        noted = await self._means.seen_by.of(self._held.stream_id, self._running.turn)
        return replace(outcome, acknowledged=acknowledged_by(stops, self._running.turn, noted))

    async def _end(self, outcome: Outcome) -> None:
        """Record the reply, then seal the steps; whatever is left after a crash, the next runner does (sealing.py)."""
        means, held, turn = self._means, self._held, self._running.turn
        redactions = () if self._reply is None else self._reply.redactions
        outcome = await self._acknowledged(outcome)
        await means.at("before reply")
        while not await held.decide(self._unless_stopped(outcome), redactions) and self._is_running(held.state):
            # Whoever watches the conversation may have judged meanwhile what was in the way.
            await self.consider(held.state)
            if self._stopped.is_set() and outcome.status == "completed":
                outcome = await self._acknowledged(replace(outcome, status="interrupted"))
        await means.at("after reply")
        means.notes.turn(outcome.status, asyncio.get_running_loop().time() - self._began_at)
        await means.deltas.ended(held.stream_id, turn)
        usage = {} if outcome.usage is UNSET else outcome.usage
        await finish(means, self._steps, outcome.status, (self._execution, usage) if self._is_reserved else None)
        await means.at("after seal")
