"""One conversation at work: takes its lease, does one step after another, and lets it go when nothing waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import assert_never

import structlog

from ...domain.conversations.judge import Bad, Good, judge
from ...domain.conversations.state import Waiting
from ...domain.conversations.turns import (
    Step,
    accept,
    close_up,
    drop,
    next_step,
    reject,
    reject_good,
    rotate,
)
from ...domain.errors import LeaseLost, MinutebookError, TimedOut, Unavailable
from .context import Prompt, prepare, stored_envelope
from .held import Held
from .kind import stream_of
from .means import RunnerMeans
from .ports import LEASE_RENEW_S, LEASE_TTL_S, RUNNER_LEASE
from .sealing import SealedTurns, tidy
from .steps import RETRY_S, NotOurs
from .summarizing import summarize, summarizer_of
from .turn import Turn

DEAF_LOOK_S = 1.0
"""Between two looks at the conversation of a running turn while no wake-ups are heard."""

DROP_S = 2.0
"""Longest wait for the lease to be let go; else it lapses."""

log = structlog.get_logger(__name__)


class Worker:
    """One conversation in this process. stream_id: once it is known. is_listening: whether wake-ups are heard."""

    def __init__(
        self, means: RunnerMeans, conversation_id: str, sealed: SealedTurns, is_listening: Callable[[], bool]
    ) -> None:
        self.conversation_id = conversation_id
        self.stream_id = -1
        self._means = means
        self._sealed = sealed
        self._is_listening = is_listening
        self._moved = asyncio.Event()
        self._turn: Turn | None = None
        self._prompts: dict[int, Prompt] = {}
        self._summarized_at = 0
        self._useless: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_in_turn(self) -> bool:
        """Whether a turn runs right now."""
        return self._turn is not None

    @property
    def task(self) -> asyncio.Task[None]:
        """What it does."""
        assert self._task is not None  # noqa: S101 - start() comes first
        return self._task

    @property
    def is_woken(self) -> bool:
        """Whether something moved that it has not looked at."""
        return self._moved.is_set()

    def start(self, gone: Callable[[Worker], None]) -> None:
        """Begin on the running loop; `gone` is told of the end."""
        self._task = asyncio.create_task(self._run(), name=f"conversation {self.conversation_id}")
        self._task.add_done_callback(lambda _: gone(self))

    def stop(self) -> asyncio.Task[None]:
        """Stop where it is and let the lease go."""
        self._moved.clear()
        self.task.cancel()
        return self.task

    def wake(self) -> None:
        """Something moved."""
        self._moved.set()

    async def _run(self) -> None:
        try:
            while await self._serve():
                pass
        except LeaseLost:
            log.warning("a conversation was taken over")
        except MinutebookError as error:
            # The entry of what waits is still there: the next sweep finds it.
            log.warning("a conversation waits for the next look", error=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other conversations
            said = self._means.scribe.redact(f"{type(error).__name__}: {error}")[0]
            log.error("a conversation waits for the next look", error=said)  # noqa: TRY400 - its locals are words

    async def _serve(self) -> bool:
        """Take the lease and work until nothing waits; whether something came in the last moment."""
        self._moved.clear()
        means, stream = self._means, stream_of(self.conversation_id)
        epoch, _ = await means.leases.take(stream, RUNNER_LEASE, means.holder, LEASE_TTL_S)
        if epoch == 0:
            return False  # whoever has it hears of every append
        held = Held(means.dispatcher, means.scribe, self.conversation_id, means.holder, epoch)
        try:
            await means.at("leased")
            worked_through = await self._work_watched(held)
        finally:
            await self._let_go(stream, epoch)
        await means.at("let go")
        head = await means.store.head(stream)
        return head is not None and head.version > worked_through and not head.sealed

    async def _let_go(self, stream: str, epoch: int) -> None:
        means = self._means
        try:
            async with asyncio.timeout(DROP_S):
                await means.leases.drop(stream, RUNNER_LEASE, means.holder, epoch)
        except (MinutebookError, TimeoutError):
            log.warning("a lease was not let go; it lapses")

    async def _work_watched(self, held: Held) -> int:
        """Work, and beside it keep the lease and hear what interrupts; the end of either is the end of both. Answers as
        _work does."""
        await held.look()
        self.stream_id = held.stream_id
        work = asyncio.create_task(self._work(held), name="conversation work")
        watch = asyncio.create_task(self._watch(held), name="conversation watch")
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, watch):
                task.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)
        for task in (watch, work):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        return work.result()

    async def _watch(self, held: Held) -> None:
        """Renew the lease in time, and let the running turn know what came behind it."""
        loop = asyncio.get_running_loop()
        while True:
            patience = LEASE_RENEW_S if self._is_listening() else DEAF_LOOK_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(held.renewed_at + LEASE_RENEW_S, loop.time() + patience)):
                    await self._moved.wait()
            self._moved.clear()
            try:
                await self._look(held, is_due=loop.time() >= held.renewed_at + LEASE_RENEW_S)
            except (Unavailable, TimedOut):
                if not held.is_sure:
                    raise
                self._moved.set()
                await asyncio.sleep(RETRY_S)

    async def _look(self, held: Held, *, is_due: bool) -> None:
        """Between two turns there is nothing to stop, and the work looks by itself before it ends."""
        if is_due:
            await held.renew()
        elif self._turn is not None or self._useless is not None:
            await held.look()
        if self._turn is not None:
            await self._turn.consider(held.state)
        if self._useless is not None and held.state.is_closing:
            self._useless.set()

    async def _work(self, held: Held) -> int:
        """One step after another, until nothing waits; the version on which that was found. What the watch sees of the
        conversation from then on is nothing that was worked at."""
        await self._tidy(held)
        while True:
            step = next_step(held.state)
            if step.name in ("idle", "take") and await self._summarize(held):
                continue
            match step.name:
                case "idle":
                    found_at = held.version
                    await self._means.work.done(held.stream_id, found_at)
                    await self._means.at("done")
                    return found_at
                case "run":
                    await self._run_turn(held)
                case "drop":
                    await held.decide(lambda state, head: drop(state, head.version))
                case "rotate":
                    await self._means.at("before rotation")
                    await held.decide(lambda state, _: rotate(state))
                    await self._means.at("after rotation")
                case "take":
                    await self._take(held, step.waiting)
                case "close":
                    await self._close(held, step)
                case _:
                    assert_never(step.name)

    async def _summarize(self, held: Held) -> bool:
        """Fold what left the window into the summary, once after each turn; whether it was tried."""
        found = summarizer_of(self._means.agents, held.state)
        if found is None or self._summarized_at == held.state.turns:
            return False
        self._summarized_at = held.state.turns
        self._useless = asyncio.Event()
        try:
            await summarize(self._means, held, *found, self._useless)
        finally:
            self._useless = None
        return True

    async def _tidy(self, held: Held) -> None:
        """Of the turn that was the last one when this runner came: its own it seals by itself. First of all, since
        behind another turn nobody would look for it."""
        last = held.state.window[-1] if held.state.window else None
        if last is not None and not self._sealed.is_known(self.conversation_id, last.turn):
            await tidy(self._means, held, last)
            self._sealed.note(self.conversation_id, last.turn)

    async def _run_turn(self, held: Held) -> None:
        running = held.state.running
        if running is None:
            return
        self._turn = Turn(self._means, held, running, self._prompts.pop(running.turn, None))
        try:
            await self._turn.run()
        finally:
            self._turn = None
        self._sealed.note(self.conversation_id, running.turn)

    async def _take(self, held: Held, waiting: Waiting | None) -> None:
        """Judge the envelope whose turn it is, and record what it comes to."""
        judged = None if waiting is None else await self._judge(held, waiting)
        if judged is None:
            return
        await self._means.at("before take")
        if isinstance(judged, Bad):
            await held.decide(lambda state, _: reject(state, judged))
        elif judged.envelope.kind != "user":
            await held.decide(lambda state, _: reject_good(state, judged, "malformed"))
        else:
            await self._accept(held, judged)
        await self._means.at("after take")

    async def _accept(self, held: Held, good: Good) -> None:
        agent = self._means.agents.get(held.state.agent)
        prepared = None
        if agent is not None:
            try:
                prepared = await prepare(self._means, held, good, agent)
            except (NotOurs, ValueError) as error:
                agent = None  # the turn fails, and says so
                log.error("a turn has no context", error=type(error).__name__)  # noqa: TRY400 - no more to say
        if agent is not None and prepared is None:
            await held.decide(lambda state, _: reject_good(state, good, "prompt-too-large"))
            return
        shown = None if prepared is None else prepared[0]
        await held.decide(lambda state, _: accept(state, good, shown))
        running = held.state.running
        if prepared is not None and running is not None and running.envelope_seq == good.seq:
            self._prompts = {running.turn: prepared[1]}

    async def _close(self, held: Held, step: Step) -> None:
        """Reject what waits, one after the other, then seal."""
        if step.waiting is None:
            return
        request = await self._judge(held, step.waiting)
        await self._means.at("before close")
        if isinstance(request, Bad):
            await held.decide(lambda state, _: reject(state, request))
        elif request is not None and step.other is None:
            await held.decide(lambda state, head: close_up(state, request, head.version))
        elif step.other is not None:
            other = await self._judge(held, step.other)
            if isinstance(other, Bad):
                await held.decide(lambda state, _: reject(state, other))
            elif other is not None:
                await held.decide(lambda state, _: reject_good(state, other, "closed"))
        await self._means.at("after close")

    async def _judge(self, held: Held, waiting: Waiting) -> Good | Bad | None:
        found = await self._means.log.at(held.stream_id, [waiting.seq])
        if not found:
            return None
        return judge(held.state, waiting, stored_envelope(found[0]), self._means.scribe.keyring)
