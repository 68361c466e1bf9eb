"""Which events hold the words of a turn: question, answer, steps, and summaries that cover it (rules.md, 10 and 14)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec
from msgspec import Struct

from ...domain.conversations.erasing import WITH_WORDS, what_stays
from ...domain.conversations.events import EnvelopeReceived, ReplyRecorded, SummaryRecorded, UserRecorded
from ...domain.conversations.signing import Keyring, execution_id
from ..ports import EventStore, StoredEvent
from ..streams import PAGE
from .kind import conversation_kind, stream_of, turn_stream_of
from .ports import ConversationLog


class NoWords(Exception):
    """There is nothing that could be erased now; the message says why and what to do."""


class Piece(Struct, frozen=True):
    """One event whose words go. left: what stands in the place of its payload, as JSON."""

    stream: str
    seq: int
    left: str


class Message(Struct, frozen=True):
    """Where a conversation has a message. ords: of its records. waits: it was received, and is no record yet."""

    ords: tuple[int, ...]
    waits: bool


async def message_of(store: EventStore, keyring: Keyring, conversation_id: str, message_id: str) -> Message | None:
    """Where a message is, whoever sent it: two people may have given the same id. None where there is no such
    conversation any more. Reads the whole conversation. Raises Unavailable."""
    head = await store.head(stream_of(conversation_id))
    if head is None:
        return None
    verifier = conversation_kind(keyring, conversation_id).verifier
    received: set[str] = set()
    recorded: dict[int, str] = {}
    async for event in _with_words(store, head.id):
        match verifier.decode(event):
            case EnvelopeReceived(kind="user") as each if each.message_id == message_id:
                received.add(each.id)
            case UserRecorded() as each if each.message_id == message_id:
                recorded[each.ord] = str(each.id)
            case _:
                pass
    return Message(tuple(sorted(recorded)), not received <= set(recorded.values()))


async def pieces_of(
    store: EventStore, log: ConversationLog, keyring: Keyring, conversation_id: str, ord_: int
) -> list[Piece]:
    """Everything that holds words of the turn of that record, or of that one rejected message.

    What was erased before is among them, so that whoever repeats it goes on where it ended. Raises NoWords where there
    is no such record, or its turn is not at its end; Unavailable.
    """
    stream = stream_of(conversation_id)
    head = await store.head(stream)
    verifier = conversation_kind(keyring, conversation_id).verifier
    at = [] if head is None else await log.by_ords(head.id, [ord_])
    meant = verifier.decode(at[0].event) if at else None
    if head is None or not isinstance(meant, UserRecorded | ReplyRecorded):
        raise NoWords(f"{stream} has no record {ord_}.")
    records: list[StoredEvent] = []
    summaries: list[StoredEvent] = []
    question, is_over = None, not meant.turn
    async for event in _with_words(store, head.id):
        match verifier.decode(event):
            case SummaryRecorded(outcome="replaced", through_turn=through) if meant.turn and through >= meant.turn:
                summaries.append(event)
            case UserRecorded() as each if each.ord == ord_ or (meant.turn and each.turn == meant.turn):
                records.append(event)
                question = each
            case ReplyRecorded() as each if each.turn == meant.turn:
                records.append(event)
                is_over = True
            case _:
                pass
    if question is None or not is_over:
        raise NoWords(f"The turn of record {ord_} is not at its end; interrupt it, or erase once it is.")
    steps: list[Piece] = []
    if meant.turn:
        steps = await _steps(
            store, keyring, turn_stream_of(execution_id(keyring, question.kid, conversation_id, question.ord))
        )
    envelope = await store.read_for_fold(head.id, question.envelope_seq - 1, 1)
    return [*steps, *(_piece(keyring, stream, event) for event in (*summaries, *envelope, *records))]


async def _steps(store: EventStore, keyring: Keyring, stream: str) -> list[Piece]:
    head = await store.head(stream)
    if head is None:
        return []  # it was interrupted before its first step
    if not head.sealed:
        raise NoWords("The turn's steps are not sealed yet; erase again once the conversation has gone on.")
    return [_piece(keyring, stream, event) async for event in _with_words(store, head.id)]


async def _with_words(store: EventStore, stream_id: int) -> AsyncGenerator[StoredEvent]:
    after = 0
    while page := await store.read_for_fold(stream_id, after, PAGE):
        for event in page:
            if event.type in WITH_WORDS:
                yield event
        after = page[-1].seq


def _piece(keyring: Keyring, stream: str, event: StoredEvent) -> Piece:
    left = what_stays(keyring, stream, event.seq, event.type, msgspec.json.decode(event.payload))
    return Piece(stream, event.seq, msgspec.json.encode(left).decode())
