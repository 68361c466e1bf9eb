"""What a rotation keeps: written by a pure function of the state, and read back as untrusted input."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from .identity import Identity, identity_key
from .state import (
    MAX_CARRY_BYTES,
    MAX_EVICTED_TURNS,
    MAX_PARTICIPANTS,
    MAX_RECORDED_INVALID,
    MAX_REPLAY_IDS,
    MAX_WAITING_SHARED,
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
_KEY = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{16}")
_FORGOTTEN_AT_ONCE = 64
"""Envelope ids that the trim forgets between two looks at the size."""

_MOST_WAITING = max(MAX_WAITING_TURNS, MAX_WAITING_SHARED) + MAX_RECORDED_INVALID
assert _MOST_WAITING < MAX_CARRIED_QUEUE  # noqa: S101 - a relation of constants


def carry_of(conversation: Conversation) -> Carry:
    """The live state, trimmed to MAX_CARRY_BYTES. Clearances are carried of those alone who may speak."""
    carry = Carry(**{name: getattr(conversation, name) for name in _CARRIED})
    if carry.clearances:
        present = {identity_key(each) for each in (conversation.owner, *conversation.participants) if each is not None}
        kept = {key: known for key, known in carry.clearances.items() if key in present}
        carry = replace(carry, clearances=kept)
    return trim(carry)


def may_be_carried(conversation: Conversation) -> bool:
    """Whether what a rotation may not give up has room in a carry: what waits in a shared conversation may be more."""
    return len(conversation.queue) <= MAX_CARRIED_QUEUE and _size(carry_of(conversation)) <= MAX_CARRY_BYTES


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
        and _are_people(carry)
    )


def _are_people(carry: Carry) -> bool:
    """Whether participants and clearances are such as a shared conversation's may be."""
    owner, people = carry.owner, carry.participants
    known = carry.clearances
    return (
        (carry.mode == "shared" or not (people or known))
        and len(people) < MAX_PARTICIPANTS
        and len(set(people)) == len(people)
        and all(_is_person(each, owner) for each in people)
        and len(known) <= MAX_PARTICIPANTS
        and all(_KEY.fullmatch(key) and _DIGEST.fullmatch(digest) for key, digest in known.items())
    )


def _is_person(who: Identity, owner: Identity | None) -> bool:
    """Whether somebody may be named as a participant beside that owner."""
    is_of_tenant = owner is not None and who != owner and who.tenant == owner.tenant
    return is_of_tenant and who.on_behalf_of is UNSET and who.actor.startswith("human:")


def _ascend(numbers: list[int], below: int) -> bool:
    """Whether they are positive, ascend, and stay below a number."""
    return all(low < high for low, high in zip([0, *numbers], [*numbers, below], strict=True))


def _is_turn(turn: WindowTurn, next_ord: int, seq: int) -> bool:
    return 1 <= turn.user_ord < turn.reply_ord < next_ord and 1 <= turn.user_seq < turn.reply_seq < seq
