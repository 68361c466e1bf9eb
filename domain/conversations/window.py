"""The turns that later prompts may hold: what enters, what is too old, what waits for a summary. All pure.

In owner-only mode what does not fit is evicted for good; the fit decides it and its verdict is an event. By age a turn
leaves whatever anybody decides, so that the state stays bounded; in shared mode that is the only way out of the window,
since what does not fit one asker's turn may fit another's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from .identity import Identity
from .state import (
    MAX_EVICTED_TURNS,
    MAX_REPLAY_IDS,
    MAX_WINDOW_TURNS,
    Consumed,
    Conversation,
    SummaryRef,
    WindowTurn,
)
from .visibility import Cleared, may_see

T = TypeVar("T")


class Slice(Struct, frozen=True):
    """What one asker's turn may be fed. turns: whole ones, oldest first. hidden: ords of the questions of those that
    the asker is not cleared for. summary: the rolling one, where it may be shown."""

    turns: tuple[WindowTurn, ...]
    hidden: tuple[int, ...]
    summary: SummaryRef | None


def slice_for(conversation: Conversation, asker: Identity, cleared: Cleared) -> Slice:
    """The asker's own turns, and those of others that they are cleared for; a turn has the classes of its question and
    of its answer, so that it is in or out as a whole. In owner-only mode it is everything.

    The summary is everybody's: one that has classes is nobody's.
    """
    if conversation.mode == "owner":
        return Slice(conversation.window, (), conversation.summary)
    seen = [turn.asker == asker or may_see(turn.classes, cleared) for turn in conversation.window]
    places = list(zip(conversation.window, seen, strict=True))
    return Slice(
        tuple(turn for turn, is_seen in places if is_seen),
        tuple(turn.user_ord for turn, is_seen in places if not is_seen),
        common_summary(conversation),
    )


def class_sets(conversation: Conversation, asker: Identity) -> frozenset[frozenset[str]]:
    """What the clearance policy has to be asked before a turn of that asker's."""
    if conversation.mode == "owner":
        return frozenset()
    return frozenset(frozenset(turn.classes) for turn in conversation.window if turn.asker != asker and turn.classes)


def common_summary(conversation: Conversation) -> SummaryRef | None:
    """The summary, where prompts and the next summary may hold it: in shared mode one of unrestricted turns alone."""
    summary = conversation.summary
    return None if conversation.mode == "shared" and summary is not None and summary.classes else summary


def to_summarize(conversation: Conversation) -> tuple[WindowTurn, ...]:
    """The turns that wait for the next summary, oldest first: in shared mode none that has a class."""
    return tuple(turn for turn in conversation.evicted if conversation.mode == "owner" or not turn.classes)


def entered(conversation: Conversation, turn: WindowTurn) -> Conversation:
    """The state with a finished turn in its window; the oldest leaves where there are more than 64."""
    window = (*conversation.window, turn)
    kept = newest(window, MAX_WINDOW_TURNS)
    return replace(conversation, window=kept, evicted=_waiting(conversation, window[: len(window) - len(kept)]))


def decided(conversation: Conversation, evicted: Iterable[int], counted: Mapping[str, int]) -> Conversation:
    """The state after a verdict on the context: turns by the ord of their question, and what was counted of them."""
    out = frozenset(evicted)
    gone = [turn for turn in conversation.window if turn.user_ord in out]
    kept = [turn for turn in conversation.window if turn.user_ord not in out]
    return replace(
        conversation,
        window=tuple(_counted(turn, counted) for turn in kept),
        evicted=_waiting(conversation, [_counted(turn, counted) for turn in gone]),
    )


def consumed(conversation: Conversation, id_: str, iat: int) -> Conversation:
    """The state that has taken up the envelope. The ids issued first are forgotten, and the floor rises to them."""
    if not id_ or any(each.id == id_ for each in conversation.consumed):
        return conversation
    ids, floor = forget((*conversation.consumed, Consumed(id_, iat)), MAX_REPLAY_IDS, conversation.floor)
    return replace(conversation, consumed=ids, floor=floor)


def forget(ids: tuple[Consumed, ...], most: int, floor: int) -> tuple[tuple[Consumed, ...], int]:
    """At most so many ids, without those that were issued first, and the floor that keeps them dead."""
    surplus = len(ids) - most
    if surplus <= 0:
        return ids, floor
    by_issue = sorted(range(len(ids)), key=lambda place: (ids[place].iat, place))
    gone = frozenset(by_issue[:surplus])
    return (
        tuple(each for place, each in enumerate(ids) if place not in gone),
        max(floor, *(ids[place].iat for place in gone)),
    )


def newest(items: tuple[T, ...], most: int) -> tuple[T, ...]:
    """The last `most` of them."""
    return items[max(0, len(items) - most) :]


def _counted(turn: WindowTurn, counted: Mapping[str, int]) -> WindowTurn:
    tokens = counted.get(str(turn.user_ord))
    return turn if tokens is None or turn.tokens is not UNSET else replace(turn, tokens=tokens)


def _waiting(conversation: Conversation, gone: Iterable[WindowTurn]) -> tuple[WindowTurn, ...]:
    """A restricted turn of a shared conversation waits for no summary: it is dropped."""
    kept = (turn for turn in gone if conversation.mode == "owner" or not turn.classes)
    return newest((*conversation.evicted, *kept), MAX_EVICTED_TURNS)
