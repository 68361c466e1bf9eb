"""What a turn's model is shown: its texts read from the log, the verdict of what fits, and each request of the turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from ...domain.conversations.decide import milliseconds
from ...domain.conversations.events import (
    ContextDecided,
    EnvelopeReceived,
    ReplyRecorded,
    SummaryRecorded,
    UserRecorded,
)
from ...domain.conversations.fit import Result, Sized, fit_results, fit_to_window, message_tokens
from ...domain.conversations.judge import Good, StoredEnvelope, claims_at
from ...domain.conversations.prompt import (
    Answered,
    Asked,
    Summary,
    Told,
    assemble,
    digest,
    fixed_texts,
    prompt_text,
    result_text,
    told,
    tools_text,
    turn_texts,
)
from ...domain.conversations.state import Conversation, Running, SummaryRef, WindowTurn
from ...domain.conversations.turns import Shown
from ...domain.conversations.window import Slice, class_sets, slice_for
from ..ports import StoredEvent
from .held import Held
from .means import RunnerMeans
from .ports import Agent, At, Message, ToolSpec, Viewer
from .steps import NotOurs, Progress

MAX_READ = 256
"""Events that one read of the log takes."""


class Prompt(Struct, frozen=True):
    """What every request of a turn has. turns: those that the verdict keeps. tokens: of all of it, tool list included.

    claims: of the asker's token, none where it is too old.
    """

    asked: Asked
    turns: tuple[Told, ...]
    summary: Summary | None
    tokens: int
    claims: Mapping[str, Sequence[str]]


class Request(Struct, frozen=True):
    """One model request of the turn. tokens: of all of it. cut: calls whose results are shown cut."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    tokens: int
    max_output_tokens: int
    cut: tuple[str, ...]


async def prepare(means: RunnerMeans, held: Held, good: Good, agent: Agent) -> tuple[Shown, Prompt] | None:
    """What is shown for a message that was judged good, from the conversation as it is now; None where the question
    alone does not fit. Raises NotOurs."""
    state, claims = held.state, claims_at(good.envelope, milliseconds(means.now()))
    part = await _slice(means, state, Viewer(good.envelope.asker, claims))
    words = await Words.read(means, held, part.turns, part.summary)
    there = words.there(part.turns)
    turns = words.turns(there)
    edited = None if good.edited is None else next((each for each in turns if each.ord == good.edited.user_ord), None)
    asked = _asked(good.envelope, edited)
    summary = words.summary(part.summary)
    tools = agent.offered
    sizes = [
        Sized(turn.user_ord, turn.tokens, turn_texts(each) if turn.tokens is UNSET else ())
        for turn, each in zip(there, turns, strict=True)
    ]
    fixed = fixed_texts(agent.system, tools, summary, asked)
    fitted = fit_to_window(agent.context_window, agent.reserve_output_tokens, fixed, sizes, agent.counter)
    if fitted is None:
        return None
    kept = frozenset(fitted.kept)
    shown_summary = None if fitted.summary_dropped else summary
    prompt = Prompt(
        asked,
        tuple(each for each in turns if each.ord in kept),
        shown_summary,
        fitted.tokens,
        claims,
    )
    keyring, name = means.scribe.keyring, held.conversation_id
    whole = assemble(keyring, name, agent.system, shown_summary, prompt.turns, asked)
    shown = Shown(
        fitted,
        agent.reserve_output_tokens,
        0 if shown_summary is None or part.summary is None else part.summary.number,
        digest(keyring, name, "prompt", prompt_text(whole)),
        digest(keyring, name, "system", agent.system),
        digest(keyring, name, "tools", tools_text(tools)),
        agent.provider.name,
        part.hidden,
    )
    return shown, prompt


async def _slice(means: RunnerMeans, state: Conversation, asker: Viewer) -> Slice:
    """What the asker is cleared for now; the policy is asked only where somebody else's turn has classes."""
    sets = class_sets(state, asker.identity)
    return slice_for(state, asker.identity, await means.clearance.resolve(asker, sets) if sets else {})


async def rebuild(means: RunnerMeans, held: Held, running: Running) -> Prompt:
    """The prompt of a turn that another runner began, as its verdict says, whatever a counter or the clearance policy
    would say now.

    Raises NotOurs where the log does not hold what the state points to.
    """
    found = await _read(means, held, [running.context_seq, running.envelope_seq])
    decided, envelope = (found.get(seq) for seq in (running.context_seq, running.envelope_seq))
    if not isinstance(decided, ContextDecided) or not isinstance(envelope, EnvelopeReceived):
        raise NotOurs("the question of the turn is not in the log")
    if (envelope.asker, envelope.id, decided.turn, decided.ord) != (
        running.asker,
        running.id,
        running.turn,
        running.ord,
    ):
        raise NotOurs("what the turn was taken up with is of another turn")
    state = held.state
    kept = [turn for turn in state.window if turn.user_ord in frozenset(decided.kept)]
    summary = state.summary if decided.summary else None
    edited = [turn for turn in (*state.evicted, *state.window) if turn.user_ord == envelope.edit_of]
    words = await Words.read(means, held, {turn.turn: turn for turn in (*kept, *edited)}.values(), summary)
    asked = _asked(envelope, next(iter(words.turns(words.there(edited))), None))
    return Prompt(
        asked,
        tuple(words.turns(words.there(kept))),
        words.summary(summary),
        decided.tokens,
        claims_at(envelope, milliseconds(means.now())),
    )


def request_of(means: RunnerMeans, held: Held, agent: Agent, prompt: Prompt, progress: Progress) -> Request | str:
    """The next request of the turn; else what it is too large for: `window` or `budget`."""
    tools = agent.offered
    said = sum(
        message_tokens(agent.counter, made.answer.text, _calls_text(made.answer.calls)) for made in progress.made
    )
    results = [
        Result(call.call_id, result_text((ended.status, ended.output)))
        for made in progress.made
        for call in made.answer.calls
        if (ended := made.ended.get(call.call_id)) is not None
    ]
    before = progress.made[-1].answer.request_cut if progress.made else ()
    free = agent.context_window - agent.reserve_output_tokens
    cut = fit_results(free, prompt.tokens + said, results, before, agent.counter)
    if cut is None:
        return "window"
    steps = [
        Answered(
            made.answer.text,
            made.answer.calls,
            {call_id: (ended.status, ended.output) for call_id, ended in made.ended.items()},
        )
        for made in progress.made
    ]
    keyring, name = means.scribe.keyring, held.conversation_id
    whole = assemble(keyring, name, agent.system, prompt.summary, prompt.turns, prompt.asked, steps, cut)
    tokens = prompt.tokens + message_tokens(agent.counter, *(each.text for each in whole.messages[_base(prompt) :]))
    most = agent.reserve_output_tokens
    if agent.tokens_per_turn:
        most = min(most, agent.tokens_per_turn - sum(progress.usage.values()) - tokens)
    if most <= 0:
        return "budget"
    return Request(whole.system, whole.messages, tools, tokens, most, cut)


def stored_envelope(found: At) -> StoredEnvelope:
    """An event of the log as judging takes it."""
    event = found.event
    return StoredEnvelope(event.seq, event.version, event.payload, milliseconds(found.at))


def _base(prompt: Prompt) -> int:
    """Messages of a request before the turn's own steps."""
    return (0 if prompt.summary is None else 2) + 2 * len(prompt.turns) + 1


def _calls_text(calls: Iterable[Any]) -> str:
    return msgspec.json.encode(tuple(calls)).decode()


def _asked(envelope: EnvelopeReceived, edited: Told | None) -> Asked:
    text = "" if envelope.text is UNSET else envelope.text
    if edited is None:
        return Asked(envelope.asker, text)
    turn = None if envelope.edit_of is UNSET else envelope.edit_of
    return Asked(envelope.asker, text, turn, edited.question.text)


class Words(Struct, frozen=True):
    """Questions and replies by seq."""

    events: Mapping[int, Any]

    @classmethod
    async def read(
        cls, means: RunnerMeans, held: Held, turns: Iterable[WindowTurn], summary: SummaryRef | None
    ) -> Words:
        """Those of the turns, and the summary's. Raises Unavailable."""
        seqs = [seq for turn in turns for seq in (turn.user_seq, turn.reply_seq)]
        return cls(await _read(means, held, [*seqs, *([] if summary is None else [summary.seq])]))

    def there(self, turns: Iterable[WindowTurn]) -> list[WindowTurn]:
        """Those whose words were not erased: the others are left out of every prompt."""
        gone = {seq for seq, event in self.events.items() if getattr(event, "is_erased", False)}
        return [turn for turn in turns if gone.isdisjoint((turn.user_seq, turn.reply_seq))]

    def turns(self, turns: Iterable[WindowTurn]) -> list[Told]:
        """Those turns with their words. Raises NotOurs."""
        return [self._told(turn) for turn in turns]

    def summary(self, summary: SummaryRef | None) -> Summary | None:
        """The summary's words; None where they were erased. Raises NotOurs."""
        if summary is None:
            return None
        recorded = self.events.get(summary.seq)
        if isinstance(recorded, SummaryRecorded) and recorded.is_erased:
            return None
        if not isinstance(recorded, SummaryRecorded) or recorded.text is UNSET:
            raise NotOurs("the summary is not in the log")
        return Summary(recorded.text, recorded.through_turn)

    def _told(self, turn: WindowTurn) -> Told:
        question, reply = self.events.get(turn.user_seq), self.events.get(turn.reply_seq)
        if not isinstance(question, UserRecorded) or not isinstance(reply, ReplyRecorded):
            raise NotOurs("a turn of the window is not in the log")
        if question.asker is None or question.text is UNSET:
            raise NotOurs("a turn of the window has no question")
        edited = None if question.edit_of is UNSET else question.edit_of
        return told(turn, Asked(question.asker, question.text, edited), reply.text)


async def _read(means: RunnerMeans, held: Held, seqs: Sequence[int]) -> dict[int, Any]:
    """Events by seq, as far as they are verifiably ours."""
    found: dict[int, Any] = {}
    ordered = sorted(set(seqs))
    for start in range(0, len(ordered), MAX_READ):
        for each in await means.log.at(held.stream_id, ordered[start : start + MAX_READ]):
            event: StoredEvent = each.event
            found[event.seq] = means.verified.decode(held.kind.verifier, event)
    return found
