"""Following rooms live: each followed stream is read once for all its viewers, and every frame encoded once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import structlog

from ..domain.envelope import Placeholder
from ..domain.errors import MinutebookError, Unavailable
from ..domain.rooms.events import ROOM_EVENTS, ParticipantLeft, RoomClosed
from ..domain.visibility import cleared
from ..infra.postgres.store import Entry, PostgresStore

BUFFERED_FRAMES = 1_000
BUFFERED_BYTES = 1024 * 1024
"""What a followed stream keeps for viewers who are nearly up to date; the others read the log."""

PAGE = 500
"""Entries read at a time."""

SEND_BYTES = 64 * 1024
"""Frames are joined to chunks of about this size."""

CATCH_UP_READERS = 4
"""Viewers of this process that read history from the database at one moment."""

POLL_S = 1.0
"""A look at the heads of all followed streams, whatever the listener says: bounds the delay by 2 s (law 8)."""

log = structlog.get_logger(__name__)


class Frame(msgspec.Struct):
    """An entry as SSE bytes: whole, and as the placeholder for those who are not cleared."""

    seq: int
    full: bytes
    restricted: bytes
    classes: frozenset[str]
    left: str | None
    is_close: bool

    def for_labels(self, labels: frozenset[str]) -> bytes:
        """What a viewer with these clearance labels gets."""
        return self.full if cleared(self.classes, labels) else self.restricted


def encode(entry: Entry) -> Frame:
    """One well-formed frame whose data is one line of JSON, whatever users wrote (law 16)."""
    envelope = entry.envelope
    head = f"id: {envelope.seq}\nevent: event\ndata: ".encode()
    full = head + single_line(msgspec.json.encode(envelope)) + b"\n\n"
    restricted = full
    if entry.classes:
        bare = Placeholder(envelope.id, envelope.seq, envelope.room_id, envelope.ts)
        restricted = head + msgspec.json.encode(bare) + b"\n\n"
    left, is_close = _ends(entry)
    return Frame(envelope.seq, full, restricted, entry.classes, left, is_close)


def single_line(data: bytes) -> bytes:
    """JSON without raw line breaks: between tokens they are space, inside strings JSON escapes them already."""
    return data.replace(b"\r", b" ").replace(b"\n", b" ") if b"\n" in data or b"\r" in data else data


def _ends(entry: Entry) -> tuple[str | None, bool]:
    """Who left with this entry, and whether it closed the room. What this version cannot read ends nothing."""
    if entry.envelope.type not in (ParticipantLeft.type, RoomClosed.type):
        return None, False
    try:
        event = ROOM_EVENTS.decode(entry.envelope.type, entry.schema_version, bytes(entry.envelope.payload))
    except (MinutebookError, RecursionError):
        return None, False
    return event.principal if isinstance(event, ParticipantLeft) else None, isinstance(event, RoomClosed)


class Burst:
    """Frames that came to a stream at one moment. after: the seq behind which they follow. at: loop time.

    total_bytes: see Followed. is_plain: small enough for one write, and none of them can end a stream.
    """

    def __init__(self, after: int, frames: Sequence[Frame], total_bytes: int) -> None:
        self.after = after
        self.head = frames[-1].seq
        self.at = asyncio.get_running_loop().time()
        self.total_bytes = total_bytes
        self._frames = frames
        self._joined: dict[frozenset[str], bytes] = {}
        size = sum(len(frame.full) for frame in frames)
        self.is_plain = size <= SEND_BYTES and not any(frame.is_close or frame.left for frame in frames)

    def for_labels(self, labels: frozenset[str]) -> bytes:
        """What a viewer with these clearance labels gets, joined once for all who have them."""
        joined = self._joined.get(labels)
        if joined is None:
            joined = self._joined[labels] = b"".join(frame.for_labels(labels) for frame in self._frames)
        return joined


class Viewer(Protocol):
    """Who follows a stream. Both methods are called on the loop, and neither waits nor raises."""

    def look(self) -> None:
        """Something may have moved."""
        ...

    def take(self, burst: Burst) -> None:
        """The stream has grown by `burst`: hand it on at once, or look later."""
        ...


class Followed:
    """One stream with at least one viewer in this process. `sent_bytes` counts all that was ever buffered."""

    def __init__(self, stream_id: int, room_id: str, head: int) -> None:
        self.stream_id = stream_id
        self.room_id = room_id
        self.head = head
        self.frames: deque[Frame] = deque()
        self.buffered = 0
        self.total_bytes = 0
        self.viewers: set[Viewer] = set()
        self.is_reading = False
        self.is_stale = False

    def after(self, seq: int) -> list[Frame] | None:
        """Buffered frames behind `seq`; None where some of them are only in the log."""
        if seq >= self.head:
            return []
        if not self.frames or self.frames[0].seq > seq + 1:
            return None
        # Seqs have no gap, so those behind it are the last ones; a look at all would cost each viewer the buffer.
        return [self.frames[place] for place in range(seq - self.head, 0)]

    def add(self, frames: Sequence[Frame]) -> None:
        """Append what was read, drop what is over the bounds, hand it to the viewers."""
        for frame in frames:
            self.frames.append(frame)
            self.buffered += len(frame.full)
            self.total_bytes += len(frame.full)
        while len(self.frames) > BUFFERED_FRAMES or (self.buffered > BUFFERED_BYTES and len(self.frames) > 1):
            self.buffered -= len(self.frames.popleft().full)
        burst = Burst(self.head, frames, self.total_bytes)
        self.head = burst.head
        for viewer in list(self.viewers):
            viewer.take(burst)


class Hub:
    """One per process. Holds no database connection while nothing moves."""

    def __init__(self, store: PostgresStore, fanned_out: Callable[[str], None]) -> None:
        """fanned_out: hears when what the viewers of a room were just handed was recorded."""
        self._store = store
        self._fanned_out = fanned_out
        self._followed: dict[int, Followed] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._poll: asyncio.Task[None] | None = None
        self._catch_up = asyncio.Semaphore(CATCH_UP_READERS)
        self.draining = asyncio.Event()
        self.streams = 0
        self.log_reads = 0

    def start(self) -> None:
        """Begin the safety poll on the running loop."""
        self._poll = asyncio.create_task(self._look_for_ever(), name="hub poll")

    async def close(self) -> None:
        """Stop reading."""
        tasks = [*self._tasks, *([self._poll] if self._poll else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def drain(self) -> None:
        """Tell every viewer to reconnect elsewhere."""
        self.draining.set()
        for followed in self._followed.values():
            for viewer in followed.viewers:
                viewer.look()

    @property
    def followed(self) -> int:
        """Streams that have a viewer here."""
        return len(self._followed)

    def follow(self, stream_id: int, room_id: str, head: int, viewer: Viewer) -> Followed:
        """Join a viewer; synchronous, and so is `leave`: clean-up that awaits may never run (fault B28)."""
        followed = self._followed.get(stream_id)
        is_new = followed is None
        if followed is None:
            followed = self._followed[stream_id] = Followed(stream_id, room_id, head)
        followed.viewers.add(viewer)
        if is_new or followed.head < head:
            # What was appended between the look at the head and now woke nobody up for a stream that had no viewer.
            self._read_soon(followed)
        self.streams += 1
        return followed

    def leave(self, followed: Followed, viewer: Viewer) -> None:
        """Part with a viewer; the last one takes the stream along."""
        followed.viewers.discard(viewer)
        self.streams -= 1
        if not followed.viewers:
            self._followed.pop(followed.stream_id, None)

    def wake(self, ids: frozenset[int] | None) -> None:
        """What the listener heard."""
        for stream_id in self._followed if ids is None else ids & self._followed.keys():
            self._read_soon(self._followed[stream_id])

    async def history(self, followed: Followed, after: int) -> list[Frame]:
        """A page of the log for a viewer who is behind the buffer."""
        async with self._catch_up:
            self.log_reads += 1
            entries = await self._store.read_entries(followed.stream_id, followed.room_id, after, PAGE)
        return [encode(entry) for entry in entries]

    def _read_soon(self, followed: Followed) -> None:
        if followed.is_reading:
            followed.is_stale = True
            return
        followed.is_reading = True
        task = asyncio.create_task(self._read(followed), name=f"read {followed.room_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, followed: Followed) -> None:
        try:
            while followed.viewers:
                followed.is_stale = False
                self.log_reads += 1
                entries = await self._store.read_entries(followed.stream_id, followed.room_id, followed.head, PAGE)
                if entries:
                    followed.add([encode(entry) for entry in entries])
                    self._fanned_out(entries[0].envelope.ts)
                if len(entries) < PAGE and not followed.is_stale:
                    return
        except MinutebookError as error:
            if not isinstance(error, Unavailable):
                log.warning("a followed stream cannot be read", error=type(error).__name__)
        finally:
            followed.is_reading = False

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            if not self._followed:
                continue
            try:
                versions: dict[int, Any] = await self._store.versions(list(self._followed))
            except MinutebookError:
                continue
            for stream_id, version in versions.items():
                followed = self._followed.get(stream_id)
                if followed is not None and followed.head < version:
                    self._read_soon(followed)
