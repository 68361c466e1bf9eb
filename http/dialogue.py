"""One followed conversation: its records for all viewers of the process, the running reply, and who may have them."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from ..commands.conversations.ports import At, Delta, Position
from ..domain.conversations.erasing import NAMING
from ..domain.conversations.events import ConversationClosed, ParticipantRemoved, ReplyRecorded
from ..domain.conversations.identity import Identity
from ..domain.conversations.state import Conversation
from ..domain.conversations.visibility import Sight
from .conversation_entries import Reader, Record, shown
from .live import single_line

BUFFERED_MESSAGES = 256
BUFFERED_BYTES = 1024 * 1024
"""What a followed conversation keeps for viewers who are nearly up to date; the others read the log."""

REMEMBERED_REMOVALS = 256
"""Of participants, for who joins between being let in and being followed: a moment."""


class Message:
    """A record and its frames, each made once for all viewers who get the same. cursor: the frames' id. size: see
    Record."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.ord = record.ord
        self.cursor = record.cursor
        self.size = record.size
        self._frames: dict[Sight, bytes] = {}

    def frame(self, sight: Sight) -> bytes:
        """One well-formed frame whose data is one line of JSON, whatever was said (law 16)."""
        made = self._frames.get(sight)
        if made is None:
            head = f"id: {self.cursor}\nevent: message\ndata: ".encode()
            data = single_line(msgspec.json.encode(shown(self.record, sight)))
            made = self._frames[sight] = head + data + b"\n\n"
        return made


class Live:
    """A reply that is being generated, from its first word. length: code points so far. local_at: loop time of the last
    delta that came from this process."""

    def __init__(self, turn: int, attempt: int) -> None:
        self.turn = turn
        self.attempt = attempt
        self.length = 0
        self.local_at = 0.0
        self._offsets: list[int] = []
        self._texts: list[str] = []
        self._encoded: tuple[str, int, int, bytes] | None = None

    def add(self, offset: int, text: str) -> bool:
        """Append what is new of it; False where something is missing before it."""
        if offset > self.length:
            return False
        fresh = text[self.length - offset :]
        if fresh:
            self._offsets.append(self.length)
            self._texts.append(fresh)
            self.length += len(fresh)
        return True

    def since(self, offset: int) -> str:
        """The text behind that many code points."""
        if offset >= self.length:
            return ""
        place = bisect_right(self._offsets, offset) - 1
        first = self._texts[place][offset - self._offsets[place] :]
        return first + "".join(self._texts[place + 1 :])

    def frame(self, event: str, offset: int) -> bytes:
        """`partial` of all of it, or `delta` of what is behind `offset`; encoded once for all who want the same."""
        kept = self._encoded
        if kept is not None and kept[:3] == (event, offset, self.length):
            return kept[3]
        at = self.length if event == "partial" else offset
        data = {"turn": self.turn, "attempt": self.attempt, "offset": at, "text": self.since(offset)}
        made = f"event: {event}\ndata: ".encode() + single_line(msgspec.json.encode(data)) + b"\n\n"
        self._encoded = (event, offset, self.length, made)
        return made


class Viewing(msgspec.Struct, eq=False):
    """One viewer's right to a conversation, from when it was looked at on. who: as whom they take part. seq: of the
    conversation's stream then. until: the last ord that they may have, None while they take part. is_leaving: they do
    not any more, and the log has yet to be read as far as that."""

    who: Identity
    seq: int
    until: int | None = None
    is_leaving: bool = False

    def theirs(self, messages: list[Message]) -> list[Message]:
        """Those that were recorded while they took part."""
        return messages if self.until is None else [each for each in messages if each.ord <= self.until]

    def is_over(self, ord_: int) -> bool:
        """Whether somebody who has everything up to that ord gets no more."""
        return self.until is not None and ord_ >= self.until


class Dialogue:
    """One conversation with at least one viewer in this process.

    mode: of the conversation. seq: of the last record that was read. version: of the stream, when the poll last looked.
    first_ord: of the buffer, where all records from it to last_ord are. asked, answered: newest turns whose question
    and reply are in the log. asker: of the turn `asked`. total_bytes: of all that was ever buffered. removals: seqs of
    those that were read last, and whose they are.
    """

    def __init__(self, stream_id: int, reader: Reader, conversation: Conversation, seq: int) -> None:
        self.stream_id = stream_id
        self.reader = reader
        self.mode = conversation.mode
        self.asker = None if conversation.running is None else conversation.running.asker
        self.seq = self.version = seq
        self.last_ord = conversation.next_ord - 1
        self.first_ord = conversation.next_ord
        self.messages: deque[Message] = deque()
        self.buffered = 0
        self.total_bytes = 0
        self.asked = conversation.turns
        self.answered = conversation.turns if conversation.running is None else conversation.running.turn - 1
        self.is_closed = conversation.state == "closed"
        self.live: Live | None = None
        self.viewers: dict[asyncio.Event, Viewing] = {}
        self.removals: deque[tuple[int, Identity]] = deque(maxlen=REMEMBERED_REMOVALS)
        self.end: Callable[[], None] = _nothing
        self.is_reading = False
        self.is_stale = False

    def after(self, ord_: int) -> list[Message] | None:
        """Buffered messages behind `ord_`; None where some of them are only in the log."""
        if ord_ >= self.last_ord:
            return []
        if ord_ + 1 < self.first_ord:
            return None
        return [message for message in self.messages if message.ord > ord_]

    def shown(self, viewing: Viewing) -> Live | None:
        """The running reply, once its question is in the log, for who asked it; its end there takes it away.

        What a turn is classified as is known at its end: until then nobody else sees any of it.
        """
        live = self.live
        is_over = viewing.is_leaving or viewing.until is not None
        if live is None or is_over or live.turn > self.asked or not self._is_for(viewing.who, live.turn):
            return None
        return live

    def _is_for(self, who: Identity, turn: int) -> bool:
        return self.mode == "owner" or (turn == self.asked and self.asker is not None and self.asker == who)

    def add(self, found: Sequence[At]) -> None:
        """Records, removals and the close, as they were read: buffer them, drop what is over the bounds, wake the
        viewers."""
        for at in found:
            self.seq = at.event.seq
            if at.event.type == NAMING:
                self._forget()
            event = self.reader.decode(at)
            if isinstance(event, ConversationClosed):
                self.is_closed = True
            elif isinstance(event, ParticipantRemoved):
                self._part_with(event.participant)
            record = self.reader.record(at)
            if record is not None and record.ord > self.last_ord:
                self._append(record)
        while len(self.messages) > BUFFERED_MESSAGES or (self.buffered > BUFFERED_BYTES and len(self.messages) > 1):
            dropped = self.messages.popleft()
            self.buffered -= dropped.size * self._variants
            self.first_ord = dropped.ord + 1
        self.wake()

    def join(self, viewer: asyncio.Event, viewing: Viewing) -> None:
        """One more viewer, who may have been taken out since they were let in: then they get nothing."""
        if any(seq > viewing.seq and who == viewing.who for seq, who in self.removals):
            viewing.until = 0
        self.viewers[viewer] = viewing

    def _part_with(self, who: Identity) -> None:
        """Those who are somebody get what came before, and no more, whether or not they take part again."""
        self.removals.append((self.seq, who))
        for viewing in self.viewers.values():
            if viewing.who == who and viewing.seq < self.seq and viewing.until is None:
                viewing.until = self.last_ord

    def _forget(self) -> None:
        """Something was erased: what is buffered may hold it, so that whoever wants it reads the log."""
        self.messages.clear()
        self.buffered = 0
        self.first_ord = self.last_ord + 1

    def _append(self, record: Record) -> None:
        message, event = Message(record), record.event
        self.messages.append(message)
        self.buffered += message.size * self._variants
        self.total_bytes += message.size
        self.last_ord = event.ord
        if isinstance(event, ReplyRecorded):
            self.answered = max(self.answered, event.turn)
            if self.live is not None and self.live.turn <= self.answered:
                self.live = None
        elif event.turn > self.asked:
            self.asked, self.asker = event.turn, event.asker

    @property
    def _variants(self) -> int:
        """Frames of a record that are about as long as its longest one."""
        return 1 if self.mode == "owner" else 2

    def hear(self, delta: Delta) -> bool:
        """Some of a reply; False where its beginning, or something between, is missing."""
        live = self.live
        if delta.turn <= self.answered:
            return True
        if live is None or (delta.turn, delta.attempt) > (live.turn, live.attempt):
            if delta.offset > 0:
                return False
            live = self.live = Live(delta.turn, delta.attempt)
        elif (delta.turn, delta.attempt) < (live.turn, live.attempt):
            return True
        is_whole = live.add(delta.offset, delta.text)
        for viewer, viewing in self.viewers.items():
            if self._is_for(viewing.who, live.turn):
                viewer.set()
        return is_whole

    def position(self) -> Position:
        """How far the running reply is here."""
        live = self.live
        return Position(self.answered + 1) if live is None else Position(live.turn, live.attempt, live.length)

    def wake(self) -> None:
        """Have every viewer look."""
        for viewer in self.viewers:
            viewer.set()


def _nothing() -> None:
    pass
