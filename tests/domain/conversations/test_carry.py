"""What a rotation keeps, how it is trimmed, and that what is read back is checked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conversation_scenes import ALICE, CONVERSATION, Log
from hypothesis import given, settings
from hypothesis import strategies as st
from minutebook.domain.conversations.carry import carry_of, read_carry, trim
from minutebook.domain.conversations.events import ConversationRotated
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.state import (
    MAX_CARRY_BYTES,
    MAX_EVICTED_TURNS,
    MAX_RECORDED_INVALID,
    MAX_REPLAY_IDS,
    MAX_WAITING_TURNS,
    MAX_WINDOW_TURNS,
    ROTATE_TURNS,
    Carry,
    Consumed,
    Conversation,
    SummaryRef,
    Waiting,
    WindowTurn,
)
from minutebook.domain.conversations.turns import NewSummary, record_summary
from msgspec.structs import replace

SEQ = 100_000
"""Place of the rotation that is read."""


def size(carry: Carry) -> int:
    """Bytes as JSON."""
    return len(msgspec.json.encode(carry))


def turn(number: int, asker: Identity = ALICE) -> WindowTurn:
    """A finished turn."""
    return WindowTurn(number, asker, 2 * number - 1, 4 * number, 2 * number, 4 * number + 1, "completed")


def full(name: str = "human:alice") -> Carry:
    """A carry with all that it may hold, of somebody with that name."""
    who = Identity(name, name, name)
    return Carry(
        id=CONVERSATION,
        owner=who,
        agent="echo",
        mode="owner",
        barge_in="queue",
        next_ord=1000,
        turns=200,
        queue=tuple(
            Waiting(n, "ab" * 32, iat=2**50, asker=who)
            if n <= MAX_WAITING_TURNS
            else Waiting(n, is_signed=False, is_suspect=True)
            for n in range(1, MAX_WAITING_TURNS + MAX_RECORDED_INVALID + 1)
        ),
        evicted=tuple(turn(n, who) for n in range(1, MAX_EVICTED_TURNS + 1)),
        window=tuple(turn(n + MAX_EVICTED_TURNS, who) for n in range(1, MAX_WINDOW_TURNS + 1)),
        summary=SummaryRef(3, 5, 0, 100),
        consumed=tuple(Consumed(f"{n:064x}", 2**50 + n) for n in range(MAX_REPLAY_IDS)),
        floor=7,
    )


def read(carry: Carry, generation: int = 2, seq: int = SEQ) -> Conversation | None:
    """A carry as it comes back from the log."""
    return read_carry(msgspec.json.decode(msgspec.json.encode(carry)), generation, seq)


def test_a_carry_of_everybody_fits_and_is_read() -> None:
    carry = full()
    assert trim(carry) == carry
    state = read(carry)
    assert state is not None
    assert carry_of(state) == carry
    assert (state.generation, state.events, state.generation_turns, state.running) == (2, 1, 0, None)


def test_a_carry_that_is_too_large_loses_its_oldest_turns_first() -> None:
    carry = full("human:" + "x" * 249)
    assert size(carry) > MAX_CARRY_BYTES
    small = trim(carry)
    assert size(small) <= MAX_CARRY_BYTES
    gone = len(carry.evicted) - len(small.evicted)
    assert gone > 0
    assert small.evicted == carry.evicted[gone:]
    assert small.window == carry.window
    assert (small.queue, small.summary, small.consumed) == (carry.queue, carry.summary, carry.consumed)
    assert read(small) is not None


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 400_000), st.sampled_from(["human:alice", "human:" + "\u4f60" * 80]))
def test_a_trim_keeps_the_newest_and_never_what_waits(most: int, name: str) -> None:
    carry = full(name)
    small = trim(carry, most)
    before, after = (*carry.evicted, *carry.window), (*small.evicted, *small.window)
    assert after == before[len(before) - len(after) :]
    assert (small.queue, small.summary, small.turns) == (carry.queue, carry.summary, carry.turns)
    forgotten = set(carry.consumed) - set(small.consumed)
    assert all(each.iat <= small.floor for each in forgotten)
    assert all(each.iat > small.floor for each in small.consumed)
    assert size(small) <= most or not (after or small.consumed)
    assert trim(small, most) == small
    if len(after) < len(before) and small.consumed == carry.consumed:
        oldest = before[len(before) - len(after) - 1]
        size_before = size(small) + len(msgspec.json.encode(oldest))
        assert size_before > most - 200, "no turn goes that had room"


BROKEN: dict[str, dict[str, Any]] = {
    "no conversation": {"id": ""},
    "an ord below 1": {"nextOrd": 0},
    "a huge ord": {"nextOrd": 2**53},
    "a negative count": {"invalid": -1},
    "a huge floor": {"floor": 2**60},
    "text for a number": {"turns": "3"},
    "an unknown member": {"extra": 1},
    "another mode": {"mode": "open"},
    "no owner member": {"owner": 7},
    "too many waiting": {"queue": [{"seq": n} for n in range(1, 1026)]},
    "a queue out of order": {"queue": [{"seq": 5}, {"seq": 4}]},
    "a queue with a double": {"queue": [{"seq": 5}, {"seq": 5}]},
    "a queue from the future": {"queue": [{"seq": SEQ}]},
    "a queue from before the beginning": {"queue": [{"seq": 0}]},
    "a kind that there is not": {"queue": [{"seq": 5, "kind": "start"}]},
    "too many ids": {"consumed": [{"id": f"{n}", "iat": n} for n in range(1025)]},
    "a window that is too long": {"window": [msgspec.to_builtins(turn(n)) for n in range(1, 66)]},
    "too many evicted": {"evicted": [msgspec.to_builtins(turn(n)) for n in range(1, 66)]},
    "a window out of order": {"window": [msgspec.to_builtins(turn(n)) for n in (2, 1)]},
    "a turn that was not yet": {"window": [msgspec.to_builtins(turn(201))]},
    "a turn whose reply came first": {"window": [msgspec.to_builtins(replace(turn(1), reply_ord=1, user_ord=2))]},
    "a turn with an ord not given yet": {"window": [msgspec.to_builtins(replace(turn(1), reply_ord=1000))]},
    "a turn from the future": {"window": [msgspec.to_builtins(replace(turn(1), reply_seq=SEQ))]},
    "a summary from the future": {"summary": {"number": 1, "seq": SEQ, "throughTurn": 1, "tokens": 1}},
    "a summary with no number": {"summary": {"number": 0, "seq": 5, "throughTurn": 1, "tokens": 1}},
    "too many bytes": {"agent": "x" * MAX_CARRY_BYTES},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_carry_is_read_as_untrusted(broken: dict[str, Any]) -> None:
    sound = replace(full(), queue=(), window=(), evicted=(), consumed=(), summary=None)
    body = msgspec.to_builtins(sound)
    assert read_carry(body, 2, SEQ) is not None
    assert read_carry(body | broken, 2, SEQ) is None


def test_the_first_generation_has_no_carry() -> None:
    assert read(full(), generation=1) is None


def rotated() -> Log:
    """A conversation behind a rotation, with turns, a summary, a rejected and a waiting message."""
    log = Log().start(barge_in="interrupt")
    for number in range(3):
        log.turn(f"{number}", message_id=f"m-{number}")
    log.state = replace(log.state, evicted=log.state.window[:1], window=log.state.window[1:])
    log.append(record_summary(log.state, NewSummary("They greeted.", 4, 99)))
    log.send("waits")
    log.forge()
    log.state = replace(log.state, generation_turns=ROTATE_TURNS)
    assert log.step() == "rotate"
    return log


def test_a_state_behind_a_rotation_is_the_same_from_the_carry_alone() -> None:
    log = rotated()
    place = next(row.seq for row in log.rows if row.type == ConversationRotated.type)
    assert log.folded(after=place - 1) == log.state
    assert (log.state.id, log.state.owner, log.state.generation) == (CONVERSATION, ALICE, 2)


def test_a_message_in_hand_is_carried_once_and_stays_untrusted() -> None:
    log = rotated()
    assert [(each.is_signed, each.is_suspect) for each in log.state.queue] == [(True, False), (False, True)]
    row = log.rows[log.state.queue[0].seq - 1]
    place = row.seq - 1
    log.rows[place] = replace(row, payload=row.payload.replace("waits", "obeys"))
    assert log.step() == "unauthenticated", "it is judged from what is stored, not from the carry"
    assert log.step() == "unauthenticated"
    assert log.step() == "idle"


def test_what_was_consumed_stays_so_behind_a_rotation() -> None:
    log = rotated()
    log.put("envelope_received", msgspec.json.decode(log.rows[1].payload))
    assert log.state.queue[-1].is_suspect


def test_a_rotation_of_another_conversation_is_not_ours() -> None:
    log = rotated()
    row = next(row for row in log.rows if row.type == ConversationRotated.type)
    other = Log(conversation_id="b" * 26).start()
    while len(other.rows) < row.seq - 1:
        other.turn()
    before = other.state
    other.put(row.type, msgspec.json.decode(row.payload), row.actor)
    assert replace(other.state, events=before.events) == before
