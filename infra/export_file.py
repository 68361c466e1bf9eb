"""Checks an export line by line, without a database."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..domain.envelope import VERSION
from .chain import Break, ChainEvent, ChainLink, ChainVerifier
from .export_lines import ERASED, ROOM_PREFIX, Line, RestrictedLine, Trailer, encode

Progress = Callable[[int, int], None]
"""Told how much is done, and how much there is in all; the unit is events for a database and bytes for a file."""

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Longest line that is read into memory; a payload stands in it twice."""

MAX_FINDINGS = 100
"""Findings that a report spells out; `breaks` counts them all."""

PROGRESS_LINES = 2000


class Finding(Struct, frozen=True):
    """One thing that does not verify. line: 1-based, in a file; seq: of the event, where one is at fault."""

    what: str
    stream: str | None = None
    seq: int | None = None
    line: int | None = None


class VerifyReport(Struct):
    """What a verification saw. `findings` are the first MAX_FINDINGS of `breaks`.

    erased, restricted: events whose chain verified though their payload, or all of their content, was not there.
    partial: streams of a file that begin behind seq 1, so that nothing vouches for what came before.
    head: hash of the last event, where there was exactly one stream; compare it with a head noted elsewhere.
    """

    streams: int = 0
    events: int = 0
    erased: int = 0
    restricted: int = 0
    partial: int = 0
    breaks: int = 0
    findings: list[Finding] = []
    log_id: str | None = None
    head: str | None = None

    @property
    def ok(self) -> bool:
        """Whether everything verified."""
        return self.breaks == 0

    def add(self, what: str, stream: str | None = None, seq: int | None = None, line: int | None = None) -> None:
        """Count a finding, and spell it out if there is room."""
        self.breaks += 1
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(what, stream, seq, line))

    def count(self, verifier: ChainVerifier) -> None:
        """Count a stream that was looked at."""
        self.streams += 1
        self.erased += verifier.erased
        self.restricted += verifier.restricted
        self.head = verifier.head if self.streams == 1 else None


_line = msgspec.json.Decoder(Line)
_restricted = msgspec.json.Decoder(RestrictedLine)
_trailer = msgspec.json.Decoder(Trailer)
_TRAILER_START = b'{"trailer"'


def verify_file(path: Path | str, progress: Progress | None = None) -> VerifyReport:
    """Check an export line by line, in bounded memory and without a database.

    Finds what was edited, removed, repeated, moved or cut off, each with its line; of each stream the first such
    thing. Raises OSError where the file cannot be read.
    """
    path = Path(path)
    check = _FileCheck()
    with path.open("rb") as source:
        size, done = path.stat().st_size, 0
        while raw := source.readline(MAX_LINE_BYTES + 1):
            check.take(raw)
            done += len(raw)
            if len(raw) > MAX_LINE_BYTES:
                break
            if progress is not None and check.number % PROGRESS_LINES == 0:
                progress(done, max(done, size))
    check.end()
    if progress is not None:
        progress(max(done, size), max(done, size))
    return check.report


class _FileCheck:
    """Where the check of a file stands: in a stream, between two, or passing over the rest of a broken one."""

    def __init__(self) -> None:
        self.report = VerifyReport()
        self.number = 0
        self._verifier: ChainVerifier | None = None
        self._is_broken = False
        self._first_line = 0
        self._first_seq = 0
        self._count = 0
        self._remaining = 0

    def take(self, raw: bytes) -> None:
        """The next line of the file, with its newline if it has one."""
        self.number += 1
        if len(raw) > MAX_LINE_BYTES:
            self._fault(f"This line is longer than {MAX_LINE_BYTES} bytes, which no export writes; stopped here.")
            return
        try:
            self._dispatch(raw)
        except msgspec.ValidationError:
            self._fault("This line is neither an event nor a trailer of an export.")
        except (msgspec.MsgspecError, UnicodeError):
            self._fault("This line is not JSON." if raw.endswith(b"\n") else "The file was cut off within this line.")
        except RecursionError:
            self._fault("This line is nested too deeply.")

    def end(self) -> None:
        """The end of the file."""
        if self._verifier is not None and not self._is_broken:
            self._fault(f"The file ends without the trailer of {self._verifier.stream}.")
        elif self._remaining and self._verifier is None:
            self._fault(f"The file ends here, though {self._remaining} more streams should follow.")
        elif self.number == 0:
            self.report.add("The file is empty.")
        self._close()

    def _dispatch(self, raw: bytes) -> None:
        if raw.startswith(_TRAILER_START):
            self._take_trailer(_trailer.decode(raw))
            return
        try:
            line = _line.decode(raw)
        except msgspec.ValidationError:
            self._take_other(raw)
            return
        verifier = self._enter(line.room_id, line.stream, line.seq)
        if verifier is None or self._is_broken:
            return
        what = _misfit(raw, line)
        if what is not None:
            self._fault(what, line.seq)
            return
        event = _event(line)
        self._broke(Break(line.seq, "The salt is not hex.") if event is None else verifier.add(event))

    def _take_other(self, raw: bytes) -> None:
        try:
            line = _restricted.decode(raw)
        except msgspec.ValidationError:
            self._take_trailer(_trailer.decode(raw))
            return
        verifier = self._enter(line.room_id, line.stream, line.seq)
        if verifier is not None and not self._is_broken:
            self._broke(verifier.add_restricted(ChainLink(line.seq, line.ts, line.prev_hash, line.hash)))

    def _enter(self, room_id: str | UnsetType, stream: str | UnsetType, seq: int) -> ChainVerifier | None:
        """The verifier of the stream that this line is of, begun if need be."""
        self.report.events += 1
        if isinstance(room_id, str) == isinstance(stream, str):
            self._fault("This line does not say of which stream it is: it needs one of roomId and stream.", seq)
            return None
        name = ROOM_PREFIX + room_id if isinstance(room_id, str) else str(stream)
        if self._verifier is not None and self._verifier.stream != name:
            if not self._is_broken:
                self._fault(f"The trailer of {self._verifier.stream} is missing before this line.")
            self._close()
        if self._verifier is None:
            self._begin(name, seq)
        self._count += 1
        return self._verifier

    def _begin(self, name: str, first_seq: int) -> None:
        self._verifier = ChainVerifier(name, max(0, first_seq - 1))
        self._is_broken, self._count = False, 0
        self._first_line, self._first_seq = self.number, first_seq

    def _take_trailer(self, trailer: Trailer) -> None:
        if self._verifier is not None and self._verifier.stream != trailer.stream:
            if not self._is_broken:
                self._fault(f"This is not the trailer of {self._verifier.stream}.")
            self._close()
        if self._verifier is None:
            self._begin(trailer.stream, trailer.from_seq)
        verifier = self._verifier
        assert verifier is not None  # noqa: S101 - begun above
        if not self._is_broken:
            self._end_of_stream(verifier, trailer)
        if self._remaining and trailer.remaining != self._remaining - 1:
            self._fault(
                f"Here {self._remaining - 1} streams should remain, not {trailer.remaining}: some were removed."
            )
        self._remaining = trailer.remaining
        self._close()

    def _end_of_stream(self, verifier: ChainVerifier, trailer: Trailer) -> None:
        if trailer.from_seq > 1:
            self.report.partial += 1
        if self._first_seq != trailer.from_seq:
            what = f"The stream should begin with event {trailer.from_seq}, but begins with {self._first_seq}."
            self.report.add(what, verifier.stream, trailer.from_seq, self._first_line)
        elif broken := verifier.finish(trailer.through_seq, trailer.head):
            self._fault(broken.what, broken.seq)
        elif trailer.count != self._count:
            self._fault(f"The trailer counts {trailer.count} events; there are {self._count}.")
        elif self.report.log_id not in (None, trailer.log_id):
            self._fault("This stream is of another log than the ones before it.")
        self.report.log_id = self.report.log_id or trailer.log_id

    def _close(self) -> None:
        if self._verifier is not None:
            self.report.count(self._verifier)
        self._verifier = None

    def _broke(self, broken: Break | None) -> None:
        if broken is not None:
            self._fault(broken.what, broken.seq)

    def _fault(self, what: str, seq: int | None = None) -> None:
        """A finding at this line; the rest of its stream is passed over."""
        self._is_broken = True
        self.report.add(what, self._verifier.stream if self._verifier else None, seq, self.number)


def _event(line: Line) -> ChainEvent | None:
    try:
        salt = None if line.salt is None else bytes.fromhex(line.salt)
    except ValueError:
        return None
    actor = line.actor
    return ChainEvent(
        line.seq,
        line.id,
        line.type,
        line.schema_version,
        actor.kind,
        actor.id,
        _or_none(actor.role),
        _or_none(line.run_id),
        None if line.caused_by is UNSET else line.caused_by,
        line.origin,
        line.ts,
        line.redactions,
        line.classes,
        _or_none(line.origin_client),
        _or_none(line.origin_key),
        line.payload_text,
        salt,
        line.commitment,
        line.prev_hash,
        line.hash,
    )


def _or_none(text: str | UnsetType) -> str | None:
    return None if text is UNSET else text


def _misfit(raw: bytes, line: Line) -> str | None:
    """What is wrong with a line that its hash does not cover: its version, its payload as such, repeated names."""
    if line.v != VERSION:
        return f"This line is of version {line.v}; this minutebook reads version {VERSION}."
    text = ERASED if line.payload_text is None else line.payload_text.encode()
    if bytes(line.payload) == text and encode(line) == raw.rstrip(b"\n"):
        return None
    # Somebody wrote the line anew. That is no fault as long as it says the same.
    try:
        same = _strict(raw)["payload"] == _strict(text)
    except ValueError:
        return "A member name occurs twice in this line, or a number is none."
    return None if same else "The payload does not say what payloadText says."


def _strict(text: bytes) -> Any:
    """JSON with numbers by their value and apart from truth values; ValueError for a name that occurs twice."""
    return json.loads(
        text,
        object_pairs_hook=_members,
        parse_int=_number,
        parse_float=_number,
        parse_constant=_number,
    )


def _number(text: str) -> tuple[str, Decimal]:
    value = Decimal(text)
    if not value.is_finite():
        raise ValueError("not a JSON number")
    return ("number", value)


def _members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name occurs twice")
    return members
