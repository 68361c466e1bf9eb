"""What fits into a model's window. Pure: the verdict is an event, and a replay applies it whatever a counter says then.

Over-counting costs some history, under-counting the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from .counting import Counter
from .state import MAX_WINDOW_TURNS
from .wording import cut

SUMMARY_SHARE = 4
"""A summary gets at most one part in so many of the window."""

MAX_CUT_CHARS = 1000
"""What is left of a tool result that is cut."""

CUT_MARK = "\n(cut: the rest of this result does not fit)"
"""Ends a tool result that was cut."""


class Sized(Struct, frozen=True):
    """A turn of the window. texts: of its messages, as a prompt shows them; needed only where tokens are not known."""

    ord: int
    tokens: int | UnsetType = UNSET
    texts: tuple[str, ...] = ()


class Fixed(Struct, frozen=True):
    """Texts that every prompt of the turn has. tools: the schemas as the model is shown them.

    summary: its message and the acknowledgement; empty where there is none.
    """

    system: str
    tools: str
    prompt: str
    summary: tuple[str, ...] = ()


class Fitted(Struct, frozen=True):
    """The verdict. kept, evicted: ords, oldest first. kept_tokens: of each kept turn. counted: tokens by ord of those
    that were counted now. tokens: of the whole request, made up of `parts`. summary_dropped: it would not fit."""

    kept: tuple[int, ...]
    kept_tokens: tuple[int, ...]
    evicted: tuple[int, ...]
    counted: dict[str, int]
    tokens: int
    parts: dict[Literal["system", "tools", "summary", "turns", "prompt"], int]
    summary_dropped: bool = False


def fit_to_window(
    context_window: int, reserve_output_tokens: int, fixed: Fixed, turns: Sequence[Sized], counter: Counter
) -> Fitted | None:
    """The longest newest suffix of whole turns that fits beside the fixed parts; None where the prompt alone does not.

    turns: oldest first. It stops at the first that does not fit, so it counts as many as it keeps and one more. The
    prompt is never left out; a summary that alone breaks the fit is.
    """
    free = context_window - reserve_output_tokens
    system = message_tokens(counter, fixed.system)
    tools = counter.count(fixed.tools)
    prompt = message_tokens(counter, fixed.prompt)
    summary = message_tokens(counter, *fixed.summary)
    free -= system + tools + prompt
    if free < 0:
        return None
    is_dropped = summary > free
    summary = 0 if is_dropped else summary
    free -= summary
    kept: list[tuple[int, int]] = []
    counted: dict[str, int] = {}
    for turn in reversed(turns):
        if len(kept) == MAX_WINDOW_TURNS:
            break
        tokens = turn.tokens
        if tokens is UNSET:
            tokens = counted[str(turn.ord)] = message_tokens(counter, *turn.texts)
        if tokens > free:
            break
        free -= tokens
        kept.append((turn.ord, tokens))
    kept.reverse()
    used = sum(tokens for _, tokens in kept)
    return Fitted(
        kept=tuple(ord_ for ord_, _ in kept),
        kept_tokens=tuple(tokens for _, tokens in kept),
        evicted=tuple(turn.ord for turn in turns[: len(turns) - len(kept)]),
        counted=counted,
        tokens=system + tools + prompt + summary + used,
        parts={"system": system, "tools": tools, "summary": summary, "turns": used, "prompt": prompt},
        summary_dropped=is_dropped,
    )


def message_tokens(counter: Counter, *texts: str) -> int:
    """Tokens of so many messages."""
    return sum(counter.count(text) + counter.per_message for text in texts)


class Result(Struct, frozen=True):
    """A tool call's result in the running turn."""

    call_id: str
    text: str


def fit_results(
    free: int, other: int, results: Sequence[Result], already_cut: Sequence[str], counter: Counter
) -> tuple[str, ...] | None:
    """Ids of the calls whose results the next request of a turn holds cut; None where not even that is enough.

    free: tokens that the request may have. other: tokens of all else in it. results: oldest first; the oldest are cut
    first, and what a request before held cut stays so. A result that is short already gains nothing from a cut.
    """
    shortened = set(already_cut)
    sizes = {
        each.call_id: message_tokens(counter, cut_result(each.text)) for each in results if each.call_id in shortened
    }
    for each in results:
        if each.call_id not in shortened:
            sizes[each.call_id] = message_tokens(counter, each.text)
    total = other + sum(sizes.values())
    for each in results:
        if total <= free:
            break
        short = message_tokens(counter, cut_result(each.text))
        if each.call_id not in shortened and short < sizes[each.call_id]:
            total -= sizes[each.call_id] - short
            shortened.add(each.call_id)
    return tuple(each.call_id for each in results if each.call_id in shortened) if total <= free else None


def cut_result(text: str) -> str:
    """A tool result cut between two characters, and marked; one that is short already stays as it is."""
    return text if len(text) <= MAX_CUT_CHARS + len(CUT_MARK) else cut(text, MAX_CUT_CHARS) + CUT_MARK


def cut_summary(text: str, context_window: int, counter: Counter) -> str:
    """As much of a summary's beginning as a quarter of the window holds. Few counts, whatever its length."""
    most = context_window // SUMMARY_SHARE
    if counter.count(text) <= most:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if counter.count(text[:middle]) <= most:
            low = middle
        else:
            high = middle - 1
    return cut(text, low)
