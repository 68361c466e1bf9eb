"""The hash chain of a stream, recomputed without a database (docs/explanation/hash-chain.md has the canonical form)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ..domain.rooms.events import PayloadErased

ZERO_HASH = "0" * 64
"""What stands before the first event of a stream, in hex."""

SALT_BYTES = 16
"""Every salt is so long. A longer one could swallow the beginning of the payload that it salts."""

_DOMAIN = "minutebook.event.v1,"
_sha256 = hashlib.sha256


class ChainEvent(Struct, frozen=True):
    """What the hash of one event covers, and what it must come out at.

    ts: 27 characters, `2026-01-02T03:04:05.678901Z`. payload_text: PostgreSQL's text of the jsonb, as it was hashed;
    it and `salt` are both None once the payload was erased. salt: 16 bytes. commitment, prev_hash, hash: 64 lower-case
    hex digits.
    """

    seq: int
    id: str
    type: str
    schema_version: int
    actor_kind: str
    actor_id: str
    actor_role: str | None
    run_id: str | None
    caused_by: int | None
    origin: str
    ts: str
    redactions: Sequence[str]
    classes: Sequence[str]
    origin_client: str | None
    origin_key: str | None
    payload_text: str | None
    salt: bytes | None
    commitment: str
    prev_hash: str
    hash: str


class ChainLink(Struct, frozen=True):
    """All that a reader who is not cleared gets of an event: its place in the chain."""

    seq: int
    ts: str
    prev_hash: str
    hash: str


class Break(Struct, frozen=True):
    """The first event at which a stream stops being what its chain promises, and in one sentence why.

    seq: of the event at fault, or of the one that is missing. `what` never quotes a payload.
    """

    seq: int
    what: str


def netstring(text: str | None) -> str:
    """`<octets>:<text>,` with the length of the UTF-8 form; None is `:,`, which no text can be."""
    if text is None:
        return ":,"
    size = len(text) if text.isascii() else len(text.encode())
    return f"{size}:{text},"


def netstrings(texts: Sequence[str]) -> str:
    """A list as one netstring whose content is the netstrings of its elements. Raises TypeError unless all are text."""
    if not texts:
        return "0:,"
    if any(type(text) is not str for text in texts):
        raise TypeError("a list in an event holds something other than text")
    return netstring("".join(map(netstring, texts)))


def commitment(salt: bytes, payload_text: str) -> str:
    """What the log commits to in place of the payload, in hex: `sha256(salt || payload text in UTF-8)`."""
    return _sha256(salt + payload_text.encode()).hexdigest()


def canonical_text(stream: str, event: ChainEvent) -> str:
    """The text whose UTF-8 form is hashed: everything of the event but its own `hash`, payload and salt.

    Raises TypeError where `redactions` or `classes` hold something other than text.
    """
    return _canonical(_DOMAIN + netstring(stream), event)


def event_hash(stream: str, event: ChainEvent) -> str:
    """The hash of an event in hex: SHA-256 of its canonical text. Raises as canonical_text does."""
    return _sha256(canonical_text(stream, event).encode()).hexdigest()


def _canonical(head: str, e: ChainEvent) -> str:
    seq, version = str(e.seq), str(e.schema_version)
    caused_by = ":," if e.caused_by is None else netstring(str(e.caused_by))
    return (
        f"{head}{len(seq)}:{seq},{netstring(e.id)}{netstring(e.type)}{len(version)}:{version},"
        f"{netstring(e.actor_kind)}{netstring(e.actor_id)}{netstring(e.actor_role)}{netstring(e.run_id)}"
        f"{caused_by}{netstring(e.origin)}{netstring(e.ts)}{netstrings(e.redactions)}{netstrings(e.classes)}"
        f"{netstring(e.origin_client)}{netstring(e.origin_key)}{netstring(e.commitment)}{netstring(e.prev_hash)}"
    )


class ChainVerifier:
    """Takes the events of one stream in order and finds the first break; after it, the rest is not looked at.

    after_seq: where the range begins; behind 0 the chain is anchored at `ZERO_HASH`, else at `prev_hash`, or where that
    is None at whatever the first event claims. Holds nothing of the events but the numbers of erased ones.
    """

    def __init__(self, stream: str, after_seq: int = 0, prev_hash: str | None = None) -> None:
        self.stream = stream
        self.seq = after_seq
        self.head = ZERO_HASH if after_seq == 0 else prev_hash
        self.erased = 0
        self.restricted = 0
        self.broken: Break | None = None
        self._start = _DOMAIN + netstring(stream)
        self._ts = ""
        self._unnamed: set[int] = set()
        self._last_erased_name = 0

    def add(self, event: ChainEvent) -> Break | None:
        """The next event, whole or with its payload erased. Returns the break of the stream, if there is one."""
        if self.broken is None:
            what = self._place(event.seq, event.ts, event.prev_hash) or self._content(event)
            self._step(event, what)
        return self.broken

    def add_restricted(self, link: ChainLink) -> Break | None:
        """The next event where only its place in the chain is known: the links are checked, its content cannot be."""
        if self.broken is None:
            self.restricted += 1
            self._step(link, self._place(link.seq, link.ts, link.prev_hash))
        return self.broken

    def finish(self, version: int, head: str) -> Break | None:
        """The end: `version` and `head` are where the stream (or the trailer of its export) says that it stands."""
        if self.broken is None:
            if self.seq < version:
                self._fail(self.seq + 1, f"Event {self.seq + 1} is missing; the stream should end at {version}.")
            elif self.seq > version:
                self._fail(version + 1, f"The stream has event {version + 1}, though it should end at {version}.")
            elif self.head is not None and head != self.head:
                self._fail(self.seq, "The head hash is not the hash of the last event.")
            elif nulled := self._nulled():
                self._fail(nulled[0], f"The payload of event {nulled[0]} is gone, and no later event erased it.")
        return self.broken

    def _place(self, seq: int, ts: str, prev_hash: str) -> str | None:
        expected = self.seq + 1
        if seq != expected:
            if seq == self.seq:
                return f"Event {seq} comes twice."
            if seq < expected:
                return f"Event {seq} comes after event {self.seq}."
            return f"Event {expected} is missing; event {seq} follows event {self.seq}."
        if self.head is not None and prev_hash != self.head:
            return f"The previous hash of event {seq} is not the hash of the event before it."
        if ts < self._ts:
            return f"The time of event {seq} is before that of the event before it."
        return None

    def _content(self, event: ChainEvent) -> str | None:
        text, salt, seq = event.payload_text, event.salt, event.seq
        if text is None or salt is None:
            if text is not None or salt is not None:
                return f"Event {seq} has a payload without a salt, or a salt without a payload."
            self.erased += 1
            self._unnamed.add(seq)
            if event.type == PayloadErased.type:
                self._last_erased_name = seq
        elif len(salt) != SALT_BYTES:
            return f"The salt of event {seq} is not {SALT_BYTES} bytes long."
        elif _sha256(salt + text.encode()).hexdigest() != event.commitment:
            return f"The payload of event {seq} is not what its commitment was made of."
        elif self._unnamed:
            self._unnamed.discard(_erased_by(text))
        try:
            found = _sha256(_canonical(self._start, event).encode()).hexdigest()
        except TypeError:
            return f"Event {seq} holds a list that is not of texts, which its hash cannot cover."
        return None if found == event.hash else f"The hash of event {seq} is not the hash of what it says."

    def _step(self, event: ChainEvent | ChainLink, what: str | None) -> None:
        if what is not None:
            # A missing event is named by its own number, everything else by that of the event at fault.
            self._fail(min(event.seq, self.seq + 1), what)
            return
        self.seq, self.head, self._ts = event.seq, event.hash, event.ts

    def _fail(self, seq: int, what: str) -> None:
        self.broken = Break(seq, what)

    def _nulled(self) -> list[int]:
        # Whatever named an erased event may have been erased since, by a later event; the last such was not.
        return [] if self.restricted else sorted(seq for seq in self._unnamed if seq >= self._last_erased_name)


class _Erasure(Struct):
    kind: Any = None
    erased_seq: Any = msgspec.field(default=None, name="erasedSeq")


def _erased_by(payload_text: str) -> int:
    """The seq that this event erases, 0 for any other event."""
    if '"payload_erased"' not in payload_text:
        return 0
    try:
        found = msgspec.json.decode(payload_text, type=_Erasure)
    except msgspec.MsgspecError:
        return 0
    return found.erased_seq if found.kind == "payload_erased" and type(found.erased_seq) is int else 0
