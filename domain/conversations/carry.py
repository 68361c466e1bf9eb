"""What a rotation keeps: written by a pure function of the state, and read back as untrusted input."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from .state import (
    MAX_CARRY_BYTES,
    MAX_EVICTED_TURNS,
    MAX_RECORDED_INVALID,
    MAX_REPLAY_IDS,
    MAX_WAITING_TURNS,
    MAX_WINDOW_TURNS,
    Carry,
    Conversation,
    WindowTurn,
)
from .window import forget

MAX_CARRIED_QUEUE = 1024
"""Envelopes that a carry may hold: more than ever wait in one conversation."""

_CARRIED = Carry.__struct_fields__
"""What a carry and a state both have, under the same names."""

_MAX_NUMBER = 2**53
_FORGOTTEN_AT_ONCE = 64
"""Envelope ids that the trim forgets between two looks at the size."""

assert MAX_CARRIED_QUEUE > MAX_WAITING_TURNS + MAX_RECORDED_INVALID  # noqa: S101 - a relation of two constants


def carry_of(conversation: Conversation) -> Carry:
    """The live state, trimmed to MAX_CARRY_BYTES."""
    return trim(Carry(**{name: getattr(conversation, name) for name in _CARRIED}))


def trim(carry: Carry, most: int = MAX_CARRY_BYTES) -> Carry:
    """At most `most` bytes as JSON: the oldest whole turn goes first, then the ids issued first, and the floor rises.

    What waits and the summary are never given up.
    """
    size = _size(carry)
    while size > most and (carry.evicted or carry.window):
        if carry.evicted:
            size -= _part(carry.evicted[0])
            carry = replace(carry, evicted=carry.evicted[1:])
        else:
            size -= _part(carry.window[0])
            carry = replace(carry, window=carry.window[1:])
    size = _size(carry)
    while size > most and carry.consumed:
        ids, floor = forget(carry.consumed, max(0, len(carry.consumed) - _FORGOTTEN_AT_ONCE), carry.floor)
        carry = replace(carry, consumed=ids, floor=floor)
        size = _size(carry)
    return carry


def _size(carry: Carry) -> int:
    return len(msgspec.json.encode(carry))


def _part(turn: WindowTurn) -> int:
    return len(msgspec.json.encode(turn)) + 1


def read_carry(body: dict[str, Any], generation: int, seq: int) -> Conversation | None:
    """The state that a rotation at `seq` begins with; None where shapes, counts, sizes or order are not such a state's.

    It is read the same way whether the generation before it is known or not.
    """
    try:
        carry = msgspec.convert(body, Carry)
    except msgspec.ValidationError:
        return None
    if generation < 2 or not _is_plausible(carry, seq) or _size(carry) > MAX_CARRY_BYTES:
        return None
    return Conversation(generation=generation, events=1, **{name: getattr(carry, name) for name in _CARRIED})


def _is_plausible(carry: Carry, seq: int) -> bool:
    numbers = (carry.turns, carry.floor, carry.invalid, carry.dropped, carry.dropped_uncounted)
    turns = [*carry.evicted, *carry.window]
    return (
        bool(carry.id)
        and 1 <= carry.next_ord < _MAX_NUMBER
        and all(0 <= number < _MAX_NUMBER for number in numbers)
        and len(carry.queue) <= MAX_CARRIED_QUEUE
        and len(carry.window) <= MAX_WINDOW_TURNS
        and len(carry.evicted) <= MAX_EVICTED_TURNS
        and len(carry.consumed) <= MAX_REPLAY_IDS
        and _ascend([each.seq for each in carry.queue], seq)
        and _ascend([turn.turn for turn in turns], carry.turns + 1)
        and all(_is_turn(turn, carry.next_ord, seq) for turn in turns)
        and (carry.summary is None or (carry.summary.number >= 1 and 1 <= carry.summary.seq < seq))
    )


def _ascend(numbers: list[int], below: int) -> bool:
    """Whether they are positive, ascend, and stay below a number."""
    return all(low < high for low, high in zip([0, *numbers], [*numbers, below], strict=True))


def _is_turn(turn: WindowTurn, next_ord: int, seq: int) -> bool:
    return 1 <= turn.user_ord < turn.reply_ord < next_ord and 1 <= turn.user_seq < turn.reply_seq < seq
