"""The end of a turn behind its reply: its steps are sealed and its tokens settled, by who ran it or who comes next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import structlog
from msgspec import UNSET

from ...domain.conversations.events import ReplyRecorded, ReplyStatus, UserRecorded
from ...domain.conversations.state import WindowTurn
from ...domain.conversations.turn_events import TurnEnded
from .held import Held
from .means import RunnerMeans
from .steps import NotOurs, Steps

MAX_REMEMBERED = 10_000
"""Conversations whose last sealed turn is remembered."""

log = structlog.get_logger(__name__)


class SealedTurns:
    """The last turns that this process sealed by itself, by conversation: there is nothing to tidy up behind them."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, int] = OrderedDict()

    def note(self, conversation_id: str, turn: int) -> None:
        """That turn is sealed."""
        self._turns[conversation_id] = turn
        self._turns.move_to_end(conversation_id)
        if len(self._turns) > MAX_REMEMBERED:
            self._turns.popitem(last=False)

    def is_known(self, conversation_id: str, turn: int) -> bool:
        """Whether that one is."""
        return self._turns.get(conversation_id) == turn


async def finish(
    means: RunnerMeans, steps: Steps | None, status: ReplyStatus, settled: tuple[str, Mapping[str, int]] | None
) -> None:
    """Seal the steps of a turn whose reply is recorded. settled: its execution and what it used, where a ceiling
    counts. Once or again, it is the same. Raises LeaseLost, Unavailable."""
    if steps is not None and steps.progress.version and steps.progress.ended is None:
        try:
            await steps.record(TurnEnded(status, "", ""), seal=True)
        except NotOurs:
            log.error("a turn's steps were written by somebody else")  # noqa: TRY400 - there is no more to say
    if settled is not None:
        execution, usage = settled
        await means.tokens.settle(execution, sum(usage.values()))


async def tidy(means: RunnerMeans, held: Held, turn: WindowTurn) -> None:
    """What a crash between a turn's reply and its seal has left. Raises as finish."""
    found = {
        each.event.seq: held.kind.verifier.decode(each.event)
        for each in await means.log.at(held.stream_id, [turn.user_seq, turn.reply_seq])
    }
    question, reply = found.get(turn.user_seq), found.get(turn.reply_seq)
    if not isinstance(question, UserRecorded) or not isinstance(reply, ReplyRecorded):
        return
    try:
        execution = means.scribe.execution(held.conversation_id, question.ord, question.kid)
        steps = Steps(means.store, means.scribe, held, execution, means.retention_days(held.tenant))
        await steps.read(turn.turn, question.ord, turn.asker)
    except (LookupError, NotOurs):
        return  # the key is gone, or the steps are none of ours: the turn failed, and said so
    usage = {} if reply.usage is UNSET else reply.usage
    await finish(means, steps, reply.status, (execution, usage))
