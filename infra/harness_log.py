"""What a harness did, as numbered items: a log of JSON lines that grows, or a recording that is there as a whole."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Protocol, get_args

import msgspec

from ..domain.jsontext import compact
from ..domain.rooms.commands import ClaimedReason
from .swe_agent import Item

MAX_LINE_BYTES = 1024 * 1024
"""Longest line of a log; a longer one is stood in for. A payload of a room has 64 KiB at most."""

READ_BYTES = 256 * 1024
POLL_S = 0.1
"""Between two looks at a log that did not grow."""

BYE = "bye"
"""The type of the line that ends the run, which no item of a room has; its payload may hold `reason`."""

REASONS: tuple[str, ...] = get_args(ClaimedReason)


class LogBroken(Exception):
    """The log is not what it was: cut, replaced or unreadable; the message says what to do."""


class HarnessItem(msgspec.Struct, frozen=True):
    """One thing that the harness did. seq: its number, from 1 and gapless. payload: JSON text.

    cause: the number of the item that caused it.
    """

    seq: int
    type: str
    payload: bytes
    cause: int | None = None

    @property
    def size(self) -> int:
        """Bytes, about as many as it takes in a push."""
        return len(self.payload) + len(self.type) + 64


def stand_in(seq: int, error: str, **fields: Any) -> HarnessItem:
    """What is pushed in the place of an item that cannot be, so that the numbers go on behind it."""
    return HarnessItem(seq, "state_changed", compact({"kind": "harness_error", "error": error, **fields}))


class Source(Protocol):
    """Where a bridge has its items from. reason: why the run ended, once `items` has come to an end."""

    reason: ClaimedReason

    def items(self, after: int) -> AsyncGenerator[HarnessItem]:
        """The items behind number `after`, as they come; ends with the run. The same ones at every start."""
        ...


class _Line(msgspec.Struct, rename="camel"):
    """A line as an envelope has it. What else it says (seq, actor, time) is the server's to set, and is passed over."""

    type: str
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    caused_by: int | None = None


class _Loose(msgspec.Struct, rename="camel"):
    type: str
    payload: Any = msgspec.field(default_factory=dict[str, Any])
    caused_by: int | None = None


class _Bye(msgspec.Struct):
    reason: ClaimedReason = "finished"


class HarnessLog:
    """A file to which a harness appends one JSON object a line: `{"type", "payload", "causedBy"?}`.

    An item's number is its line's, blank lines left out. A last line without its line break is not there yet. A line
    that is no such object, or over MAX_LINE_BYTES, is stood in for. follow: wait for more at the end of the file, until
    a line of type `bye` comes; else that end is the run's, and what stands there without a line break is a line.
    """

    def __init__(self, path: Path, *, follow: bool = True) -> None:
        self.reason: ClaimedReason = "finished"
        self._path = path
        self._follow = follow

    async def items(self, after: int) -> AsyncGenerator[HarnessItem]:
        """See Source.items. Raises LogBroken."""
        number = 0
        lines = _Lines()
        async for chunk in self._chunks():
            for line, size in lines.feed(chunk) if chunk else lines.rest():
                number += 1
                if number <= after:
                    continue
                item = self._item(number, line, size)
                if item is None:
                    return
                yield item

    def _item(self, number: int, line: bytes | None, size: int) -> HarnessItem | None:
        """None for the line that ends the run."""
        if line is None:
            return stand_in(number, "line_too_long", bytes=size)
        try:
            read = _read(line)
            if read.type == BYE:
                self.reason = msgspec.json.decode(read.payload, type=_Bye).reason
                return None
        except (ValueError, RecursionError):
            return stand_in(number, "unreadable_line", bytes=size)
        cause = read.caused_by if read.caused_by is not None and 0 < read.caused_by < number else None
        return HarnessItem(number, read.type, bytes(read.payload), cause)

    async def _chunks(self) -> AsyncGenerator[bytes]:
        """The file's bytes as they come; an empty chunk at its end, where that is not waited at."""
        while self._follow and not self._path.exists():  # noqa: ASYNC110 - nobody tells when a file appears
            await asyncio.sleep(POLL_S)
        try:
            with self._path.open("rb", buffering=0) as file:
                opened, offset = os.fstat(file.fileno()), 0
                while True:
                    chunk = file.read(READ_BYTES)
                    if chunk:
                        offset += len(chunk)
                        yield chunk
                        await asyncio.sleep(0)
                    elif not self._follow:
                        yield b""
                        return
                    else:
                        self._check(opened, offset)
                        await asyncio.sleep(POLL_S)
        except OSError as error:
            raise LogBroken(f"{self._path.name} cannot be read ({error.strerror}).") from error

    def _check(self, opened: os.stat_result, offset: int) -> None:
        now = self._path.stat()
        if (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino) or now.st_size < offset:
            raise LogBroken(
                f"{self._path.name} was cut or replaced; a log only grows, since its lines are numbered. Give each run"
                " a log of its own."
            )


_line = msgspec.json.Decoder(_Line)


def _read(line: bytes) -> _Line:
    """Raises ValueError and RecursionError."""
    try:
        return _line.decode(line)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # A lone surrogate, NaN, a number without end: what the room makes of such a value is for the server to say.
        loose = msgspec.convert(json.loads(line), _Loose)
        return _Line(loose.type, msgspec.Raw(json.dumps(loose.payload).encode()), loose.caused_by)


class _Lines:
    """Bytes to lines that are not blank. A line over the limit comes as None; only its size is kept."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Generator[tuple[bytes | None, int]]:
        """The lines that `chunk` completes, each with its size."""
        *whole, last = chunk.split(b"\n")
        for part in whole:
            self._add(part)
            yield from self.rest()
        self._add(last)

    def rest(self) -> Generator[tuple[bytes | None, int]]:
        """What stands without a line break, as a line."""
        size, line = self._size, b"".join(self._parts)
        self._parts, self._size = [], 0
        if size > MAX_LINE_BYTES:
            yield None, size
        elif line.strip():
            yield line, size

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= MAX_LINE_BYTES:
            self._parts.append(part)
        else:
            self._parts.clear()


class Recording:
    """A recorded run. wait_s: how long to wait before an item that is pushed for the first time."""

    def __init__(self, items: Sequence[Item], reason: ClaimedReason, wait_s: Callable[[Item], float]) -> None:
        self.reason: ClaimedReason = reason
        self._items = items
        self._wait_s = wait_s

    async def items(self, after: int) -> AsyncGenerator[HarnessItem]:
        """See Source.items. All items get numbers of one stream, in the order of sending."""
        place = {(item.stream, item.seq): number for number, item in enumerate(self._items, 1)}
        for number, item in enumerate(self._items[after:], after + 1):
            await asyncio.sleep(self._wait_s(item))
            cause = item.caused_by_harness_seq
            caused_by = None if cause is None else place.get(("events", cause))
            yield HarnessItem(number, item.type, compact(item.payload), caused_by)
