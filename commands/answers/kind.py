"""What the dispatcher must know of answers."""

from __future__ import annotations

from functools import reduce

from ...domain.answers.events import ANSWER_EVENTS
from ...domain.answers.state import INITIAL, SCHEMA, AnswerState, evolve
from ...domain.ids import long_id
from ..deliveries.ports import Hashes
from ..ports import EventStore
from ..streams import Kind, left_as_it_is

ANSWER = "answer"

RETENTION_DAYS = 90
"""Of an answer's stream, from its seal on: as long as that of its deliveries."""

MAX_EVENTS = 16
"""Read of one answer's stream, which has two."""


ANSWER_KIND: Kind[AnswerState] = Kind(ANSWER, SCHEMA, INITIAL, AnswerState, ANSWER_EVENTS, evolve, left_as_it_is)


def stream_of(answer_id: str) -> str:
    """The name of an answer's stream."""
    return f"{ANSWER}:{answer_id}"


def answer_id_of(hashes: Hashes, tenant: str, conversation_id: str, envelope_id: str) -> str:
    """The id of the answer to a message: a keyed hash, the same for ever."""
    return long_id(hashes.id_bits(tenant, f"answer\n{conversation_id}\n{envelope_id}"))


async def load(store: EventStore, answer_id: str) -> tuple[AnswerState, int]:
    """An answer as its stream says it, and the last seq; 0 where there is none. Raises Unavailable, Damaged."""
    head = await store.head(stream_of(answer_id))
    if head is None:
        return INITIAL, 0
    events = await store.read_for_fold(head.id, 0, MAX_EVENTS)
    return reduce(ANSWER_KIND.fold, events, INITIAL), head.version
